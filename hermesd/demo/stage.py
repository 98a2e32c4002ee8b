"""Where the demo plays: a temporary folder, configuration laid over the shipped one, two real processes.

Everything is what an installation would have, in small: three users where the demo is root (agent,
executor, operator), one elsewhere; state, sockets and logs beneath one folder that is removed at the
end. It must never use a path outside that folder, except to read the program itself.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import hermesd
from hermesd.confd import shipped
from hermesd.demo.world import DISK_BYTES, World
from hermesd.ipc.client import Unreachable, ask
from hermesd.ipc.messages import read_line, request_line
from hermesd.launcher import Account, Child, Program, child
from hermesd.sources.settings_host import HostSettings, Level

_SYSTEM_PYTHON: Final = "/usr/bin/python3"
_LOOK_SECONDS: Final = 10


@dataclass(frozen=True, slots=True)
class Cast:
    """Who plays whom. All None when the demo is not root: then everybody is the one user."""

    agent: Account | None
    executor: Account | None
    operator: Account | None


def cast() -> Cast:
    """Return three users of their own for root: numbers that no account of the host uses."""
    if os.geteuid() != 0:
        return Cast(None, None, None)
    agent, executor, operator = (Account(64801 + number, 64801 + number) for number in range(3))
    return Cast(agent, executor, operator)


class AskError(Exception):
    """A request was answered with `failed`, or not at all."""


@dataclass(frozen=True, slots=True)
class Theatre:
    """The running pair: where its sockets are, and how to start more of the program."""

    folder: Path
    program: Program
    players: Cast
    executor: Child
    agent: Child

    @property
    def control_socket(self) -> Path:
        """The agent's socket."""
        return self.folder / "agent" / "control.sock"

    @property
    def operator_socket(self) -> Path:
        """The executor's socket for people."""
        return self.folder / "executor" / "operator.sock"

    async def ask_agent(self, kind: str, payload: Mapping[str, Any]) -> dict[str, Any]:
        """Ask the agent process."""
        return await _once(self.control_socket, kind, payload)

    async def ask_executor(self, kind: str, payload: Mapping[str, Any]) -> dict[str, Any]:
        """Ask the executor, as a person."""
        return await _once(self.operator_socket, kind, payload)

    async def follow(self, task_id: str) -> AsyncIterator[dict[str, Any]]:
        """Yield what a run tells its followers, until it ends."""
        line = request_line("follow", {"task_id": task_id}, sender="demo", receiver="hermesd")
        async for answer in ask(self.control_socket, line):
            envelope = read_line(answer)
            yield envelope["payload"]
            if envelope["status"] in ("succeeded", "failed"):
                return

    def hermesctl(self, *arguments: str) -> tuple[list[str], dict[str, str]]:
        """Return how an operator would start hermesctl here: argv and environment."""
        interpreter = self.program.argv[0]
        environ = {
            **self.program.environ,
            "PATH": "/usr/bin:/bin",
            "TERM": "xterm",
            "LANG": os.environ.get("LANG", "C.UTF-8"),
            "HERMESD_CONTROL_SOCKET": str(self.control_socket),
            "HERMESD_OPERATOR_SOCKET": str(self.operator_socket),
        }
        return [interpreter, "-m", "hermesd.ctl", *arguments], environ


async def _once(path: Path, kind: str, payload: Mapping[str, Any]) -> dict[str, Any]:
    line = request_line(kind, dict(payload), sender="demo", receiver=path.stem)
    try:
        async for answer in ask(path, line):
            envelope = read_line(answer)
            if envelope["status"] == "succeeded":
                found: dict[str, Any] = envelope["payload"]
                return found
            if envelope["status"] == "failed":
                raise AskError(str(envelope["payload"].get("reason", "")))
    except Unreachable as error:
        raise AskError(str(error)) from None
    raise AskError(f"{path} closed without an answer")


@asynccontextmanager
async def theatre(folder: Path, world: World, players: Cast, language: str) -> AsyncIterator[Theatre]:
    """Start both processes over the shipped configuration and the demo's few lines."""
    program = await asyncio.to_thread(_set_up, folder, world, players, language)
    layers = ["--conf", str(shipped_for(program)), "--conf", str(folder / "conf.d")]
    async with AsyncExitStack() as stack:
        started = []
        for name, command, account in (
            ("executor", "executor", players.executor),
            ("agent", "run", players.agent),
        ):
            log_path = folder / f"{name}.log"
            part = child(name, [*layers, command], program=program, account=account, log_path=log_path)
            started.append(await stack.enter_async_context(part))
        yield Theatre(folder, program, players, *started)


