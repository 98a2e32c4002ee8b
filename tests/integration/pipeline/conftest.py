"""The pipeline with a real store and a real audit log, and hands and planners written by hand."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections import Counter
from concurrent.futures import Future
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import count

import pytest

from hermesd.agent.planner import PlannerKind, PlannerUnavailable, Unavailability
from hermesd.agent.settings import ModelSettings
from hermesd.audit import open_log, read_records, verify
from hermesd.clocks import StageBudgets
from hermesd.config import AgentSettings, Config, Limits
from hermesd.events import Event, EventStatus
from hermesd.incidents import RunStatus
from hermesd.pipeline.dispatcher import Dispatcher
from hermesd.pipeline.follow import Followers
from hermesd.pipeline.inbox import Inbox
from hermesd.pipeline.kit import Kit
from hermesd.pipeline.resolutions import Resolutions
from hermesd.pipeline.runner import Runner
from hermesd.protocol import (
    Action,
    CatalogueView,
    CommandInfo,
    CommandResult,
    Decision,
    Effect,
    Finish,
    Gain,
    Impact,
    Permission,
    Progress,
    ResultStatus,
    Stage,
    StageOutcome,
    StageTiming,
)
from hermesd.rules.rule import Rule
from hermesd.state.incidents import list_incidents
from hermesd.state.runs import find_run, list_runs
from hermesd.state.store import open_store
from hermesd.telemetry import Metrics

SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}


def command(name, effect=Effect.READ, *, safe=False, retryable=False):
    public = effect is Effect.READ
    return CommandInfo(
        name=name,
        description=name,
        effect=effect,
        permission=Permission.PUBLIC if public else Permission.INTERNAL,
        args_schema=SCHEMA,
        timeout_ms=10_000,
        concurrency_safe=safe,
        retryable=retryable,
    )


CATALOGUE = CatalogueView(
    policy_version="p1",
    sandbox="fake",
    commands=(
        command("system:disk_usage", safe=True, retryable=True),
        command("fs:largest", safe=True),
        command("log:stats"),
        command("fs:cleanup", Effect.DESTROY),
    ),
)


def action(step="look", name="system:disk_usage", path="/var", needs=()):
    return Action(step=step, command=name, args={"path": path}, intent=f"{step} it", needs=needs)


def acts(*actions):
    thought = f"next {[(action.command, action.args) for action in actions]}"
    return Decision(thought=thought, actions=actions)


def finish(report="it is full of logs", cause="logs"):
    return Decision(thought="done", finish=Finish(cause=cause, report=report))


IMPACT = Impact(files=37, size_bytes=14_200_000, root="/var", text="37 files under /var, 14.2 MB")
GAIN = Gain(files_removed=37, files_skipped=0, size_bytes=14_200_000, freed_bytes=14_200_000)


def result(request, status=ResultStatus.SUCCEEDED, **more):
    stages = (
        StageTiming(name=Stage.PREPARE, round=0, ms=1, budget_ms=30_000, outcome=StageOutcome.OK),
        StageTiming(name=Stage.EXECUTE, round=0, ms=2, budget_ms=10_000, outcome=StageOutcome.OK),
    )
    fields = {"summary": f"{request.command} said so", "stages": stages, **more}
    return CommandResult(
        request_id=request.request_id,
        task_id=request.task_id,
        command=request.command,
        status=status,
        **fields,
    )


class Planner:
    """Plans by a function of the situation; remembers what it was asked."""

    def __init__(self, think, name="thinker", kind=PlannerKind.RUNBOOK):
        self.name = name
        self.kind = kind
        self._think = think
        self.asked = []

    async def decide(self, situation):
        self.asked.append(situation)
        found = self._think(situation)
        if inspect.isawaitable(found):
            found = await found
        if isinstance(found, Exception):
            raise found
        return found


def in_rounds(*decisions, name="thinker"):
    """A stateless planner: its decision is that of the round."""
    return Planner(lambda situation: decisions[situation.round - 1], name)


def late(text="too slow"):
    return PlannerUnavailable(Unavailability.LATE, text)


class World:
    """What the hands act on. It outlives the pipeline, as the executor outlives the agent."""

    def __init__(self):
        self.answers = {}
        self.executed = Counter()
        self.results = {}
        self.asked = []
        self.cancelled = []
        self.gates = {}
        self.at_work = 0
        self.most_at_work = 0
        self.anchor = "7:" + "a" * 64
        self.known = CATALOGUE

    def hold(self, name):
        """Let the command stop before its end until the returned event is set."""
        self.gates[name] = asyncio.Event()
        return self.gates[name]

    async def catalogue(self, patience_seconds=0.0, fresh_seconds=0.0):
        return self.known

    async def run(self, request, on_progress, *, changing=False, sent_before=False):
        self.asked.append((request, changing, sent_before))
        if request.request_id in self.results:
            return self.results[request.request_id]
        self.at_work += 1
        self.most_at_work = max(self.most_at_work, self.at_work)
        try:
            if changing:
                await on_progress(
                    Progress(
                        request_id=request.request_id,
                        stage=Stage.CONFIRM,
                        budget_ms=60_000,
                        operation_id=f"op-{request.request_id}",
                        impact=IMPACT,
                    )
                )
            await asyncio.sleep(0)
            if request.command in self.gates:
                await self.gates[request.command].wait()
            if request.request_id in self.cancelled:
                return result(request, ResultStatus.CANCELLED, reason="withdrawn")
            await on_progress(Progress(request_id=request.request_id, stage=Stage.EXECUTE, budget_ms=10_000))
            answer = self.answers.get(request.command, result)(request)
            if inspect.isawaitable(answer):
                answer = await answer
            self.executed[request.request_id] += 1
            self.results[request.request_id] = answer
            return answer
        finally:
            self.at_work -= 1

    async def cancel(self, request_id):
        self.cancelled.append(request_id)
        for gate in self.gates.values():
            gate.set()
        return True


class LateLog:
    """An audit log that says it has synced a record only a while after it has: for who must wait for that."""

    def __init__(self, log, seconds):
        self._log = log
        self._seconds = seconds
        self.said = []

    def append(self, kind, task_id="", **fields):
        late = Future()
        late.set_running_or_notify_cancel()
        synced = self._log.append(kind, task_id, **fields)

        def say():
            self.said.append(kind)
            late.set_result(synced.result())

        threading.Timer(self._seconds, say).start()
        return late

    @property
    def head(self):
        return self._log.head


@dataclass
class House:
    """One life of the pipeline."""

    kit: Kit
    inbox: Inbox
    dispatcher: Dispatcher
    runner: Runner
    world: World
    folder: object
    numbers: count = field(default_factory=lambda: count(1))

    async def reading(self, value, path="/var"):
        event = Event(
            id=f"r{next(self.numbers)}",
            source="host",
            type="host.filesystem",
            time=datetime.now(UTC),
            subject=path,
            labels={"host": "h", "path": path},
            status=EventStatus.READING,
            value=value,
            unit="percent",
        )
        await self.inbox.accept([event])
        return event

    async def runs(self):
        return await self.kit.store.read(list_runs)

    async def incidents(self):
        return await self.kit.store.read(lambda c: list_incidents(c, include_resolved=True))

    async def until(self, condition, seconds=20.0):
        async with asyncio.timeout(seconds):
            while not (found := await condition()):
                await asyncio.sleep(0.005)
        return found

    async def ended(self, number=1, seconds=20.0):
        """Wait until so many runs have ended; return the newest first."""

        async def look():
            runs = await self.runs()
            done = [run for run in runs if run.status is RunStatus.ENDED]
            return done if len(done) >= number else None

        return await self.until(look, seconds)

    async def started(self):
        async def look():
            runs = await self.runs()
            return runs[0] if runs else None

        return await self.until(look)

    async def waiting(self):
        async def look():
            return next((run for run in await self.runs() if run.status is RunStatus.WAITING), None)

        return await self.until(look)

    async def find(self, task_id):
        return await self.kit.store.read(lambda c: find_run(c, task_id))

    def records(self, kind=""):
        found = list(read_records(self.folder / "audit"))
        return [record for record in found if kind in ("", record["kind"])]


def disk_rule(**changes):
    return Rule.model_validate(
        {
            "name": "disk-full",
            "match": ["type=host.filesystem"],
            "title": "Disk {path} is {value:.0f} % full",
            "group_by": ["host", "path"],
            "threshold": {"op": ">", "value": 80.0},
            "clear": {"op": "<", "value": 75.0},
            "run": {"goal": "Find what fills {path}"},
            **changes,
        }
    )


@pytest.fixture
def world():
    return World()


@pytest.fixture
def open_house(tmp_path, world):
    """Open a life of the pipeline over tmp_path: ``async with open_house(planner, ...) as house``."""

    @asynccontextmanager
    async def open_it(
        *planners,
        rules=None,
        stages=None,
        limits=None,
        now=None,
        serve=True,
        hands=None,
        late=0.0,
        timed=None,
    ):
        config = Config(
            digest="test",
            stages=StageBudgets(**(stages or {})),
            limits=Limits(**(limits or {})),
            agent=AgentSettings(state_dir=str(tmp_path)),
            model=ModelSettings(),
            sources=(),
            rules=tuple(rules if rules is not None else [disk_rule()]),
            runbooks={},
            **(timed or {}),
        )
        clock = now or (lambda: datetime.now(UTC))
        store = open_store(tmp_path / "state.sqlite3")
        audit = open_log(tmp_path / "audit", clock)
        metrics = Metrics()
        told = LateLog(audit, late) if late else audit
        kit = Kit(
            store=store,
            audit=told,
            metrics=metrics,
            hands=hands or world,
            planners=lambda run, config, hear: planners,
            followers=Followers(),
            resolutions=Resolutions(),
            config=lambda: config,
            now=clock,
        )
        runner = Runner(kit)
        inbox = Inbox(store, metrics, limit=config.limits.inbox_events, receive_ms=2000, now=clock)
        dispatcher = Dispatcher(
            store,
            told,
            metrics,
            inbox,
            runner,
            kit.resolutions,
            bulletin=kit.bulletin,
            config=lambda: config,
            now=clock,
        )
        await inbox.open()
        tasks = []
        if serve:
            tasks = [asyncio.create_task(runner.run()), asyncio.create_task(dispatcher.run())]
        try:
            yield House(kit, inbox, dispatcher, runner, world, tmp_path)
        finally:
            for task in tasks:
                task.cancel()
            endings = await asyncio.gather(*tasks, return_exceptions=True)
            await asyncio.to_thread(store.close)
            await asyncio.to_thread(audit.close)
            assert all(isinstance(end, asyncio.CancelledError) for end in endings), endings
            assert verify(tmp_path / "audit").ok

    return open_it


@pytest.fixture
def parts():
    """The makers of test values, for test modules that cannot import this file."""
    return PARTS


class PARTS:
    action = staticmethod(action)
    acts = staticmethod(acts)
    finish = staticmethod(finish)
    result = staticmethod(result)
    in_rounds = staticmethod(in_rounds)
    late = staticmethod(late)
    disk_rule = staticmethod(disk_rule)
    command = staticmethod(command)
    Planner = Planner
    GAIN = GAIN
    IMPACT = IMPACT
    CATALOGUE = CATALOGUE
    minute = timedelta(minutes=1)
