"""Hand-written stand-ins for the executor's tests: a sandbox that plays, and a gate around it."""

import asyncio
import contextlib
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from hermesd.audit import open_log
from hermesd.control.gate import Gate
from hermesd.control.host import look
from hermesd.control.ledger import Ledger
from hermesd.control.sandbox.base import Ended, Job, Profile, Resolved, SelfTest
from hermesd.control.settings import load_policy
from hermesd.protocol import CommandRequest
from hermesd.telemetry import Metrics

SHIPPED = Path(__file__).parents[3] / "conf.d"


@dataclass
class PlayedContainer:
    """Resolves what is really there, and ends as the sandbox was told."""

    sandbox: "PlayedSandbox"
    profile: Profile
    job: Job | None = None
    destroyed: bool = False

    async def resolve(self, job: Job) -> tuple[Resolved, ...]:
        self.job = job
        if self.sandbox.on_resolve:
            self.sandbox.on_resolve(job)
        return tuple(self.sandbox.pretend or look(use) or Resolved(0, 0, 0) for use in job.paths)

    async def run(self) -> Ended:
        self.sandbox.ran.append((self.job.tool or self.job.argv[0].decode(), self.job))
        if self.sandbox.hold is not None:
            await self.sandbox.hold.wait()
        return self.sandbox.answers.get(self.job.tool or self.job.argv[0].decode(), Ended(0, b"", b"", 1.0))

    async def destroy(self) -> None:
        self.destroyed = True


@dataclass
class PlayedSandbox:
    """A sandbox that starts nothing: it records what it was asked, and answers as told."""

    name: str = "played"
    answers: dict[str, Ended] = field(default_factory=dict)
    ran: list[tuple[str, Job]] = field(default_factory=list)
    started: list[PlayedContainer] = field(default_factory=list)
    pretend: Resolved | None = None
    on_resolve: object = None
    hold: asyncio.Event | None = None

    async def self_test(self) -> SelfTest:
        return SelfTest(usable=True)

    async def start(self, profile: Profile) -> PlayedContainer:
        container = PlayedContainer(self, profile)
        self.started.append(container)
        return container

    async def reap(self) -> int:
        return 0

    async def ended(self) -> None:
        await asyncio.Event().wait()

    async def close(self) -> None:
        return None


class Clock:
    """Wall time that moves when it is told to."""

    def __init__(self) -> None:
        self.now = datetime(2026, 11, 30, 3, 0, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now

    def forward(self, **delta: float) -> None:
        self.now += timedelta(**delta)


@dataclass
class House:
    """A gate with its books in a folder, and the sandbox behind it."""

    folder: Path
    layers: list[Path]
    sandbox: PlayedSandbox
    clock: Clock
    data: Path

    @contextlib.asynccontextmanager
    async def open(self):
        audit = open_log(self.folder / "audit", self.clock)
        ledger = Ledger(self.folder / "ledger.sqlite3")
        self.in_doubt = await ledger.open(self.clock())
        try:
            async with asyncio.TaskGroup() as tasks:
                gate = Gate(load_policy(self.layers), ledger, audit, Metrics(), tasks, self.clock)
                gate.sandbox = self.sandbox
                await gate.reopen()
                try:
                    yield gate
                finally:
                    for task in asyncio.all_tasks():
                        if task.get_name().startswith("flight-"):
                            task.cancel()
        finally:
            await ledger.close()
            audit.close()

    def request(self, command: str, request_id: str = "t1.1.0.0", **args) -> CommandRequest:
        return CommandRequest(
            request_id=request_id, task_id="t1", intent="a test", command=command, args=args
        )

    def cleanup(self, request_id: str = "t1.1.0.0") -> CommandRequest:
        return self.request("fs:cleanup", request_id, path=str(self.data))


def manifest(*files: tuple[bytes, int]) -> bytes:
    """Return a manifest as the preview tool writes it: nine numbers and a path, NUL-ended."""
    lines = (b"1 %d %d 8 0 33188 1000 1000 1 %s\0" % (7 + n, *file[::-1]) for n, file in enumerate(files))
    return b"".join(lines)


@pytest.fixture
def house(tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    overlay = tmp_path / "conf.d"
    overlay.mkdir()
    (overlay / "permissions.toml").write_text(
        f'[reach]\nreadable_roots = ["/tmp", "/var"]\nwritable_roots = ["{data}"]\n'
        "[people]\noperator_uids = [4711]\n"
    )
    sandbox = PlayedSandbox()
    sandbox.answers["fs_targets"] = Ended(0, manifest((b"cache/a", 1000), (b"cache/b", 500)), b"", 1.0)
    sandbox.answers["fs_remove"] = Ended(
        0, b'{"files_removed": 2, "files_skipped": 0, "size_bytes": 1500, "freed_bytes": 8192}\n', b"", 1.0
    )
    return House(tmp_path / "state", [SHIPPED, overlay], sandbox, Clock(), data)
