"""The composition root of the agent process: the only place that wires its parts together.

Read from top to bottom: configuration, books, hands, runner, dispatcher, desk, sources, READY. Events
are accepted only once everything that judges and carries them stands. This module must never decide
what an event means or what is done about it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import platform
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from hermesd.agent.planner import Hear, Planner
from hermesd.agent.runbook import RunbookPlanner
from hermesd.audit import AuditLog, open_log
from hermesd.config import Config, load_config
from hermesd.incidents import Run
from hermesd.ipc.server import SocketServer
from hermesd.lifecycle import Lifecycle
from hermesd.pipeline.desk import Desk, may_steer
from hermesd.pipeline.dispatcher import Dispatcher
from hermesd.pipeline.follow import Followers
from hermesd.pipeline.hands import ExecutorHands
from hermesd.pipeline.inbox import Inbox
from hermesd.pipeline.kit import Kit
from hermesd.pipeline.probing import CommandProbe
from hermesd.pipeline.resolutions import Resolutions
from hermesd.pipeline.runner import Runner
from hermesd.sources.base import Source
from hermesd.sources.deadman import DeadManSource, Ear
from hermesd.sources.making import source_maker
from hermesd.sources.schedule import ScheduleSource
from hermesd.sources.sessions import Sessions
from hermesd.sources.settings import SourceSettings
from hermesd.sources.supervisor import Supervisor
from hermesd.sources.zygote import Zygote, start_zygote
from hermesd.state.memory import StoredMemory
from hermesd.state.store import Store, open_store
from hermesd.telemetry import Metrics, configure_logging

log = logging.getLogger("hermesd.agent")

_ANYONE_MAY_TRY: Final = 0o666
_GENERAL_LOOK: Final = "inspect"
"""The runbook of a run for which no rule and no word named one."""


def main(layers: Sequence[Path]) -> None:
    """Run the agent process until it is asked to stop. Raise ConfigError when nothing may run."""
    zygote = start_zygote()  # before the first thread, and before this process knows anything
    environ = dict(os.environ)
    os.environ.pop("API_KEY", None)  # read once, below; nothing started from here inherits it
    try:
        asyncio.run(serve(layers, zygote, environ))
    finally:
        zygote.stop()


async def serve(layers: Sequence[Path], zygote: Zygote, environ: Mapping[str, str]) -> None:
    """Build the parts in order, run until the stop, leave them in reverse."""
    current = Current(load_config(layers, environ))
    config = current.config
    configure_logging(config.agent.log_level, journald=bool(environ.get("JOURNAL_STREAM")))
    async with Lifecycle() as life:
        state_dir = Path(config.agent.state_dir)
        audit = await life.enter("audit log", _audit_log(state_dir))
        store = await life.enter("store", _store(config.agent.store_file))
        metrics, minds = Metrics(), await life.enter("planners", _minds(config))
        await audit.record("agent.started", config=config.digest, pid=os.getpid())
        hands = ExecutorHands(Path(config.agent.executor_socket), config.stages, lambda: str(audit.head))
        kit = Kit(
            store=store,
            audit=audit,
            metrics=metrics,
            hands=hands,
            planners=minds,
            followers=Followers(),
            resolutions=Resolutions(),
            config=lambda: current.config,
            now=utc_now,
        )
        timekeeping, sessions = StoredMemory(store, "schedule"), Sessions(StoredMemory(store, "mqtt"))
        runner = Runner(kit)
        inbox = Inbox(
            store,
            metrics,
            limit=config.limits.inbox_events,
            receive_ms=config.stages.receive_ms,
            now=utc_now,
        )
        await inbox.open()
        dispatcher = Dispatcher(
            store,
            audit,
            metrics,
            inbox,
            runner,
            kit.resolutions,
            bulletin=kit.bulletin,
            config=kit.config,
            now=utc_now,
        )
        ear = Ear(lambda: current.config.sources)
        built_in: dict[str, Callable[[], Source]] = {
            "schedule": lambda: ScheduleSource(lambda: current.config.schedules, timekeeping),
            "deadman": lambda: DeadManSource(ear, StoredMemory(store, "deadman")),
        }
        make = source_maker(
            zygote,
            platform.node(),
            metrics,
            environ,
            built_in,
            sessions=sessions,
            bulletin=kit.bulletin,
            run_command=CommandProbe(hands),
            memory=lambda name: StoredMemory(store, name),
        )
        supervisor = Supervisor(make, metrics)

        async def reload() -> str:
            fresh = await asyncio.to_thread(load_config, layers, environ)
            await current.replace(fresh, supervisor.apply)
            await audit.record("config.loaded", config=fresh.digest)
            return f"configuration {fresh.digest}"

        desk = Desk(kit, runner, inbox, supervisor, state_dir / "audit", reload)
        await life.enter("runner", _task("runner", runner.run()))
        await life.enter("dispatcher", _task("dispatcher", dispatcher.run()))
        await life.enter("control socket", _control_socket(current, desk, audit))
        await life.enter(
            "sources", _task("sources", supervisor.run(config.sources, ear.beside(inbox.accept)))
        )
        life.on_reload(reload)
        life.ready(f"{sum(source.enabled for source in config.sources)} sources, {len(config.rules)} rules")
        await life.stop_requested()


class Current:
    """The configuration in force: replaced as a whole, or not at all."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self._replacing = asyncio.Lock()

    async def replace(
        self, fresh: Config, apply: Callable[[Sequence[SourceSettings]], Awaitable[None]]
    ) -> None:
        """Put a configuration in force once its sources are taken over; when they are not, the old stays."""
        async with self._replacing:
            try:
                await apply(fresh.sources)
            except BaseException:
                await asyncio.shield(apply(self.config.sources))
                raise
            self.config = fresh


