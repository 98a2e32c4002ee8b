from __future__ import annotations

import tomllib

import pytest

from hermesd.agent.planner import (
    Briefing,
    Observation,
    PlannerUnavailable,
    Situation,
    Unavailability,
    refusal,
)
from hermesd.agent.runbook import Runbook, RunbookPlanner, follow
from hermesd.protocol import CatalogueView, CommandInfo, Effect, Gain, Permission, ResultStatus

RUNBOOK = """
name = "disk"

[[steps]]
id = "usage"
command = "system:disk_usage"
args = { path = "${event.labels.path}" }
intent = "see how full ${event.labels.path} is"

[[steps]]
id = "largest"
command = "fs:largest"
args = { path = "${event.labels.path}", limit = 3 }
intent = "find the largest"

[[steps]]
id = "tail"
command = "log:tail"
args = { path = "${largest.rows.0.path}", lines = 5 }
intent = "read the largest"

[[steps]]
id = "cleanup"
command = "fs:cleanup"
args = { path = "${event.labels.path}" }
intent = "clean"
when = [
    { value = "${usage.rows.0.used_percent}", op = ">=", than = 75 },
    { value = "${event.labels.path}", op = "within", than = "writable_roots" },
]

[[steps]]
id = "after"
command = "system:disk_usage"
args = { path = "${event.labels.path}" }
needs = ["cleanup"]
intent = "see again"

[[report.cause]]
when = [{ value = "${cleanup.gain.files_removed}", op = ">", than = 0 }]
en = "caches"
zh = "缓存"

[[report.cause]]
en = "${largest.rows.0.path}"

[[report.text]]
en = "was ${usage.rows.0.used_percent|percent} full"
zh = "使用率 ${usage.rows.0.used_percent|percent}"

[[report.text]]
each = "${largest.rows}"
limit = 2
en = "- ${row.path} ${row.size_bytes|bytes}"

[[report.text]]
en = "now ${after.rows.0.used_percent|percent}"
"""

USAGE = ({"used_percent": 90, "path": "/srv"},)
LARGEST = tuple({"path": f"/srv/f{n}", "size_bytes": 1_000_000 * n} for n in (9, 8, 7))


def info(name, **changes):
    values = {
        "name": name,
        "description": "d",
        "effect": Effect.READ,
        "permission": Permission.PUBLIC,
        "args_schema": {},
        "timeout_ms": 1000,
        "concurrency_safe": True,
    }
    return CommandInfo(**{**values, **changes})


COMMANDS = (
    info("system:disk_usage"),
    info("fs:largest"),
    info("log:tail"),
    info("fs:cleanup", effect=Effect.DESTROY, permission=Permission.INTERNAL, concurrency_safe=False),
)


EVENT = {"value": 90.0, "labels": {"path": "/srv"}}


def situation(
    *observations,
    refusals=(),
    commands=COMMANDS,
    language="en",
    writable=("/srv",),
    event=EVENT,
    facts=None,
    **rest,
):
    view = CatalogueView(policy_version="1", sandbox="x", writable_roots=writable, commands=commands)
    briefing = Briefing(
        task_id="t1",
        goal="find it",
        catalogue=view,
        language=language,
        event=event,
        facts=facts or {},
    )
    return Situation(briefing=briefing, observations=observations, refusals=refusals, **rest)


def seen(step, command, rows=(), status=ResultStatus.SUCCEEDED, **rest):
    args = rest.pop("args", {"path": "/srv"})
    return Observation(round=1, step=step, command=command, args=args, status=status, rows=rows, **rest)


def gain(freed=14_200_000):
    return Gain(files_removed=37, files_skipped=0, size_bytes=freed, freed_bytes=freed)


usage = seen("usage", "system:disk_usage", USAGE)
largest = seen("largest", "fs:largest", LARGEST)
tail = seen("tail", "log:tail")
cleanup = seen("cleanup", "fs:cleanup", gain=gain())
after = seen("after", "system:disk_usage", ({"used_percent": 31, "path": "/srv"},))


def plan(*observations, text=RUNBOOK, **rest):
    return follow(Runbook.model_validate(tomllib.loads(text)), situation(*observations, **rest))


def steps(decision):
    return [action.step for action in decision.actions]


def test_reads_that_do_not_need_each_other_go_together():
    decision = plan()
    assert steps(decision) == ["usage", "largest"]
    assert decision.actions[0].args == {"path": "/srv"}
    assert decision.actions[0].intent == "see how full /srv is"


def test_a_step_that_refers_to_another_waits_for_it():
    decision = plan(usage, largest)
    assert steps(decision) == ["tail"]
    assert decision.actions[0].args == {"path": "/srv/f9", "lines": 5}


def test_no_more_than_four_actions_go_together():
    text = "".join(
        f'[[steps]]\nid = "s{n}"\ncommand = "fs:largest"\nargs = {{ limit = {n} }}\nintent = "x"\n'
        for n in range(6)
    )
    assert steps(plan(text=text)) == ["s0", "s1", "s2", "s3"]
    assert steps(plan(text=text, actions_left=2)) == ["s0", "s1"]


