"""Files of tools.d/ in real containers: what they register is read there, and called there."""

import hashlib
import json
import os
import shutil
import sys
from pathlib import Path

import pytest

from hermesd.control import host
from hermesd.control.binding import bind
from hermesd.control.sandbox.bubblewrap import Bubblewrap
from hermesd.control.settings import load_policy
from hermesd.control.toolbox import Toolbox
from hermesd.control.toolfiles import ToolFile
from hermesd.protocol import CommandRequest, Effect

pytestmark = pytest.mark.slow
RUN_AS = (64801, 64801) if os.geteuid() == 0 else None

GOOD = '''\
from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import Annotated, Literal

from hermesd_tools import Argument, ToolError, register_tool

with contextlib.suppress(OSError):
    open("/tmp/hermesd-was-imported", "w").close()


@register_tool(name="shop:count", permission="public", timeout_ms=3000, scenes=["service"], retryable=True,
               concurrency_safe=True, output={"parser": "json_lines", "summary": "{orders} wait"})
def count(
    path: Annotated[Path, Argument("The spool folder", roots=["/tmp"])],
    kind: Annotated[Literal["new", "old"], Argument("Which", values={"new": "here", "old": "sent"})] = "new",
    least: Annotated[int, Argument("Only larger ones", unit="bytes", minimum=0, maximum=1000)] = 3,
    share: Annotated[float, Argument("A share")] = 0.5,
    deep: Annotated[bool, Argument("Go down")] = False,
    within: Annotated[int, Argument("How new", type="duration")] = "15m",
) -> dict[str, object]:
    """Counts what waits in a spool folder. Returns a row. Use it when a queue grows. Example: path=/tmp/x"""
    names = sorted(os.listdir(path))
    return {"orders": len(names), "names": names, "kind": kind, "least": least, "share": share, "deep": deep,
            "within": within}


@register_tool(name="shop:do", description="Does what its word says, for the tests of tools.",
               permission="public", timeout_ms=1000, output={"max_bytes": 65536},
               args={"word": {"type": "string", "description": "What"}})
def do(word):
    if word == "print":
        for _ in range(100):
            print("x" * 1_000_000)
    if word == "loop":
        while True:
            pass
    if word == "raise":
        raise KeyError("no order")
    if word == "sorry":
        raise ToolError("the queue is being rebuilt")
    if word == "memory":
        return str(len(bytearray(1 << 30)))
    if word == "network":
        import socket
        try:
            socket.create_connection(("127.0.0.1", 80), 1)
        except OSError as error:
            return f"refused: {error.strerror}"
    if word == "environment":
        return json.dumps(sorted(os.environ))
    if word == "see":
        places = [place for place in ("/etc/hermesd", "/home", "/root", "/var") if os.path.exists(place)]
        return json.dumps([os.getpid() != 1, os.getuid() != 0, [os.listdir(place) for place in places]])
    if word == "write":
        open("/usr/x", "w")
    if word == "rows":
        return [{"a": 1}, {"a": "订单"}]
'''


def tool_file(source, name="shop"):
    data = source.encode()
    return ToolFile(
        Path(f"/etc/hermesd/conf.d/tools.d/{name}.py"), data, (1, 2, 3, 4), hashlib.sha256(data).hexdigest()
    )


@pytest.fixture
def policy(tmp_path):
    (tmp_path / "permissions.toml").write_text(
        '[reach]\nreadable_roots = ["/tmp"]\nwritable_roots = ["/tmp"]\n'
    )
    empty = load_policy([tmp_path])

    def of(*files):
        from dataclasses import replace

        return replace(empty, tool_files=files, unread=files)

    return of


@pytest.fixture
def read(sandbox, policy):
    async def run(*sources):
        files = [tool_file(source, f"shop{number or ''}") for number, source in enumerate(sources)]
        return await Toolbox().complete(policy(*files), sandbox)

    return run


@pytest.fixture
def call(sandbox, read, root):
    async def run(command, **args):
        done = await read(GOOD.replace('/tmp"]', f'{root}"]'))
        assert done.faults == ()
        request = CommandRequest(request_id="r", task_id="t", intent="a test", command=command, args=args)
        bound = bind(done.policy, request, host)
        container = await sandbox.start(bound.profile)
        try:
            await container.resolve(bound.job)
            return await container.run()
        finally:
            await container.destroy()

    return run


