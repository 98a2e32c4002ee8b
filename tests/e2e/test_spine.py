"""From an event to an ended run, through both real processes and real containers."""

import asyncio
import json
import shutil
import socket
import subprocess
import urllib.error
import urllib.request
from contextlib import contextmanager
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

BODIES = (
    (Path(__file__).parents[1] / "data" / "alertmanager" / "webhooks-0.25.jsonl").read_bytes().splitlines()
)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def post(port: int, body: bytes, path: str = "/alertmanager") -> int:
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}{path}", body, {"Content-Type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def listen(pair) -> int:
    port = free_port()
    pair.write(
        "sources/webhook.toml", f'kind = "webhook"\nenabled = true\nlisten = "127.0.0.1"\nport = {port}\n'
    )
    return port


async def listening(pair, port: int) -> None:
    """Start both and wait until the webhook takes connections, as a sender that retries would."""
    await pair.start()

    async def look():
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    await pair.until(look)


@contextmanager
def broker(folder: Path):
    """A real mosquitto on a port of its own."""
    program = shutil.which("mosquitto") or "/usr/sbin/mosquitto"
    port = free_port()
    conf = folder / "mosquitto.conf"
    conf.write_text(f"listener {port} 127.0.0.1\nallow_anonymous true\nmax_queued_messages 0\n")
    with subprocess.Popen([program, "-c", str(conf)], stderr=subprocess.DEVNULL) as process:
        try:
            for _ in range(100):
                with socket.socket() as probe:
                    if probe.connect_ex(("127.0.0.1", port)) == 0:
                        break
                process.poll()
                import time

                time.sleep(0.05)
            yield port
        finally:
            process.terminate()


async def test_the_bodies_that_alertmanager_sent_open_incidents_and_runs_and_resolve_them(pair):
    port = listen(pair)
    await listening(pair, port)
    assert await asyncio.to_thread(post, port, BODIES[0]) == 202
    runs = await pair.ended_runs(1)
    incidents = (await pair.agent("incidents", all=True))["incidents"]
    assert [item["labels"]["alertname"] for item in incidents] == ["HostOutOfDiskSpace"]
    assert runs[0]["incident_id"] == incidents[0]["id"]
    shown = await pair.agent("show", id=runs[0]["task_id"])
    assert [step["status"] for step in shown["run"]["steps"]].count("succeeded") >= 3
    assert await asyncio.to_thread(post, port, BODIES[2]) == 202

    async def resolved():
        found = (await pair.agent("incidents", all=True))["incidents"]
        return found[0]["status"] == "resolved"

    await pair.until(resolved)


async def test_the_same_body_delivered_twice_is_one_event_and_one_run(pair):
    port = listen(pair)
    await listening(pair, port)
    for _ in range(3):
        assert await asyncio.to_thread(post, port, BODIES[1]) == 202
    await pair.ended_runs(1)
    incidents = (await pair.agent("incidents", all=True))["incidents"]
    assert [(item["events"], len(item["runs"])) for item in incidents] == [(1, 1)]


async def test_a_body_that_is_not_an_alert_is_refused_and_the_next_one_is_served(pair):
    port = listen(pair)
    await listening(pair, port)
    for body in (b"{", b"[]", b'{"version": "4", "version": "4"}', b'{"alerts": 7}'):
        assert await asyncio.to_thread(post, port, body) == 400
    assert await asyncio.to_thread(post, port, BODIES[0]) == 202
    await pair.ended_runs(1)


async def test_a_message_on_a_topic_opens_an_incident_and_a_run(pair, tmp_path):
    with broker(tmp_path) as port:
        pair.write(
            "sources/mqtt.toml",
            f'kind = "mqtt"\nenabled = true\nhost = "127.0.0.1"\nport = {port}\n'
            '[[topic]]\nfilter = "plant/alerts"\nmode = "json"\n',
        )
        pair.write(
            "rules/plant.toml",
            'match = [\'type="mqtt.message"\']\ntitle = "{machine} says {text}"\ngroup_by = ["machine"]\n'
            '[run]\nrunbook = "inspect"\ngoal = "Look at the host."\n',
        )
        await pair.start()

        async def connected():
            sources = (await pair.agent("status"))["sources"]
            return next(item for item in sources if item["kind"] == "mqtt")["state"] == "running"

        await pair.until(connected)
        await asyncio.sleep(0.5)
        message = json.dumps(
            {"id": "m-1", "labels": {"machine": "press"}, "status": "firing", "text": "too hot"}
        )
        await asyncio.to_thread(
            subprocess.run,
            ["mosquitto_pub", "-p", str(port), "-q", "1", "-t", "plant/alerts", "-m", message],
            check=True,
        )
        runs = await pair.ended_runs(1)
        incidents = (await pair.agent("incidents", all=True))["incidents"]
        assert incidents[0]["labels"]["machine"] == "press"
        assert runs[0]["incident_id"] == incidents[0]["id"]


