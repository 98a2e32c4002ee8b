"""What the benches share: a row, a percentile, and the two real processes in a folder of their own."""

from __future__ import annotations

import math
import os
import shutil
import socket
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import psutil

from hermesd.demo.stage import Cast, Theatre, cast, readable_program, shipped_for
from hermesd.launcher import Child, Program, child


def row(name: str, value: float, unit: str, goal: float) -> dict:
    """Return a figure that is met when it is at most its goal."""
    return {"name": name, "value": round(value, 3), "unit": unit, "goal": goal, "ok": value <= goal}


def percentile(values: list[float], share: float) -> float:
    """Return the smallest value that at least ``share`` of all do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def memory_mb(pid: int) -> float:
    """Return a process's resident memory."""
    return psutil.Process(pid).memory_info().rss / 1e6


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Ground:
    """A folder with everything that both processes need, over the shipped configuration."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.players: Cast = cast()
        self.program: Program = readable_program(folder, self.players.agent)
        for name, account in (("agent", self.players.agent), ("executor", self.players.executor)):
            (folder / name).mkdir()
            if account is not None:
                os.chown(folder / name, account.uid, account.gid)
        self.write("daemon.toml.d/bench.toml", self._places())
        self.write("permissions.toml.d/bench.toml", f"[people]\noperator_uids = [{os.geteuid()}]\n")
        self.write("sources/host.toml.d/bench.toml", "enabled = false\n")

    def _places(self) -> str:
        agent, executor = self.folder / "agent", self.folder / "executor"
        agent_user = self.players.agent.uid if self.players.agent else os.geteuid()
        return (
            f'[agent]\nstate_dir = "{agent}/state"\ncontrol_socket = "{agent}/control.sock"\n'
            f'executor_socket = "{executor}/agent.sock"\noperator_uids = [{os.geteuid()}]\n'
            f'[executor]\nstate_dir = "{executor}/state"\nagent_socket = "{executor}/agent.sock"\n'
            f'operator_socket = "{executor}/operator.sock"\nagent_user = "{agent_user}"\n'
            f'same_user = {str(self.players.agent is None).lower()}\nsandbox = "bubblewrap"\n'
        )

    def write(self, name: str, text: str) -> None:
        """Write a file of the upper configuration layer."""
        path = self.folder / "conf.d" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    @asynccontextmanager
    async def process(self, name: str) -> AsyncIterator[Child]:
        """Start `agent` or `executor`; entering ends when it says READY."""
        layers = ["--conf", str(shipped_for(self.program)), "--conf", str(self.folder / "conf.d")]
        async with child(
            name,
            [*layers, "run" if name == "agent" else name],
            program=self.program,
            account=getattr(self.players, name),
            log_path=self.folder / f"{name}.log",
        ) as started:
            yield started

    def theatre(self, executor: Child, agent: Child) -> Theatre:
        """Return the way to ask both."""
        return Theatre(self.folder, self.program, self.players, executor, agent)


@contextmanager
def ground() -> Iterator[Ground]:
    """Lay a ground, and remove it with everything on it."""
    folder = Path(tempfile.mkdtemp(prefix="hermesd-bench-"))
    folder.chmod(0o755)
    try:
        yield Ground(folder)
    finally:
        shutil.rmtree(folder)