def _set_up(folder: Path, world: World, players: Cast, language: str) -> Program:
    """Make the folders and the configuration; return how the program is started from there."""
    folder.chmod(0o755)
    for name, account in (("agent", players.agent), ("executor", players.executor)):
        (folder / name).mkdir(mode=0o755)
        if account is not None:
            os.chown(folder / name, account.uid, account.gid)
    _lay_over(folder / "conf.d", folder, world, players, language)
    return readable_program(folder, players.agent)


def _lay_over(overlay: Path, folder: Path, world: World, players: Cast, language: str) -> None:
    """Write the demo's configuration: where things are, whom to ask, and how often to look."""
    mine = str(os.geteuid())
    people = [players.operator.uid] if players.operator else [os.geteuid()]
    files = {
        "daemon.toml.d/demo.toml": {
            "agent": {
                "state_dir": str(folder / "agent" / "state"),
                "control_socket": str(folder / "agent" / "control.sock"),
                "executor_socket": str(folder / "executor" / "agent.sock"),
                "operator_uids": people,
                "language": language,
            },
            "executor": {
                "state_dir": str(folder / "executor" / "state"),
                "agent_socket": str(folder / "executor" / "agent.sock"),
                "operator_socket": str(folder / "executor" / "operator.sock"),
                "agent_user": str(players.agent.uid) if players.agent else mine,
                "same_user": players.agent is None,
                "sandbox": "bubblewrap",
                "language": language,
            },
        },
        "permissions.toml.d/demo.toml": {
            "reach": {"readable_roots": [str(world.root)], "writable_roots": [str(world.root)]},
            "people": {"operator_uids": people},
        },
        "sources/host.toml.d/demo.toml": watching(world),
        "sources/units.toml.d/demo.toml": {"enabled": False},
    }
    for name, tables in files.items():
        path = overlay / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(_toml(tables)) + "\n", encoding="utf-8")


def watching(world: World) -> dict[str, Any]:
    """Return the host source's settings: this disk alone, looked at twice a second."""
    off = {"enabled": False}
    others = [name for name, field in HostSettings.model_fields.items() if field.annotation is Level]
    often: dict[str, Any] = {"interval_s": 0.5, **dict.fromkeys(others, off)}
    if world.mounted:
        return {**often, "filesystems": {"only": [str(world.root)]}}
    budget = [{"path": str(world.root), "budget_bytes": DISK_BYTES}]
    return {**often, "folder": budget, "filesystems": off}


def _toml(tables: Mapping[str, Any], prefix: str = "") -> list[str]:
    """Write plain tables as TOML; JSON's strings, numbers and lists are TOML's too."""
    lines = [f"{key} = {_value(value)}" for key, value in tables.items() if not isinstance(value, dict)]
    for key, value in tables.items():
        if isinstance(value, dict):
            lines += [f"[{prefix}{key}]", *_toml(value, f"{prefix}{key}.")]
    return lines


def _value(value: Any) -> str:
    if isinstance(value, list) and value and isinstance(value[0], dict):
        inner = (", ".join(f"{key} = {_value(item)}" for key, item in entry.items()) for entry in value)
        return "[" + ", ".join(f"{{ {entry} }}" for entry in inner) + "]"
    return json.dumps(value)


def readable_program(folder: Path, reader: Account | None) -> Program:
    """Return how another user starts the program; None is the present one.

    A checkout in a folder that only root may enter cannot be read by others. Then they get a copy
    in ``folder``, as a package would put one into /usr/lib.
    """
    package = Path(hermesd.__file__).parent
    if reader is None or _can_read(
        reader, package / "cli.py", shipped() / "daemon.toml", Path(sys.executable)
    ):
        return Program(environ={name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ})
    copy = folder / "program"
    site = Path(sysconfig.get_path("purelib"))
    shutil.copytree(site, copy, ignore=shutil.ignore_patterns("__pycache__", "pip", "pip-*"))
    shutil.copytree(
        package, copy / "hermesd", ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True
    )
    shutil.copytree(shipped(), copy / "hermesd" / "conf.d", dirs_exist_ok=True)
    environ = {"PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
    return Program((_SYSTEM_PYTHON, "-m", "hermesd"), environ)


def shipped_for(program: Program) -> Path:
    """Return the folder of the shipped defaults that whoever starts ``program`` can read."""
    copied = Path(program.environ.get("PYTHONPATH", ""), "hermesd", "conf.d")
    return copied if copied.is_absolute() and copied.is_dir() else shipped()


def _can_read(account: Account, *paths: Path) -> bool:
    return all(
        subprocess.run(
            ["/usr/bin/test", "-r", str(path)],
            check=False,
            user=account.uid,
            group=account.gid,
            extra_groups=[],
            timeout=_LOOK_SECONDS,
        ).returncode
        == 0
        for path in paths
    )