def utc_now() -> datetime:
    """Return the wall clock, aware and in UTC."""
    return datetime.now(UTC)


@asynccontextmanager
async def _audit_log(state_dir: Path) -> AsyncIterator[AuditLog]:
    audit = await asyncio.to_thread(open_log, state_dir / "audit")
    try:
        yield audit
    finally:
        await asyncio.to_thread(audit.close)


@asynccontextmanager
async def _store(path: Path) -> AsyncIterator[Store]:
    store = await asyncio.to_thread(open_store, path)
    try:
        yield store
    finally:
        await asyncio.to_thread(store.close)


@asynccontextmanager
async def _task(name: str, work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Own one part's task: what it raises ends the process, and leaving ends it."""
    async with asyncio.TaskGroup() as group:
        task = group.create_task(work, name=name)
        try:
            yield
        finally:
            task.cancel()


@asynccontextmanager
async def _minds(config: Config) -> AsyncIterator[_Minds]:
    minds = _Minds(config)
    try:
        yield minds
    finally:
        await minds.close()


class _Minds:
    """Who plans for a run: the model where one is configured and the runbook lets it, then the runbook."""

    def __init__(self, config: Config) -> None:
        self._chat: Any = None
        if config.model.enabled:
            from hermesd.agent.model import HttpModel  # noqa: PLC0415 - aiohttp costs 200 ms, and few have a model

            self._chat = HttpModel(
                config.model,
                timeout_seconds=_inside(config.stages.plan_ms),
                retries=config.limits.network_retries,
            )

    def __call__(self, run: Run, config: Config, hear: Hear) -> Sequence[Planner]:
        planners: list[Planner] = []
        runbook = config.runbooks.get(run.runbook) or config.runbooks.get(_GENERAL_LOOK)
        if self._chat is not None and (runbook is None or runbook.model):
            from hermesd.agent.model import ModelPlanner  # noqa: PLC0415 - the same

            mind = ModelPlanner(
                self._chat,
                config.limits.malformed_answers,
                name=config.model.model_name,
                budget_seconds=_inside(config.stages.plan_ms),
                hear=hear,
            )
            planners.append(mind)
        if runbook is not None:
            planners.append(RunbookPlanner(runbook))
        return planners

    async def close(self) -> None:
        """Let go of the model's connection."""
        if self._chat is not None:
            await self._chat.close()


def _inside(budget_ms: int) -> float:
    """Return seconds that end just before a stage's own clock, so that the model's lateness has its name."""
    return budget_ms / 1000 * 0.98


def _control_socket(current: Current, desk: Desk, audit: AuditLog) -> SocketServer:
    return SocketServer(
        Path(current.config.agent.control_socket),
        name="control.sock",
        allow=lambda peer: may_steer(current.config.agent, peer),
        answer=desk.answer,
        anchor=lambda: str(audit.head),
        mode=_ANYONE_MAY_TRY,
    )
