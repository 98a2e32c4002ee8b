"""The two real processes, started as the launcher starts them, with everything beneath one folder."""

import asyncio
import contextlib
import os
import shutil
import signal
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from hermesd.demo.stage import AskError, Theatre, cast, shipped_for
from hermesd.ipc.client import ask
from hermesd.ipc.messages import Kind, read_line, request_line
from hermesd.launcher import Child, Program, child

WAIT_SECONDS = 20


class Pair:
    """An agent and an executor. Each can be started, stopped and killed by itself; state stays."""

    def __init__(self, folder: Path, program: Program) -> None:
        self.folder = folder
        self.players = cast()
        self.parts: dict[str, tuple[Child, AsyncExitStack]] = {}
        self.data = folder / "data"
        self.make(self.data, self.players.executor)
        for name, account in (("agent", self.players.agent), ("executor", self.players.executor)):
            self.make(folder / name, account)
        self.conf = folder / "conf.d"
        self.program = program
        self.write("daemon.toml.d/paths.toml", self.paths())
        self.write("permissions.toml.d/reach.toml", self.reach())
        for kind in ("host", "units"):
            self.write(f"sources/{kind}.toml", f'kind = "{kind}"\nenabled = false\n')

    def make(self, path: Path, account) -> None:
        path.mkdir(parents=True, exist_ok=True)
        if account is not None:
            os.chown(path, account.uid, account.gid)

    def paths(self) -> str:
        agent, executor = self.folder / "agent", self.folder / "executor"
        uid = self.players.agent.uid if self.players.agent else os.geteuid()
        return (
            f'[agent]\nstate_dir = "{agent}/state"\ncontrol_socket = "{agent}/control.sock"\n'
            f'executor_socket = "{executor}/agent.sock"\noperator_uids = [{self.operator_uid}]\n'
            f'[executor]\nstate_dir = "{executor}/state"\nagent_socket = "{executor}/agent.sock"\n'
            f'operator_socket = "{executor}/operator.sock"\nagent_user = "{uid}"\n'
            f'same_user = {str(self.players.agent is None).lower()}\nsandbox = "bubblewrap"\n'
        )

    def reach(self) -> str:
        return (
            f'[reach]\nreadable_roots = ["/tmp", "/var"]\nwritable_roots = ["{self.data}"]\n'
            f"[people]\noperator_uids = [{self.operator_uid}]\n"
        )

    @property
    def operator_uid(self) -> int:
        return self.players.operator.uid if self.players.operator else os.geteuid()

    def write(self, name: str, text: str) -> Path:
        path = self.conf / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    async def start(self, *names: str) -> None:
        layers = ["--conf", str(shipped_for(self.program)), "--conf", str(self.conf)]
        for name in names or ("executor", "agent"):
            stack = AsyncExitStack()
            part = await stack.enter_async_context(
                child(
                    name,
                    [*layers, "run" if name == "agent" else name],
                    program=self.program,
                    account=getattr(self.players, name),
                    log_path=self.folder / f"{name}.log",
                )
            )
            self.parts[name] = (part, stack)

    async def stop(self, *names: str) -> None:
        for name in names or ("agent", "executor"):
            if name in self.parts:
                _part, stack = self.parts.pop(name)
                await stack.aclose()

    async def kill(self, name: str) -> None:
        """kill -9, as the machine's worst day does it."""
        part, stack = self.parts.pop(name)
        os.kill(part.pid, signal.SIGKILL)
        await part.process.wait()
        await stack.aclose()

    def log(self, name: str) -> str:
        path = self.folder / f"{name}.log"
        return path.read_text() if path.exists() else ""

    @property
    def theatre(self) -> Theatre:
        return Theatre(self.folder, self.program, self.players, None, None)

    async def agent(self, kind: str, **payload):
        return await self.theatre.ask_agent(kind, payload)

    async def executor(self, kind: str, **payload):
        return await self.theatre.ask_executor(kind, payload)

    async def until(self, look, seconds: float = WAIT_SECONDS):
        """Return the first true answer of ``look``, a coroutine function."""
        said = ""
        try:
            async with asyncio.timeout(seconds):
                while True:
                    try:
                        if found := await look():
                            return found
                    except AskError as error:
                        said = str(error)
                    await asyncio.sleep(0.05)
        except TimeoutError:
            logs = "\n".join(self.log(name)[-2000:] for name in ("agent", "executor"))
            pytest.fail(f"not so within {seconds} s; {said}\n{logs}")

    async def ended_runs(self, count: int = 1):
        async def look():
            runs = (await self.agent("runs", limit=50))["runs"]
            return runs if len([run for run in runs if run["status"] == "ended"]) >= count else None

        return await self.until(look)

    async def pending(self):
        async def look():
            return (await self.executor("approvals"))["operations"]

        return (await self.until(look))[0]

    async def approve(self, operation_id: str):
        shown = await self.executor("approve.show", id=operation_id)
        return await self.executor(
            "approve.redeem", id=operation_id, token=shown["token"], second=shown["second_word"]
        )

    def rubbish(self, files: int = 5, size: int = 20_000) -> list[Path]:
        """Lay caches down beneath the data folder, owned by who would clean them."""
        cache = self.data / "cache"
        self.make(cache, self.players.executor)
        made = []
        for number in range(files):
            path = cache / f"{number:03d}.bin"
            path.write_bytes(os.urandom(size))
            if self.players.executor:
                os.chown(path, self.players.executor.uid, self.players.executor.gid)
            os.utime(path, (1e9, 1e9))
            made.append(path)
        return made


@pytest.fixture
async def pair(program):
    # Not tmp_path: other users must be able to reach it.
    folder = Path(tempfile.mkdtemp(prefix="hermesd-e2e-"))
    folder.chmod(0o755)
    made = Pair(folder, program)
    try:
        yield made
    finally:
        await made.stop()
        shutil.rmtree(folder)


async def ask_as_agent(pair, command: str, request_id: str, **args):
    """Send a request as the agent's uid would; return the result's payload."""
    payload = {
        "request_id": request_id,
        "task_id": "t1",
        "intent": "a test",
        "command": command,
        "args": args,
    }
    line = request_line(Kind.COMMAND_REQUEST, payload, sender="agent", receiver="executor", task_id="t1")
    path = pair.folder / "executor" / "agent.sock"
    account = pair.players.agent
    if account is not None:
        os.seteuid(account.uid)
    try:
        answers = ask(path, line)
        first = await anext(answers)
    finally:
        if account is not None:
            os.seteuid(0)
    async with contextlib.aclosing(answers):
        envelope = read_line(first)
        while envelope["status"] not in ("succeeded", "failed"):
            envelope = read_line(await anext(answers))
    return envelope["payload"]


@pytest.fixture
def as_agent():
    return ask_as_agent