async def test_killed_in_the_middle_of_a_run_the_agent_goes_on_and_nothing_is_done_twice(pair):
    port = listen(pair)
    slow_look(pair)
    await listening(pair, port)
    assert await asyncio.to_thread(post, port, BODIES[0]) == 202
    await begun(pair)
    await pair.kill("agent")
    await pair.start("agent")
    runs = await pair.ended_runs(1)
    assert len(runs) == 1
    shown = await pair.agent("show", id=runs[0]["task_id"])
    assert [step["status"] for step in shown["run"]["steps"]] == ["succeeded", "succeeded"]
    assert requests_of(pair) == {"test:slow": 1, "system:load": 1}


async def test_killed_in_the_middle_of_a_run_the_executor_leaves_no_doubt_unspoken(pair):
    port = listen(pair)
    slow_look(pair)
    await listening(pair, port)
    assert await asyncio.to_thread(post, port, BODIES[0]) == 202
    await begun(pair)
    await pair.kill("executor")
    await pair.start("executor")
    runs = await pair.ended_runs(1)
    assert len(runs) == 1
    statuses = statuses_of(pair)
    assert statuses.count("unknown") == 1, statuses
    verified = await pair.executor("audit.verify")
    assert verified["ok"], verified["reason"]


async def test_killed_while_a_person_is_asked_both_wait_on_and_the_approval_takes_effect_once(pair):
    port = listen(pair)
    rubbish = pair.rubbish(files=3)
    pair.write(
        "runbooks/clean.toml",
        'description = "Cleans."\n[[steps]]\nid = "clean"\ncommand = "fs:cleanup"\n'
        f'args = {{ path = "{pair.data}" }}\nintent = "make room"\n'
        '[[report.text]]\nen = "done: ${clean.summary}"\n',
    )
    pair.write(
        "rules/alertmanager.toml",
        'match = [\'type="alertmanager.alert"\']\ngroup_by = ["alertname"]\n'
        '[run]\nrunbook = "clean"\ngoal = "Make room."\n',
    )
    await listening(pair, port)
    assert await asyncio.to_thread(post, port, BODIES[0]) == 202
    operation = await pair.pending()
    await pair.kill("agent")
    await pair.kill("executor")
    await listening(pair, port)
    assert (await pair.pending())["id"] == operation["id"]
    answer = await pair.approve(operation["id"])
    assert answer["outcome"] == "succeeded", answer["text"]
    assert not any(path.exists() for path in rubbish)
    assert await asyncio.to_thread(post, port, BODIES[2]) == 202
    runs = await pair.ended_runs(1)
    assert runs[0]["outcome"] == "resolved"
    shown = await pair.agent("show", id=runs[0]["task_id"])
    assert [step["status"] for step in shown["run"]["steps"]] == ["succeeded"]
    assert requests_of(pair) == {"fs:cleanup": 1}
    for part in (pair.agent, pair.executor):
        assert (await part("audit.verify"))["ok"]


async def test_an_event_that_was_accepted_survives_a_kill_before_it_was_looked_at(pair):
    port = listen(pair)
    await listening(pair, port)
    assert await asyncio.to_thread(post, port, BODIES[1]) == 202
    await pair.kill("agent")
    await pair.start("agent")
    incidents = (await pair.until(lambda: pair.agent("incidents", all=True)))["incidents"]
    runs = await pair.ended_runs(1)
    assert [item["labels"]["alertname"] for item in incidents or []] in (["InstanceDown"], [])
    assert len(runs) == 1


def slow_look(pair) -> None:
    """A runbook whose first step takes two seconds, so that there is a middle to be killed in."""
    pair.write(
        "commands/slow.toml",
        'name = "test:slow"\ndescription = "Waits, so that there is a middle to be killed in."\n'
        'effect = "read"\npermission = "public"\nretryable = true\n'
        'executable = "/usr/bin/sleep"\nargv = ["2"]\n',
    )
    pair.write(
        "runbooks/inspect.toml",
        'description = "Looks slowly."\n[[steps]]\nid = "slow"\ncommand = "test:slow"\nintent = "wait"\n'
        '[[steps]]\nid = "load"\ncommand = "system:load"\nintent = "look"\n'
        '[[report.text]]\nen = "load: ${load.summary}"\n',
    )


async def begun(pair) -> None:
    async def look():
        return any(state == "started" for _command, state, _result in ledger(pair))

    await pair.until(look)


def ledger(pair) -> list[tuple[str, str, str | None]]:
    import sqlite3
    from contextlib import closing

    path = pair.folder / "executor" / "state" / "ledger.sqlite3"
    with closing(sqlite3.connect(path)) as db:
        rows = db.execute("SELECT request, state, result FROM requests").fetchall()
    return [(json.loads(request)["command"], state, result) for request, state, result in rows]


def requests_of(pair) -> dict[str, int]:
    commands = [command for command, _state, _result in ledger(pair)]
    return {command: commands.count(command) for command in commands}


def statuses_of(pair) -> list[str]:
    return [json.loads(result)["status"] for _command, _state, result in ledger(pair) if result]
