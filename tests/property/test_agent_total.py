"""Whatever a model writes and whatever a run has seen: an answer, never an exception."""

from __future__ import annotations

import json

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hermesd.agent.choose import arguments_in, choose_runbook
from hermesd.agent.conditions import Condition, is_within, judge
from hermesd.agent.parsing import MAX_REASON, Malformed, parse_decision
from hermesd.agent.planner import Briefing, Observation, PlannerUnavailable, Situation
from hermesd.agent.prompts import MAX_OBSERVATION, observation_line, write_messages
from hermesd.agent.references import Unresolved, parse_template, render, resolve
from hermesd.agent.runbook import Runbook, follow
from hermesd.protocol import Action, CatalogueView, CommandInfo, Decision, Effect, Permission, ResultStatus

texts = st.text(st.characters(codec=None), max_size=200)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)
rows = st.lists(st.dictionaries(st.sampled_from(["path", "size", "n", "é"]), values, max_size=4), max_size=4)
answers = st.one_of(
    texts,
    st.text(alphabet='{}[]",:\\`\n taxe0123u', max_size=80),
    values.map(json.dumps),
    st.fixed_dictionaries({"thought": values, "actions": values}, optional={"finish": values}).map(
        json.dumps
    ),
)


@given(answers)
def test_any_text_is_a_decision_or_a_reason_on_one_line(text):
    read = parse_decision(text)
    assert isinstance(read, Decision | Malformed)
    if isinstance(read, Malformed):
        assert read.reason
        assert read.reason.isprintable()
        assert len(read.reason) <= MAX_REASON


@given(answers)
def test_a_decision_that_was_read_can_be_written_and_read_again(text):
    read = parse_decision(text)
    if isinstance(read, Decision):
        assert parse_decision(read.model_dump_json()) == read


step_names = st.sampled_from(["a", "b", "m1.c", "d-e"])
plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
actions = st.builds(
    Action,
    step=step_names,
    command=st.just("a:b"),
    args=st.dictionaries(st.sampled_from(["path", "limit"]), plain, max_size=2),
    intent=st.text(min_size=1, max_size=30),
    needs=st.lists(step_names, max_size=2).map(tuple),
    confirm=st.booleans(),
)


@given(
    st.text(max_size=50), st.lists(actions, min_size=1, max_size=4), st.sampled_from(["", "```json\n{}\n```"])
)
def test_every_decision_comes_out_of_its_text_as_it_was_unless_two_steps_share_a_name(thought, acts, fence):
    decision = Decision(thought=thought, actions=tuple(acts))
    text = decision.model_dump_json()
    read = parse_decision(fence.replace("{}", text) if fence else text)
    if len({action.step for action in acts}) < len(acts):
        assert isinstance(read, Malformed)
    else:
        assert read == decision


PARTS = ["a", "rows", "0", "last", "path", "n", "-1", "é", "x" * 40]
paths = st.lists(st.sampled_from(PARTS[:7]), min_size=1, max_size=5).map(
    lambda parts: "${" + ".".join(parts) + "}"
)


@given(paths, values, st.sampled_from(["", "|bytes", "|percent", "|count"]))
def test_any_reference_into_anything_is_a_value_or_a_reason(path, value, form):
    scope = {"a": {"rows": [value, {"path": value, "n": [value]}], "n": value}, "n": value}
    found = resolve(path, scope)
    assert isinstance(found, Unresolved) or found is not None
    shown = render(path[:-1] + form + "}", scope)
    assert isinstance(shown, Unresolved) or shown.isprintable()


@given(texts)
def test_any_text_is_a_template_or_refused_by_a_value_error(text):
    try:
        parts = parse_template(text)
    except ValueError:
        return
    assert "".join(str(part) for part in parts if isinstance(part, str)).count("${") == 0


@given(
    values,
    values,
    st.sampled_from(["==", "!=", ">", ">=", "<", "<=", "contains", "exists", "empty", "within", "outside"]),
)
def test_any_condition_that_can_be_read_can_be_judged(value, than, op):
    try:
        condition = Condition.model_validate({"value": value, "op": op, "than": than})
    except ValueError:
        return
    assert judge(condition, {"catalogue": {"writable_roots": ["/srv"]}}).holds in (True, False)