async def test_what_a_file_registers_is_read_in_a_container_and_becomes_commands(read):
    done = await read(GOOD)

    assert done.faults == ()
    assert done.policy.unread == ()
    assert sorted(done.policy.commands) == ["shop:count", "shop:do"]
    info = done.policy.commands["shop:count"].info()
    assert (info.effect, info.timeout_ms, info.concurrency_safe, info.retryable) == (
        Effect.READ,
        3000,
        True,
        True,
    )
    schema = info.args_schema
    assert schema["required"] == ["path"]
    assert schema["properties"]["kind"]["enum"] == ["new", "old"]
    assert (schema["properties"]["least"]["minimum"], schema["properties"]["least"]["default"]) == (0, 3)
    assert info.description.startswith("Counts what waits")


async def test_reading_and_calling_happen_in_the_container_alone(call, place):
    await call("shop:do", word="rows")

    assert not Path("/tmp/hermesd-was-imported").exists()
    assert not any(name in sys.modules for name in ("hermesd_tools", "shop", "tools_d.shop"))


async def test_a_call_gets_values_of_its_types_and_a_folder_by_descriptor(call, root):
    (root / "a").write_text("x")
    ended = await call("shop:count", path=str(root), least=7, share=0.25, deep=True, within="2h", kind="old")

    assert ended.exit_status == 0, ended.stderr
    assert json.loads(ended.stdout) == {
        "orders": 1, "names": ["a"], "kind": "old", "least": 7, "share": 0.25, "deep": True, "within": 7200
    }  # fmt: skip


@pytest.mark.parametrize(
    ("word", "status", "words"),
    [
        ("raise", 1, "KeyError: 'no order' (tools.d/shop.py line "),
        ("sorry", 1, "the queue is being rebuilt\n"),
        ("memory", 1, "needs more memory"),
        ("write", 1, "Read-only file system"),
    ],
)
async def test_a_tool_that_fails_ends_with_one_line_that_says_why(call, word, status, words):
    ended = await call("shop:do", word=word)

    assert (ended.exit_status, ended.stdout) == (status, b"")
    assert words in ended.stderr.decode()
    assert ended.stderr.count(b"\n") == 1


async def test_a_tool_that_prints_without_end_is_cut_and_ended(call):
    ended = await call("shop:do", word="print")

    assert ended.truncated
    assert len(ended.stdout) + len(ended.stderr) <= 65536


async def test_a_tool_that_loops_is_gone_at_its_deadline(call):
    ended = await call("shop:do", word="loop")

    assert ended.timed_out
    assert ended.ms < 3000


async def test_a_tool_has_no_network_no_environment_and_nothing_of_the_host(call):
    network = await call("shop:do", word="network")
    assert b"refused: " in network.stdout or b"not permitted" in network.stderr
    names = (await call("shop:do", word="environment")).stdout.decode()
    assert not {"HERMES", "TOKEN", "KEY", "SECRET", "USER"} & set(names.replace('"', " ").split())
    seen = (await call("shop:do", word="see")).stdout.decode()
    assert seen.startswith("[true, true, [")
    assert seen.replace("[]", "").strip(" ,[]\n") == "true, true"


HEAD = "from typing import Annotated, Literal\nfrom hermesd_tools import Argument, register_tool\n"
TOOL = """\
@register_tool(name="{name}", description="A tool for the tests of tools.", {more})
def f({given}):
    pass
"""


def tool(name="shop:x", more="", given=""):
    return HEAD + TOOL.format(name=name, more=more, given=given)


