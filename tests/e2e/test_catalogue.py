"""The shipped catalogue through the real executor, each look in a real container."""

import contextlib
import os

import pytest

from hermesd.ipc.client import ask
from hermesd.ipc.messages import Kind, read_line, request_line

pytestmark = pytest.mark.slow

SHOW = """\
name        = "test:show"
description = "Shows a whole file of the test's own folder, for the tests."
effect      = "read"
permission  = "public"
tool        = "read_lines"
argv        = ["{path}", "1", "200"]

[args.path]
type        = "path"
description = "The file"
roots       = ["/tmp"]
"""
HERE = {"path", "digest", "unit", "pid"}


async def run(pair, command, number, **args):
    """Send a request as the agent's uid would; return the result's payload."""
    payload = {
        "request_id": f"r{number}",
        "task_id": "t1",
        "intent": "a test",
        "command": command,
        "args": args,
    }
    line = request_line(Kind.COMMAND_REQUEST, payload, sender="agent", receiver="executor", task_id="t1")
    account = pair.players.agent
    if account is not None:
        os.seteuid(account.uid)
    try:
        answers = ask(pair.folder / "executor" / "agent.sock", line)
        first = await anext(answers)
    finally:
        if account is not None:
            os.seteuid(0)
    async with contextlib.aclosing(answers):
        envelope = read_line(first)
        while envelope["status"] not in ("succeeded", "failed"):
            envelope = read_line(await anext(answers))
    return envelope["payload"]


async def test_every_look_that_this_host_has_the_parts_for_runs_in_its_container(pair):
    await pair.start("executor")
    commands = (await pair.executor("commands"))["commands"]
    asked = 0
    for number, info in enumerate(commands):
        schema = info["args_schema"]
        if info["effect"] != "read" or not info["usable"] or HERE & set(schema["required"]):
            continue
        args = {name: schema["properties"][name]["examples"][0] for name in schema["required"]}
        result = await run(pair, info["name"], number, **args)
        assert result["status"] == "succeeded", (info["name"], result["reason"])
        asked += 1
    assert asked >= 12


async def test_what_was_cut_is_read_on_and_a_secret_in_it_is_nowhere(pair):
    pair.write("commands/test-show.toml", SHOW)
    await pair.start("executor")
    log = pair.data / "app.log"
    log.write_text(
        "".join(f"line {number} {'x' * 400}\n" for number in range(190)) + "password=hunter2secret\n"
    )
    first = await run(pair, "test:show", 1, path=str(log))
    assert first["truncated"], first["reason"]
    mark = first["output"].splitlines()[-1]
    offset = int(mark.partition("offset=")[2].rstrip("]"))
    assert f"artifact:read digest={first['digest']}" in mark
    rest = await run(pair, "artifact:read", 2, digest=first["digest"], offset=offset)
    assert rest["status"] == "succeeded", rest["reason"]
    assert rest["output"].endswith("password=[redacted]")
    shelf = pair.folder / "executor" / "state" / "artifacts"
    assert not any(b"hunter2secret" in path.read_bytes() for path in shelf.iterdir())
    nothing = await run(pair, "artifact:read", 3, digest="0" * 64)
    assert nothing["status"] == "refused"


async def test_what_only_a_person_may_do_becomes_a_ticket_with_the_words_to_run(pair):
    await pair.start("executor")
    result = await run(pair, "unit:restart", 1, unit="nginx.service")
    assert result["status"] == "ticketed"
    assert "sudo systemctl restart -- nginx.service" in result["impact"]["text"]