def test_what_may_not_run_beside_others_goes_alone():
    careful = tuple(
        command.model_copy(update={"concurrency_safe": False}) if command.name == "fs:largest" else command
        for command in COMMANDS
    )
    assert steps(plan(commands=careful)) == ["usage"]


def test_a_step_whose_failure_ends_or_that_asks_for_confirmation_is_not_joined_by_what_follows():
    ending = RUNBOOK.replace('intent = "see how', 'on_failure = "finish"\nintent = "see how')
    assert steps(plan(text=ending)) == ["usage"]
    confirmed = RUNBOOK.replace('intent = "see how', 'confirm = true\nintent = "see how')
    decision = plan(text=confirmed)
    assert steps(decision) == ["usage"]
    assert decision.actions[0].confirm


def test_a_step_that_asks_for_confirmation_does_not_join_what_came_before():
    text = RUNBOOK.replace('intent = "find the largest"', 'confirm = true\nintent = "find the largest"')
    assert steps(plan(text=text)) == ["usage"]


def test_a_step_whose_condition_is_about_another_waits_for_it_even_if_the_condition_would_hold_now():
    text = RUNBOOK.replace(
        'intent = "find the largest"',
        'intent = "x"\nwhen = [{ value = "${usage.rows}", op = "exists", than = false }]',
    )
    assert steps(plan(text=text)) == ["usage"]


def test_a_change_goes_alone_and_only_where_its_conditions_hold():
    assert steps(plan(usage, largest, tail)) == ["cleanup"]
    assert plan(usage, largest, tail, writable=("/srv2",)).finish is not None
    low = seen("usage", "system:disk_usage", ({"used_percent": 74},))
    assert plan(low, largest, tail).finish is not None


def test_the_runbook_runs_from_its_first_step_to_its_report():
    finish = plan(usage, largest, tail, cleanup, after).finish
    assert finish.cause == "caches"
    assert finish.report == "was 90 % full\n- /srv/f9 9.0 MB\n- /srv/f8 8.0 MB\nnow 31 %"


def test_the_report_is_in_the_language_of_the_briefing_and_in_english_where_it_has_no_other():
    finish = plan(usage, largest, tail, cleanup, after, language="zh").finish
    assert finish.cause == "缓存"
    assert finish.report.splitlines()[:2] == ["使用率 90 %", "- /srv/f9 9.0 MB"]


def test_the_same_situation_gives_the_same_decision_whatever_was_asked_before():
    planner_steps = [plan(usage, largest), plan(), plan(usage, largest)]
    assert planner_steps[0] == planner_steps[2]


def test_a_failed_step_is_told_and_the_runbook_goes_on():
    failed = seen("largest", "fs:largest", status=ResultStatus.FAILED, reason="no such\nfolder")
    decision = plan(usage, failed)
    assert steps(decision) == ["cleanup"]
    finish = plan(usage, failed, cleanup, after).finish
    assert "largest: it ran and failed: no such\\nfolder" in finish.report
    assert "tail: refused: ${largest.rows.0.path}" in finish.report


def test_a_refused_step_is_not_proposed_again():
    decision = plan(refusals=(refusal("usage", "outside what I may operate on"),))
    assert steps(decision) == ["largest"]
    finish = plan(largest, tail, refusals=(refusal("usage", "outside"),)).finish
    assert "usage: refused: outside" in finish.report


def test_another_steps_refusal_is_not_taken_for_this_one():
    assert steps(plan(refusals=(refusal("m1.usage", "no"), "usage of words"))) == ["usage", "largest"]


def test_a_step_that_ends_the_runbook_by_failing_leads_to_the_report():
    text = RUNBOOK.replace('intent = "see how', 'on_failure = "finish"\nintent = "see how')
    denied = seen("usage", "system:disk_usage", status=ResultStatus.DENIED, reason="not now")
    assert plan(denied, text=text).finish.report == "usage: a person said no: not now"


def test_a_step_that_hands_over_by_failing_says_so_and_why():
    text = RUNBOOK.replace('intent = "see how', 'on_failure = "hand_over"\nintent = "see how')
    failed = seen("usage", "system:disk_usage", status=ResultStatus.TIMED_OUT, reason="10 s")
    with pytest.raises(
        PlannerUnavailable, match=r"A person must take over.*\nusage: its time ran out: 10 s"
    ) as caught:
        plan(failed, text=text)
    assert caught.value.reason is Unavailability.HAND_OVER


def test_a_command_that_cannot_be_used_is_left_out_with_a_note():
    commands = tuple(
        info("fs:largest", usable=False, unusable_reason="no such tool") if c.name == "fs:largest" else c
        for c in COMMANDS
    )
    assert steps(plan(commands=commands)) == ["usage"]
    finish = plan(usage, cleanup, after, commands=commands).finish
    assert "largest: left out, its command cannot be used here: no such tool" in finish.report


def test_a_command_that_the_catalogue_lacks_is_left_out_with_a_note():
    finish = plan(commands=()).finish
    assert "usage: left out" in finish.report
    assert "there is no command system:disk_usage here" in finish.report