names = st.text(alphabet="ab.", min_size=1, max_size=3)


@given(st.lists(names, max_size=4), st.lists(names, min_size=1, max_size=3))
def test_a_path_is_within_a_root_exactly_if_its_components_begin_with_the_roots(path, root):
    path_text, root_text = "/" + "/".join(path), "/" + "/".join(root)
    clean = [part for part in path if part != "."]
    base = [part for part in root if part != "."]
    expected = ".." not in path and ".." not in root and clean[: len(base)] == base
    assert is_within(path_text, [root_text]) is expected


COMMAND = CommandInfo(
    name="a:b",
    description="d",
    effect=Effect.READ,
    permission=Permission.PUBLIC,
    args_schema={},
    timeout_ms=1,
    concurrency_safe=True,
)
VIEW = CatalogueView(policy_version="1", sandbox="x", commands=(COMMAND,), writable_roots=("/srv",))
RUNBOOK = Runbook.model_validate(
    {
        "name": "r",
        "inputs": {"p": ["${event.labels.path}", "${facts.path}"]},
        "steps": [
            {"id": "one", "command": "a:b", "args": {"path": "${inputs.p}"}, "intent": "x ${event.text}"},
            {"id": "two", "command": "a:b", "args": {"rows": "${one.rows}"}, "intent": "y", "confirm": True},
            {
                "id": "three",
                "command": "a:b",
                "args": {"n": ["${two.rows.0.n}"]},
                "intent": "${two.rows.last.path|bytes}",
                "when": [{"value": "${inputs.p}", "op": "within", "than": "writable_roots"}],
                "on_failure": "hand_over",
            },
        ],
        "report": {
            "text": [{"en": "${row.path} ${row.n|count}", "each": "${one.rows}"}, {"en": "${three.output}"}]
        },
    }
)
observations = st.builds(
    Observation,
    round=st.integers(1, 9),
    step=st.sampled_from(["one", "two", "three", "m1.x"]),
    command=st.sampled_from(["a:b", "c:d"]),
    args=st.dictionaries(st.sampled_from(["path", "rows", "n"]), values, max_size=3),
    status=st.sampled_from(ResultStatus),
    summary=texts,
    rows=rows.map(tuple),
    output=texts,
    reason=texts,
)
situations = st.builds(
    Situation,
    briefing=st.builds(
        Briefing,
        task_id=st.just("t"),
        goal=texts,
        catalogue=st.just(VIEW),
        language=st.sampled_from(["en", "zh"]),
        event=st.fixed_dictionaries({}, optional={"labels": values, "text": values, "type": values}),
        facts=st.dictionaries(texts, values, max_size=3),
        past_runs=st.lists(texts, max_size=4).map(tuple),
    ),
    observations=st.lists(observations, max_size=6).map(tuple),
    refusals=st.lists(texts | st.just("one: no"), max_size=4).map(tuple),
    rounds_left=st.integers(0, 3),
    actions_left=st.integers(0, 3),
)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(situations)
def test_a_runbook_decides_in_any_situation(situation):
    try:
        decision = follow(RUNBOOK, situation)
    except PlannerUnavailable:
        return
    assert len(decision.actions) <= max(1, situation.actions_left)
    assert follow(RUNBOOK, situation) == decision


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(situations)
def test_any_situation_is_a_prompt_whose_data_stays_in_its_fences(situation):
    _system, user = write_messages(situation)
    lines = user["content"].split("\n")
    assert all(line.isprintable() for line in lines)
    for line in lines:
        if "<data>" in line or "</data>" in line:
            assert line.startswith("<data>")
            assert line.endswith("</data>")
            assert line.count("<") == line.count(">") == 2


@given(observations)
def test_any_observation_is_shown_within_its_limit(seen):
    assert len(observation_line(seen)) <= MAX_OBSERVATION + len("<data></data>")


@given(texts)
def test_any_sentence_is_a_choice_or_none(sentence):
    choose_runbook(sentence, [RUNBOOK])
    assert set(arguments_in(sentence)) <= {"path", "unit"}
