from __future__ import annotations

import json

import pytest

from hermesd.agent.parsing import MAX_ANSWER, MAX_REASON, Malformed, parse_decision
from hermesd.protocol import Decision

ACTION = {"step": "look", "command": "system:disk_usage", "args": {"path": "/var"}, "intent": "see"}
ANSWER = {"thought": "look first", "actions": [ACTION]}
GOOD = json.dumps(ANSWER)


def reason(text):
    read = parse_decision(text)
    assert isinstance(read, Malformed)
    assert len(read.reason) <= MAX_REASON
    assert read.reason.isprintable()
    return read.reason


@pytest.mark.parametrize(
    "text",
    [GOOD, f"  {GOOD}\n", f"```json\n{GOOD}\n```", f"```\n{GOOD}\n```\n", json.dumps(ANSWER, indent=2)],
)
def test_one_object_is_a_decision_with_or_without_a_fence(text):
    read = parse_decision(text)
    assert isinstance(read, Decision)
    assert read.actions[0].args == {"path": "/var"}


def test_a_finish_is_a_decision():
    read = parse_decision('{"thought": "done", "finish": {"cause": "caches", "report": "They grew."}}')
    assert isinstance(read, Decision)
    assert read.finish is not None


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "empty"),
        ("```json\n\n```", "empty"),
        ("I think you should run df.", "text around"),
        (f"Sure! {GOOD}", "text around"),
        (f"{GOOD}\nLet me know!", "text around"),
        (f"{GOOD}{GOOD}", "not JSON"),
        (f"{GOOD}\n{GOOD}", "not JSON"),
        (f"[{GOOD}]", "text around"),
        (f"```json\n{GOOD}\n```\n```json\n{GOOD}\n```", "not JSON"),
        (f"```json\n{GOOD}", "text around"),
        ('{"thought": "a", "thought": "b", "actions": []}', "duplicate keys"),
        ('{"thought": "a", "actions": [{"step": "a", "step": "b"}]}', "duplicate keys"),
        ('{"thought": NaN}', "NaN"),
        ('{"thought": "x", "n": 1e999}', "too large"),
        ("{" + '"a":{' * 5000 + "}" * 5001, "nested deeper"),
        ("{'thought': 'x'}", "not JSON"),
        ('{"thought": "x"', "text around"),
        ("{" + "1" * 5000 + "}", "not JSON"),
        (json.dumps({"thought": "x"}), "exactly one"),
        (json.dumps({**ANSWER, "finish": {"report": "x"}}), "exactly one"),
        (json.dumps({**ANSWER, "sudo": True}), "sudo"),
        (json.dumps({"actions": [ACTION]}), "thought"),
        (json.dumps({**ANSWER, "thought": 7}), "thought"),
        (json.dumps({**ANSWER, "actions": [ACTION] * 5}), "actions"),
        (json.dumps({**ANSWER, "actions": [ACTION, ACTION]}), "same step name"),
        (json.dumps({**ANSWER, "actions": [{**ACTION, "args": "path=/var"}]}), "actions.0.args"),
        (json.dumps({**ANSWER, "actions": [{**ACTION, "args": None}]}), "actions.0.args"),
        (json.dumps({**ANSWER, "actions": [{**ACTION, "command": "rm -rf /"}]}), "actions.0.command"),
        (
            json.dumps({**ANSWER, "actions": [{**ACTION, "command": "system:disk_usage\n"}]}),
            "actions.0.command",
        ),
        (json.dumps({**ANSWER, "actions": [{**ACTION, "confirm": 0}]}), "actions.0.confirm"),
        (json.dumps({**ANSWER, "thought": "x" * 2001}), "thought"),
        ('{"thought": "\ud800"}', "lone surrogates"),
        (" " * 10 + "{" + " " * MAX_ANSWER + "}", "longer than"),
    ],
)
def test_anything_else_is_refused_with_a_reason_for_the_model(text, says):
    assert says in reason(text)


def test_an_escaped_lone_surrogate_never_becomes_an_argument():
    assert reason(r'{"thought": "\ud800", "finish": {"report": "x"}}')


def test_a_reason_quotes_names_and_no_contents():
    text = json.dumps({**ANSWER, "thought": 7, "actions": [{**ACTION, "args": "the secret"}]})
    assert "secret" not in reason(text)


def test_a_huge_unknown_name_does_not_make_a_huge_reason():
    assert reason(json.dumps({**ANSWER, "x\n" * 5000: 1}))
