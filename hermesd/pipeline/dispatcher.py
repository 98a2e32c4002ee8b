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
from collections.abc import Callable
from datetime import datetime
from time import monotonic
from typing import Any, Final, Protocol

from hermesd.audit import AuditError, AuditLog
from hermesd.config import Config
from hermesd.incidents import Incident, Run
from hermesd.pipeline.announcing import incident_notice
from hermesd.pipeline.inbox import Inbox
from hermesd.pipeline.judging import Judged, judge_batch
from hermesd.pipeline.resolutions import Resolutions
from hermesd.sources.bulletin import Bulletin
from hermesd.state.events import mark_decided, prune, undecided_events
from hermesd.state.store import Store, StoreError
from hermesd.telemetry import Metrics

log = logging.getLogger("hermesd.dispatcher")

BATCH_EVENTS: Final = 512
RETRY_SECONDS: Final = 1.0
EVIDENCE_SECONDS: Final = 10.0
PRUNE_SECONDS: Final = 3600.0
PRUNE_EVENTS: Final = 10_000


class Starter(Protocol):
    """Who carries runs: the runner."""

    def start(self, run: Run) -> None:
        """Begin a run that has a place and is recorded."""
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

    async def run(self) -> None:
        """Judge until cancelled. Raise AuditError when evidence cannot be written."""
        while True:
            await self._inbox.arrival()
            while await self._judge_patiently():
                pass
            await self._prune()

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
        self._let_act(judged)
        return judged.events

    async def _judge_alone(self) -> int:
        """Judge the first event by itself: one that cannot be judged is set aside, the next are served."""
        try:
            self._let_act(await self._judge(1))
        except (StoreError, AuditError, TimeoutError):
            raise
        except Exception as error:
            log.exception("an event is set aside: it cannot be judged")
            await self._set_aside(type(error).__name__)
        return BATCH_EVENTS  # there may be more

    async def _set_aside(self, fault: str) -> None:
        [stored] = await self._store.read(lambda connection: undecided_events(connection, 1))
        verdict = {"kind": "fault", "reason": f"it could not be judged: {fault}"}
        await self._audit.record(
            "event.set_aside", source=stored.event.source, event=stored.event.id, fault=fault
        )
        await self._store.write(
            lambda connection: mark_decided(connection, stored.seq, [verdict], self._now())
        )
        self._inbox.decided(1)

    async def _judge(self, limit: int) -> Judged:
        config = self._config()

        def judge(connection: sqlite3.Connection) -> Judged:
            judged = judge_batch(
                connection,
                config.rules,
                places=config.limits.parallel_runs,
                limit=limit,
                now=self._now(),
                schedules=config.schedules,
                runbooks=config.runbooks,
            )
            self._record(judged)
            return judged

        judged = await self._store.write(judge)
        self._inbox.decided(judged.events)
        return judged

    def _record(self, judged: Judged) -> None:
        """Write the batch's evidence and wait until it is synced, in the writer's thread: it comes first.

        A commit that fails after this leaves evidence of a judgement that is made again; the other way
        round there could be an incident that nothing speaks of.
        """
        append = self._audit.append
        receipts = [append("event.verdict", **entry) for entry in judged.evidence.values()]
        receipts += [append("incident.opened", **_opened(incident)) for incident in judged.opened]
        receipts += [append("incident.resolved", **_resolved(incident)) for incident in judged.resolved]
        if receipts:
            receipts[-1].result(EVIDENCE_SECONDS)  # in order: the last one's sync is everybody's

    def _let_act(self, judged: Judged) -> None:
        for (rule, kind), count in judged.verdicts.items():
            self._metrics.verdicts.labels(rule, kind).inc(count)
        for incident in judged.opened:
            log.warning("incident %s opened: %s", incident.id, incident.title)
            self._bulletin.tell(incident_notice(incident))
        for incident in judged.resolved:
            log.info("incident %s resolved: %s", incident.id, incident.title)
            self._resolutions.publish(incident.id)
            self._bulletin.tell(incident_notice(incident))
        for run in judged.started:
            self._starter.start(run)
        for run in judged.queued:
            log.info("%s waits for a place: %s", run.task_id, run.goal)

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
