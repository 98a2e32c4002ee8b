"""The dispatcher: takes events from the inbox to their verdicts, and lets runs start.

One loop, one batch at a time: judge, write the evidence and sync it, commit, and only then tell
those who act on it. A full disk or a slow store makes it wait and try again; an audit log that
cannot be written ends it, and the process with it, since nothing may happen that is not recorded.

This module must never decide what a verdict means; the rules and the batch do.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Callable, Coroutine
from datetime import datetime
from time import monotonic
from typing import Any, Final, Protocol

from hermesd.audit import AuditError, AuditLog
from hermesd.config import Config
from hermesd.incidents import Incident, Run
from hermesd.pipeline.announcing import incident_notice
from hermesd.pipeline.inbox import Inbox
from hermesd.pipeline.judged import Judged
from hermesd.pipeline.judging import Terms, judge_batch, retime
from hermesd.pipeline.resolutions import Resolutions
from hermesd.rules.book import RuleBook
from hermesd.rules.rule import Rule
from hermesd.sources.bulletin import Bulletin
from hermesd.state.events import mark_decided, prune, undecided_events
from hermesd.state.store import Store, StoreError
from hermesd.telemetry import Metrics

log = logging.getLogger("hermesd.dispatcher")

BATCH_EVENTS: Final = 512
RETRY_SECONDS: Final = 1.0
MAX_WAIT_SECONDS: Final = 30.0
"""How long a timer may be slept on at once: a clock that was set, and new rules, are noticed by then."""

EVIDENCE_SECONDS: Final = 10.0
PRUNE_SECONDS: Final = 3600.0
PRUNE_EVENTS: Final = 10_000


class Starter(Protocol):
    """Who carries runs: the runner."""

    def start(self, run: Run) -> None:
        """Begin a run that has a place and is recorded."""
        ...

    async def cancel(self, task_id: str, who: str) -> str | None:
        """Withdraw a run."""
        ...


class Dispatcher:
    """Judges what the inbox holds. ``config`` returns what is in force now."""

    def __init__(
        self,
        store: Store,
        audit: AuditLog,
        metrics: Metrics,
        inbox: Inbox,
        starter: Starter,
        resolutions: Resolutions,
        *,
        bulletin: Bulletin,
        config: Callable[[], Config],
        now: Callable[[], datetime],
    ) -> None:
        self._store = store
        self._audit = audit
        self._metrics = metrics
        self._inbox = inbox
        self._starter = starter
        self._resolutions = resolutions
        self._bulletin = bulletin
        self._config = config
        self._now = now
        self._pruned_at = 0.0
        self._rules: tuple[Rule, ...] | None = None
        self._book = RuleBook(())
        self._retimed = False
        self._next_due: datetime | None = None
        self._group: asyncio.TaskGroup | None = None

    async def run(self) -> None:
        """Judge until cancelled. Raise AuditError when evidence cannot be written."""
        try:
            async with asyncio.TaskGroup() as self._group:
                await self._judge_for_ever()
        except BaseExceptionGroup as faults:
            if isinstance(first := _first(faults), AuditError):
                raise first from None
            raise
        finally:
            self._group = None

    async def _judge_for_ever(self) -> None:
        while True:
            await self._something_to_judge()
            while await self._judge_patiently():
                pass
            await self._prune()

    async def _something_to_judge(self) -> None:
        """Wait for an event, or until time alone changes something."""
        seconds = MAX_WAIT_SECONDS
        if self._next_due is not None:
            seconds = min(max((self._next_due - self._now()).total_seconds(), 0.0), seconds)
        try:
            async with asyncio.timeout(seconds):
                await self._inbox.arrival()
        except TimeoutError:
            return

    async def _judge_patiently(self) -> bool:
        """Judge one batch, waiting out a store that cannot write. Return whether there may be more."""
        try:
            return await self.judge_once() == BATCH_EVENTS
        except (StoreError, TimeoutError) as error:
            log.error("events wait to be judged: %s", error or "the audit log is slow")  # noqa: TRY400 - the disk's words
            await asyncio.sleep(RETRY_SECONDS)
            return True

    async def judge_once(self) -> int:
        """Judge one batch, record it, let it act. Return how many events it had."""
        try:
            judged = await self._judge(BATCH_EVENTS)
        except (StoreError, AuditError, TimeoutError):
            raise
        except Exception:
            log.exception("a batch of events could not be judged")
            return await self._judge_alone()
        await self._let_act(judged)
        return max(judged.events, judged.timers)

    async def _judge_alone(self) -> int:
        """Judge the first event by itself: one that cannot be judged is set aside, the next are served."""
        try:
            judged = await self._judge(1)
            await self._let_act(judged)
        except (StoreError, AuditError, TimeoutError):
            raise
        except Exception as error:
            log.exception("an event is set aside: it cannot be judged")
            await self._set_aside(type(error).__name__)
        return BATCH_EVENTS  # there may be more

    async def _set_aside(self, fault: str) -> None:
        stored = next(iter(await self._store.read(lambda connection: undecided_events(connection, 1))), None)
        if stored is None:  # no event but a timer is at fault: it stays due, and is tried again
            await asyncio.sleep(RETRY_SECONDS)
            return
        verdict = {"kind": "fault", "reason": f"it could not be judged: {fault}"}
        await self._audit.record(
            "event.set_aside", source=stored.event.source, event=stored.event.id, fault=fault
        )
        await self._store.write(
            lambda connection: mark_decided(connection, stored.seq, [verdict], self._now())
        )
        self._inbox.decided(1)

    async def _judge(self, limit: int) -> Judged:
        terms = self._terms()

        def judge(connection: sqlite3.Connection) -> Judged:
            if not self._retimed:
                retime(connection, terms.book)
            judged = judge_batch(connection, terms, limit=limit, now=self._now())
            self._record(judged)
            return judged

        judged = await self._store.write(judge)
        self._retimed = True
        self._next_due = judged.next_due
        self._inbox.decided(judged.events)
        return judged

    def _terms(self) -> Terms:
        """Return what is in force now. The rules are arranged once for each configuration."""
        config = self._config()
        if config.rules is not self._rules:
            self._rules, self._book, self._retimed = config.rules, RuleBook(config.rules), False
        return Terms(
            book=self._book,
            places=config.limits.parallel_runs,
            schedules={schedule.name: schedule for schedule in config.schedules},
            runbooks=config.runbooks,
            maintenance=config.maintenance,
        )

    def _record(self, judged: Judged) -> None:
        """Write the batch's evidence and wait until it is synced, in the writer's thread: it comes first.

        A commit that fails after this leaves evidence of a judgement that is made again; the other way
        round there could be an incident that nothing speaks of.
        """
        append = self._audit.append
        receipts = [append("event.verdict", **entry) for entry in judged.evidence.values()]
        receipts += [append("incident.opened", **_opened(incident)) for incident in judged.opened]
        receipts += [append("incident.resolved", **_resolved(incident)) for incident in judged.resolved]
        receipts += [append("incident.escalated", **_escalated(incident)) for incident in judged.escalated]
        if receipts:
            receipts[-1].result(EVIDENCE_SECONDS)  # in order: the last one's sync is everybody's

    async def _let_act(self, judged: Judged) -> None:
        for (rule, kind), count in judged.verdicts.items():
            self._metrics.verdicts.labels(rule, kind).inc(count)
        for incident in judged.opened:
            log.warning("incident %s opened: %s", incident.id, incident.title)
            self._bulletin.tell(incident_notice(incident))
        for incident in judged.resolved:
            log.info("incident %s resolved: %s", incident.id, incident.title)
            self._resolutions.publish(incident.id)
            self._bulletin.tell(incident_notice(incident))
        for incident in judged.escalated:
            log.warning("incident %s needs a person: %s", incident.id, incident.escalated)
        for task_id in judged.withdrawn:
            await self._withdraw(task_id)
        for run in judged.started:
            self._starter.start(run)
        for run in judged.queued:
            log.info("%s waits for a place: %s", run.task_id, run.goal)

    async def _withdraw(self, task_id: str) -> None:
        """Have a run give way. It may take its time to end; other events do not wait for that."""
        withdrawal = self._starter.cancel(task_id, "a newer run of its rule")
        if self._group is not None:
            self._group.create_task(_patiently(withdrawal), name=f"withdraw {task_id}")
        else:
            await _patiently(withdrawal)

    async def _prune(self) -> None:
        """Let decided events go that are older than is kept, now and then."""
        if monotonic() - self._pruned_at < PRUNE_SECONDS:
            return
        self._pruned_at = monotonic()
        days = self._config().limits.event_days
        gone = PRUNE_EVENTS
        try:
            while gone == PRUNE_EVENTS:
                gone = await self._store.write(
                    lambda connection: prune(connection, self._now(), days, PRUNE_EVENTS)
                )
        except StoreError as error:
            log.warning("old events stay: %s", error)


async def _patiently(withdrawal: Coroutine[Any, Any, str | None]) -> None:
    try:
        await withdrawal
    except StoreError as error:
        log.warning("a run that should give way goes on: %s", error)


def _first(faults: BaseExceptionGroup) -> BaseException:
    """Return the first fault itself, out of however many groups are around it."""
    fault = faults.exceptions[0]
    return _first(fault) if isinstance(fault, BaseExceptionGroup) else fault


def _escalated(incident: Incident) -> dict[str, Any]:
    return {"incident": incident.id, "rule": incident.rule, "reason": incident.escalated}


def _opened(incident: Incident) -> dict[str, Any]:
    return {
        "incident": incident.id,
        "rule": incident.rule,
        "title": incident.title,
        "severity": incident.severity,
        "labels": incident.labels,
        "value": incident.last_value,
    }


def _resolved(incident: Incident) -> dict[str, Any]:
    return {
        "incident": incident.id,
        "rule": incident.rule,
        "events": incident.events,
        "value": incident.last_value,
    }