@pytest.mark.parametrize(
    ("source", "line", "words"),
    [
        (tool(more='permission="public", effect="change"'), 3, "never public"),
        (tool(more='effect="destroy"'), 3, "names what previews it"),
        (tool(name="shop:\u0445"), 3, "name: "),
        (tool(name="Shop"), 3, "name: "),
        (tool(given="x"), 3, "x has no type hint"),
        (tool(given="x: bytes"), 3, "x: bytes is no hint of a tool"),
        (tool(given="x: Nothing"), 4, "name 'Nothing' is not defined"),
        (tool(given="x: list[str]"), 3, "a list is of Literal values"),
        (tool(given="x: Literal[1, 2]"), 3, "the values of a Literal are text"),
        (tool(given="x: int"), 4, "args.x.description"),
        (tool(given='\n  x: Annotated[str, Argument("A", type="path")]'), 5, "a path needs `roots`"),
        (tool(given='\n  x: Annotated[str, Argument("A", type="path", roots=["/run"])]'), 5, "never given"),
        (tool(given='x: Annotated[int, Argument("A", maximum=3)] = 7'), 4, "must be at most 3"),
        (tool(given='x: Annotated[int, Argument("A")] = None'), 3, "None is no value"),
        (tool(given='x: Annotated[int, Argument("A", type="path")]'), 3, "int cannot be of the type 'path'"),
        (tool(given='x: Annotated[str, Argument("A", pattern="(a+)+")]'), 4, "repeat inside a repeat"),
        (tool(given='x: Annotated[str, Argument("A", shell=True)]'), 4, "no such setting"),
        (tool(more='executable="/usr/bin/id"'), 3, "executable: there is no such setting"),
        (tool(more='sandbox={"network": "host"}'), 3, "network"),
        (tool(more='sandbox={"mounts": ["/root"]}'), 3, "never given"),
        (tool(more='output={"parser": "manifest"}'), 3, "has an argument `path`"),
        (tool(more='undo="fs:restore"'), 3, "undo: there is no such setting"),
        (tool(more='fallback="shop:none"'), 3, "there is no command shop:none"),
        (tool(more="timeout_ms=print"), 3, "no plain data"),
        (tool() + tool(), 8, "registered twice"),
        (HEAD, 0, "registers no tool"),
        (HEAD + "1 / 0\n", 3, "ZeroDivisionError"),
        (HEAD + "import sys\nsys.exit(0)\n", 4, "it ended itself"),
        (HEAD + "import os\nos._exit(0)\n", 0, "ended before it was read"),
        (HEAD + "for _ in range(100):\n    print('x' * 1_000_000)\n", 0, "wrote more than it may"),
        (HEAD + "bytearray(1 << 30)\n", 3, "more memory"),
        (HEAD + "import requests_of_nobody\n", 3, "No module named"),
        (tool(more='schema={"type": "object", "properties": {"x": {"oneOf": []}}}', given="x"), 3, "oneOf"),
        (tool(more='args={"y": {}}', given="x"), 3, "not the parameters"),
        (tool(given="*x"), 3, "each have a name"),
        (tool().replace("def f", "async def f"), 3, "is async"),
        (
            tool(more='args={"p\u0430th": {"type": "string", "description": "A"}}', given="p\u0430th"),
            3,
            "argument",
        ),
    ],
)
async def test_a_file_that_does_not_register_is_told_with_its_line_and_takes_no_other_down(
    policy, needs, source, line, words
):
    needs(shutil.which("bwrap"), "bwrap")
    files = (tool_file(source), tool_file(tool(name="shop:other"), "shop1"))
    sandbox = Bubblewrap(run_as=RUN_AS)  # what a file says is the same in every sandbox
    done = await Toolbox().complete(policy(*files), sandbox)
    await sandbox.close()

    assert list(done.policy.commands) == ["shop:other"]
    assert any(words in fault.reason for fault in done.faults), done.faults
    assert done.faults[0].file.name == "shop.py"
    assert next(fault.line for fault in done.faults if words in fault.reason) == line


async def test_a_file_that_loops_while_it_is_read_is_a_fault_in_a_bounded_time(read):
    done = await read(HEAD + "while True:\n    pass\n")

    assert [fault.reason for fault in done.faults] == ["it took longer than 5 s to register what it has"]


async def test_a_given_json_schema_becomes_the_same_arguments(read):
    schema = {
        "type": "object",
        "required": ["word"],
        "additionalProperties": False,
        "properties": {
            "word": {"type": "string", "description": "A word", "pattern": "^[a-z]+$", "maxLength": 9},
            "many": {"type": "integer", "description": "How many", "minimum": 1, "maximum": 5, "default": 2},
            "kind": {"type": "string", "description": "Which", "enum": ["a", "b"], "default": "a"},
            "since": {
                "type": "string",
                "format": "date-time",
                "description": "From when",
                "default": "2026-11-30T00:00:00Z",
            },
        },
    }
    done = await read(tool(more=f"schema={schema!r}", given="word, many, kind, since"))

    assert done.faults == ()
    found = done.policy.commands["shop:x"].info().args_schema
    assert found["required"] == ["word"]
    assert found["properties"]["word"]["pattern"] == "^(?:[a-z]+)$"
    assert found["properties"]["many"]["maximum"] == 5
    assert found["properties"]["kind"]["enum"] == ["a", "b"]
    assert found["properties"]["since"]["format"] == "date-time"