def test_at_the_runs_limits_the_runbook_reports_what_it_has():
    for limit in ({"rounds_left": 0}, {"actions_left": 0}):
        finish = plan(usage, largest, **limit).finish
        assert "was 90 % full" in finish.report
        assert "stopped before tail: the run's limits were reached" in finish.report


def test_what_another_planner_saw_counts_for_the_step_that_asks_the_same():
    other = seen("m1.look", "system:disk_usage", USAGE, args={"path": "/srv", "unit": "default"})
    assert steps(plan(other)) == ["largest"]


def test_what_another_planner_saw_of_another_path_does_not_count():
    other = seen("m1.usage", "system:disk_usage", USAGE, args={"path": "/var"})
    assert steps(plan(other)) == ["usage", "largest"]


def test_one_observation_of_another_planner_serves_one_step_and_none_after_a_later_effect():
    other = seen("m1.look", "system:disk_usage", USAGE)
    assert steps(plan(other, largest, tail, cleanup)) == ["after"]
    second = seen("m2.look", "system:disk_usage", USAGE)
    assert steps(plan(usage, largest, tail, second, cleanup)) == ["after"]
    fresh = seen("m3.look", "system:disk_usage", ({"used_percent": 31},))
    assert plan(usage, largest, tail, cleanup, fresh).finish.report.endswith("now 31 %")


TWICE = "".join(
    f'[[steps]]\nid = "{name}"\ncommand = "system:disk_usage"\nargs = {{ path = "/srv" }}\nintent = "x"\n'
    for name in ("first", "second")
)


def test_what_a_step_saw_is_its_own_even_if_a_later_step_asks_the_same():
    assert steps(plan(seen("first", "system:disk_usage", USAGE), text=TWICE)) == ["second"]


def test_a_refused_step_does_not_live_on_what_a_later_step_saw():
    finish = plan(
        seen("second", "system:disk_usage", USAGE), text=TWICE, refusals=(refusal("first", "no"),)
    ).finish
    assert finish.report == "first: refused: no"


def test_what_another_planner_saw_once_serves_one_step_only():
    assert steps(plan(seen("m1.look", "system:disk_usage", USAGE), text=TWICE)) == ["second"]
    both = [seen(f"m{number}.look", "system:disk_usage", USAGE) for number in (1, 2)]
    assert plan(*both, text=TWICE).finish is not None


def test_an_effect_stays_in_the_report_when_its_conditions_no_longer_hold():
    finish = plan(usage, largest, tail, cleanup, after, writable=()).finish
    assert finish.cause == "caches"


def test_a_step_that_needs_one_that_did_not_succeed_is_passed_over():
    denied = seen("cleanup", "fs:cleanup", status=ResultStatus.DENIED, reason="no")
    finish = plan(usage, largest, tail, denied).finish
    assert "cleanup: a person said no: no" in finish.report
    assert "now" not in finish.report


def test_an_argument_that_no_command_could_take_is_refused_in_words():
    text = RUNBOOK.replace("limit = 3", 'odd = "${event.labels.odd}"')
    event = {"labels": {"path": "/srv", "odd": object()}}
    assert steps(plan(text=text, event=event)) == ["usage"]
    assert "largest: refused: args.odd" in plan(usage, cleanup, after, text=text, event=event).finish.report


def test_a_text_step_is_said_where_it_holds():
    text = '[[steps]]\nid = "hello"\ntext = "at ${event.labels.path}"\n'
    text += '[[steps]]\nid = "lost"\ntext = "${event.none}"'
    assert plan(text=text).finish.report == "at /srv"


def test_a_runbook_that_found_nothing_says_so():
    text = '[[steps]]\nid = "x"\ncommand = "fs:largest"\nintent = "x"\n'
    text += 'when = [{ value = 1, op = "==", than = 2 }]'
    assert plan(text=text).finish.report == "Nothing could be found out."
    assert plan(text=text, language="zh").finish.report == "未能查到任何信息。"


def test_inputs_take_the_first_candidate_that_is_known():
    text = (
        '[inputs]\npath = ["${event.labels.mount}", "${facts.path}", "/"]\n'
        '[[steps]]\nid = "x"\ncommand = "fs:largest"\nargs = { path = "${inputs.path}" }\nintent = "x"'
    )
    assert plan(text=text).actions[0].args == {"path": "/"}


def test_without_an_event_a_fact_names_the_path():
    text = (
        '[inputs]\npath = ["${event.labels.path}", "${facts.path}", "/"]\n'
        '[[steps]]\nid = "x"\ncommand = "fs:largest"\nargs = { path = "${inputs.path}" }\nintent = "x"'
    )
    decision = plan(text=text, event={}, facts={"path": "/opt/data"})
    assert decision.actions[0].args == {"path": "/opt/data"}


async def test_the_planner_answers_under_its_runbooks_name():
    planner = RunbookPlanner(Runbook.model_validate(tomllib.loads(RUNBOOK)))
    assert planner.name == "runbook disk"
    assert steps(await planner.decide(situation())) == ["usage", "largest"]
