"""What crosses the wall: read exactly, or refused with a reason that quotes nothing."""

import json
import time

import pytest
from pydantic import ValidationError

from hermesd.protocol import (
    MAX_DEPTH,
    MAX_MESSAGE_BYTES,
    Action,
    CommandRequest,
    CommandResult,
    Decision,
    Envelope,
    Finish,
    ProtocolError,
    ResultStatus,
    Stage,
    StageOutcome,
    StageTiming,
    Status,
    check_json,
    decode_envelope,
    encode,
    payload_of,
    read_payload,
)

GOOD = {
    "version": 1,
    "task_id": "t-1",
    "sender": "agent",
    "receiver": "executor",
    "kind": "command.request",
    "payload": {},
    "status": "created",
}
REQUEST = CommandRequest(request_id="t.1.0.0", task_id="t", intent="look", command="fs:largest")


def line(**changes: object) -> bytes:
    return json.dumps({**GOOD, **changes}).encode() + b"\n"


def refusal(text: bytes) -> str:
    with pytest.raises(ProtocolError) as caught:
        decode_envelope(text)
    return str(caught.value)


def test_an_envelope_comes_back_as_it_was_sent():
    sent = Envelope(
        task_id="t", sender="a", receiver="b", kind="k", payload={"数": [1, 2.5, None]}, anchor="3:ab"
    )
    assert encode(sent).endswith(b"\n")
    assert encode(sent).count(b"\n") == 1
    assert decode_envelope(encode(sent)) == sent


def test_a_payload_comes_back_as_the_word_it_was():
    result = CommandResult(
        request_id="t.1.0.0",
        task_id="t",
        command="fs:largest",
        status=ResultStatus.TIMED_OUT,
        rows=({"path": "/var", "bytes": 12}, {"path": "/srv", "bytes": None}),
        stages=(
            StageTiming(
                name=Stage.EXECUTE, round=0, ms=10_000.5, budget_ms=10_000, outcome=StageOutcome.TIMEOUT
            ),
        ),
    )
    wire = decode_envelope(
        encode(
            Envelope(
                task_id="t",
                sender="a",
                receiver="b",
                kind="k",
                payload=payload_of(result),
                status=Status.SUCCEEDED,
            )
        )
    )
    assert read_payload(CommandResult, wire.payload) == result


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"", "not JSON"),
        (b"\n", "not JSON"),
        (b"nonsense\n", "not JSON"),
        (b"[]", "message"),
        (b"null", "message"),
        (b"5", "message"),
        (b'"text"', "message"),
        (b"\xff\xfe{}", "not UTF-8 at byte 0"),
        (line()[:-3], "not JSON"),
        (line() + b"{}", "not JSON"),
        (line() + b"x", "not JSON"),
        (line().replace(b'"payload": {}', b'"payload": {"a": 1, "a": 2}'), "duplicate keys"),
        (line().replace(b'"version": 1', b'"version": 1, "version": 1'), "duplicate keys"),
        (line().replace(b"{}", b'{"a": NaN}'), "NaN"),
        (line().replace(b"{}", b'{"a": -Infinity}'), "NaN and infinities"),
        (line().replace(b"{}", b'{"a": 1e400}'), "too large"),
        (line().replace(b"{}", b'{"a": ' + b"1" * 5000 + b"}"), "not JSON"),
        (line().replace(b"{}", b'{"a": "' + b"\\ud800" + b'"}'), "surrogate"),
        (line().replace(b"{}", b'{"' + b"\\udfff" + b'": 1}'), "surrogate"),
        (line().replace(b"{}", b"[" * 10_000 + b"]" * 10_000), f"deeper than {MAX_DEPTH}"),
        (b"[" * 10_000, f"deeper than {MAX_DEPTH}"),
        (b'{"a":' * 10_000, f"deeper than {MAX_DEPTH}"),
        (line(version=2), "version"),
        (line(version="1"), "version"),
        (line(version=True), "version"),
        (line(task_id=5), "task_id"),
        (line(task_id=""), "task_id"),
        (line(task_id="a" * 97), "task_id"),
        (line(task_id="../../etc"), "task_id"),
        (line(task_id="t\n"), "task_id"),
        (line(payload=[]), "payload"),
        (line(payload=None), "payload"),
        (line(status="done"), "status"),
        (line(status=1), "status"),
        (line(extra="x"), "extra"),
        (line(anchor="x" * 97), "anchor"),
        (b'{"version": 1}', "Field required"),
        (b" " * (MAX_MESSAGE_BYTES + 1), f"longer than {MAX_MESSAGE_BYTES}"),
    ],
)
def test_what_is_not_of_the_protocol_is_refused_with_its_reason(text, reason):
    assert reason in refusal(text)


def test_a_refusal_quotes_nothing_of_what_was_sent():
    secret = "hunter2-very-secret"
    for text in (
        line(task_id=f"{secret} !"),
        line(version=secret),
        line(status=secret),
        f'{{"{secret}" 1}}'.encode(),
    ):
        assert secret not in refusal(text)


def test_brackets_inside_strings_are_text_and_no_depth():
    text = '["' * 100 + "\\"
    assert decode_envelope(line(payload={"a": text})).payload["a"] == text
    assert check_json(json.dumps({"a": "[" * 1000 + '\\"[{'}).encode())


@pytest.mark.parametrize("unit", ['\\"', "[", '[{"a":"\\\\"},', '"', '["",'])
def test_a_message_of_full_size_is_judged_at_once(unit):
    text = ('"' + unit * (MAX_MESSAGE_BYTES // len(unit)))[:MAX_MESSAGE_BYTES].encode()
    began = time.perf_counter()
    refusal(text)
    assert time.perf_counter() - began < 1.0


def test_depth_up_to_the_limit_is_read():
    assert check_json(b"[" * MAX_DEPTH + b"]" * MAX_DEPTH) is not None
    with pytest.raises(ProtocolError):
        check_json(b"[" * (MAX_DEPTH + 1) + b"]" * (MAX_DEPTH + 1))


@pytest.mark.parametrize(
    "change",
    [
        {"timeout_ms": "12"},
        {"timeout_ms": 1.5},
        {"timeout_ms": True},
        {"timeout_ms": 0},
        {"timeout_ms": 3_600_001},
        {"dry_run": "true"},
        {"dry_run": 1},
        {"extra_confirmations": -1},
        {"intent": ""},
        {"intent": 5},
        {"intent": "x" * 501},
        {"command": "fs:largest\n"},
        {"command": "fs:Largest"},
        {"command": "/bin/sh"},
        {"command": "fs"},
        {"args": {"Path": "/"}},
        {"args": {f"a{number}": 1 for number in range(33)}},
        {"args": []},
        {"request_id": None},
        {"shell": "rm"},
    ],
)
def test_a_request_is_not_coerced_and_takes_nothing_unknown(change):
    with pytest.raises(ProtocolError):
        read_payload(CommandRequest, {**payload_of(REQUEST), **change})


def test_words_are_frozen():
    with pytest.raises(ValidationError):
        REQUEST.command = "fs:cleanup"


ACTION = Action(step="a", command="fs:largest", intent="see")


def test_a_decision_has_actions_or_a_finish_and_never_both_or_neither():
    assert Decision(thought="", actions=(ACTION,)).finish is None
    assert Decision(thought="", finish=Finish(report="done")).actions == ()
    for wrong in ({}, {"actions": (ACTION,), "finish": Finish(report="x")}, {"actions": (ACTION,) * 5}):
        with pytest.raises(ValidationError):
            Decision(thought="", **wrong)
