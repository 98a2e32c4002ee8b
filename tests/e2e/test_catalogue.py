"""The shipped catalogue through the real executor, each look in a real container."""

import asyncio
import contextlib
import os
import sqlite3

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
HERE = {"path", "digest", "unit", "pid", "operation"}


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


async def test_the_rows_of_a_look_become_bars_and_a_picture_that_is_kept(pair):
    await pair.start("executor")
    (pair.data / "big").write_bytes(b"x" * 80_000)
    (pair.data / "small").write_bytes(b"x" * 40_000)
    looked = await run(pair, "fs:largest", 1, path=str(pair.data))
    asked = {"digest": looked["digest"], "label": "path", "value": "size_bytes"}
    bars = await run(pair, "chart:render", 2, **asked)
    assert bars["status"] == "succeeded", bars["reason"]
    assert next(line for line in bars["output"].splitlines() if line.startswith("big ")).endswith(" 80,000")
    picture = await run(pair, "chart:render", 3, **asked, form="svg")
    kept = await run(pair, "artifact:read", 4, digest=picture["digest"])
    assert kept["output"].startswith("<svg ")
    assert kept["output"].rstrip().endswith("</svg>")


async def test_rows_of_a_services_own_data_are_shown_to_nobody_before_a_person_agrees(pair, as_agent):
    await pair.start("executor")
    file = pair.data / "app.db"
    with contextlib.closing(sqlite3.connect(file)) as connection:
        connection.executescript("CREATE TABLE people (name TEXT); INSERT INTO people VALUES ('Ada')")
    sql = "SELECT name FROM people"
    asking = asyncio.create_task(as_agent(pair, "data:query", "r1", path=str(file), sql=sql))
    operation = await pair.pending()
    assert not asking.done()
    assert (await pair.approve(operation["id"]))["outcome"] == "succeeded"
    assert (await asking)["rows"] == [{"name": "Ada"}]


async def test_what_only_a_person_may_do_becomes_a_ticket_with_the_words_to_run(pair):
    await pair.start("executor")
    result = await run(pair, "unit:restart", 1, unit="nginx.service")
    assert result["status"] == "ticketed"
    assert "sudo systemctl restart -- nginx.service" in result["impact"]["text"]
