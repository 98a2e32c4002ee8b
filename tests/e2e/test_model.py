"""A model that talks nonsense, or not at all: the runbook goes on in the same run, and the record says so."""

import http.server
import json
import threading
from contextlib import contextmanager
from dataclasses import replace

import pytest

pytestmark = pytest.mark.slow

KEY = "sk-e2e-0123456789abcdef"


@contextmanager
def model_server(*answers: bytes, hold: threading.Event | None = None):
    """An OpenAI-compatible endpoint that gives these answers in turn, the last one for ever."""
    calls: list[dict] = []

    class Server(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            calls.append({"path": self.path, "key": self.headers["Authorization"], "body": json.loads(body)})
            if hold is not None:
                hold.wait(20)
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(answers[min(len(calls), len(answers)) - 1])

        def log_message(self, *_args):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1", calls
    finally:
        if hold is not None:
            hold.set()
        server.shutdown()
        thread.join()
        server.server_close()


def with_model(pair, address: str) -> None:
    environ = {**pair.program.environ, "MODEL_NAME": "small", "API_BASE": address, "API_KEY": KEY}
    pair.program = replace(pair.program, environ=environ)


def said(text: str) -> bytes:
    return json.dumps({"choices": [{"message": {"role": "assistant", "content": text}}]}).encode()


async def asked_and_ended(pair):
    await pair.agent("ask", text="check the load of this machine")
    runs = await pair.ended_runs(1)
    return await pair.agent("show", id=runs[0]["task_id"])


async def test_a_model_that_talks_nonsense_is_given_up_and_the_runbook_answers_in_the_same_run(pair):
    with model_server(said("Sure! I will run rm -rf / for you.")) as (address, calls):
        with_model(pair, address)
        await pair.start()
        shown = await asked_and_ended(pair)
    assert shown["run"]["outcome"] == "answered", shown["run"]["reason"]
    kinds = [record["kind"] for record in shown["records"]]
    assert "planner.fallback" in kinds
    assert len(calls) == 5, "malformed answers are asked again five times in a run, and no more"
    assert calls[0]["key"] == f"Bearer {KEY}"
    everything = json.dumps(shown) + pair.log("agent") + pair.log("executor")
    assert KEY not in everything


async def test_a_model_that_does_not_answer_in_time_is_given_up_and_the_runbook_answers(pair):
    pair.write("daemon.toml.d/zz.toml", "[stages]\nplan_ms = 1000\n")
    hold = threading.Event()
    with model_server(said("{}"), hold=hold) as (address, _calls):
        with_model(pair, address)
        await pair.start()
        shown = await asked_and_ended(pair)
        hold.set()
    assert shown["run"]["outcome"] == "answered", shown["run"]["reason"]
    fallback = next(record for record in shown["records"] if record["kind"] == "planner.fallback")
    assert "late" in json.dumps(fallback)
    plan = next(stage for stage in shown["run"]["stages"] if stage["name"] == "plan")
    assert plan["ms"] <= 2000


async def test_a_model_that_is_down_costs_the_run_nothing_but_a_record(pair):
    with_model(pair, "http://127.0.0.1:9/v1")
    await pair.start()
    shown = await asked_and_ended(pair)
    assert shown["run"]["outcome"] == "answered", shown["run"]["reason"]
    assert any(record["kind"] == "planner.fallback" for record in shown["records"])


async def test_a_model_that_proposes_what_is_not_permitted_is_refused_and_harms_nothing(pair):
    decision = {
        "thought": "the log told me to",
        "actions": [
            {"step": "one", "command": "fs:cleanup", "args": {"path": "/etc"}, "intent": "clean up"},
        ],
    }
    with model_server(said(json.dumps(decision))) as (address, _calls):
        with_model(pair, address)
        await pair.start()
        shown = await asked_and_ended(pair)
        pending = (await pair.executor("approvals"))["operations"]
    assert pending == []
    assert shown["run"]["outcome"] in {"handed_over", "answered", "failed"}
    statuses = {step["status"] for step in shown["run"]["steps"]}
    assert "succeeded" not in {
        step["status"] for step in shown["run"]["steps"] if step["command"] == "fs:cleanup"
    }
    assert statuses <= {"refused", "succeeded", "planned"}


async def test_a_well_behaved_model_looks_and_answers(pair):
    look = {
        "thought": "look at the load",
        "actions": [{"step": "load", "command": "system:load", "args": {}, "intent": "see the load"}],
    }
    finish = {"thought": "done", "finish": {"cause": "nothing unusual", "report": "The load is low."}}
    with model_server(said(json.dumps(look)), said(json.dumps(finish))) as (address, calls):
        with_model(pair, address)
        await pair.start()
        shown = await asked_and_ended(pair)
    assert shown["run"]["outcome"] == "answered", shown["run"]["reason"]
    assert "The load is low." in shown["run"]["report"]
    assert [step["status"] for step in shown["run"]["steps"]] == ["succeeded"]
    assert len(calls) == 2
