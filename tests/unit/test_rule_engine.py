"""What the engine makes of events, one after another."""

from datetime import UTC, datetime, timedelta

import pytest

from hermesd.events import Event, EventStatus
from hermesd.rules.engine import (
    RuleBook,
    RuleState,
    Verdict,
    VerdictKind,
    judge,
    judge_all,
    render_goal,
    select_rules,
    state_from_record,
)
from hermesd.rules.rule import Rule

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def rule(**changes: object) -> Rule:
    return Rule.model_validate(
        {
            "name": "disk-full",
            "match": ['type="host.filesystem"'],
            "title": "Disk {path} is {value:.0f} % full",
            "group_by": ["host", "path"],
            "cooldown": "15m",
            "threshold": {"op": ">", "value": 80},
            "clear": {"op": "<", "value": 75},
            "run": {"runbook": "disk-full", "goal": "Find what fills {path}"},
            **changes,
        }
    )


ALERTS = {"match": ['type="alert"'], "threshold": None, "clear": None, "group_by": ["host"]}


def reading(value: float | None, path: str = "/", **changes: object) -> Event:
    given = {
        "id": "1",
        "source": "host",
        "type": "host.filesystem",
        "time": NOW,
        "subject": path,
        "labels": {"host": "h1", "path": path},
        "status": EventStatus.READING,
        "value": value,
        "unit": "percent",
    }
    return Event(**{**given, **changes})


def alert(status: EventStatus, subject: str = "db") -> Event:
    return reading(None, type="alert", status=status, subject=subject)


class Watch:
    """Feeds a rule and keeps its state, as the pipeline does. Time is minutes from the start."""

    def __init__(self, watched: Rule) -> None:
        self.rule = watched
        self.state: RuleState | None = None

    def see(self, event: Event, minute: float = 0) -> Verdict:
        verdict, self.state = judge(self.rule, event, self.state, NOW + minute * MINUTE)
        return verdict


def test_a_value_beyond_the_threshold_opens_an_incident_and_grants_a_run():
    verdict = Watch(rule()).see(reading(91.4))
    assert verdict.kind is VerdictKind.OPENED
    assert verdict.start_run
    assert verdict.title == "Disk / is 91 % full"
    assert verdict.incident_id
    assert "91.4 percent is > 80" in verdict.reason


def test_the_figure_itself_is_not_beyond_the_threshold():
    watch = Watch(rule())
    assert watch.see(reading(80.0)).kind is VerdictKind.BELOW
    assert watch.state is None


def test_what_follows_is_absorbed_without_another_run():
    watch = Watch(rule())
    first = watch.see(reading(91))
    second = watch.see(reading(93), 1)
    assert (second.kind, second.start_run) == (VerdictKind.ABSORBED, False)
    assert second.incident_id == first.incident_id
    assert "cooling down, no new run for 14m" in second.reason


def test_between_clear_and_threshold_an_open_incident_stays_and_no_run_starts_even_after_the_cooldown():
    watch = Watch(rule())
    watch.see(reading(91))
    verdict = watch.see(reading(77), 60)
    assert (verdict.kind, verdict.start_run) == (VerdictKind.ABSORBED, False)
    assert watch.state is not None
    assert watch.state.opened_at is not None


def test_between_clear_and_threshold_no_incident_begins():
    assert Watch(rule()).see(reading(78)).kind is VerdictKind.BELOW


def test_below_clear_the_incident_resolves_and_keeps_only_its_cooldown():
    watch = Watch(rule())
    opened = watch.see(reading(91))
    verdict = watch.see(reading(60), 1)
    assert (verdict.kind, verdict.incident_id) == (VerdictKind.RESOLVED, opened.incident_id)
    assert watch.state == RuleState(last_run_at=NOW)
    watch.see(reading(60), 15)
    assert watch.state is None


def test_reopened_within_the_cooldown_it_is_a_new_incident_without_a_run():
    watch = Watch(rule())
    first = watch.see(reading(91))
    watch.see(reading(60), 1)
    again = watch.see(reading(91), 2)
    assert (again.kind, again.start_run) == (VerdictKind.OPENED, False)
    assert again.incident_id != first.incident_id
    assert "cooling down, no new run for 13m" in again.reason


def test_once_the_cooldown_has_passed_a_condition_that_still_holds_may_start_a_run():
    watch = Watch(rule())
    watch.see(reading(91))
    assert not watch.see(reading(92), 14.99).start_run
    verdict = watch.see(reading(92), 15)
    assert (verdict.kind, verdict.start_run) == (VerdictKind.ABSORBED, True)
    assert not watch.see(reading(92), 16).start_run


def test_the_cooldown_is_stamped_with_the_grant_and_not_with_any_success():
    watch = Watch(rule())
    watch.see(reading(91))
    assert watch.state is not None
    assert watch.state.last_run_at == NOW


def test_a_rule_without_run_only_opens():
    watch = Watch(rule(run=None))
    verdict = watch.see(reading(91))
    assert (verdict.kind, verdict.start_run) == (VerdictKind.OPENED, False)
    assert watch.state is not None
    assert watch.state.last_run_at is None


def test_a_condition_must_hold_for_its_time():
    watch = Watch(rule(**{"for": "5m"}))
    assert watch.see(reading(91)).kind is VerdictKind.PENDING
    pending = watch.see(reading(91), 4.99)
    assert pending.kind is VerdictKind.PENDING
    assert "5m are needed" in pending.reason
    assert watch.see(reading(91), 5).kind is VerdictKind.OPENED


@pytest.mark.parametrize("value", [60, 78])
def test_a_condition_that_stops_holding_begins_its_time_anew(value):
    watch = Watch(rule(**{"for": "5m"}))
    watch.see(reading(91))
    assert watch.see(reading(value), 3).kind is VerdictKind.BELOW
    assert watch.see(reading(91), 6).kind is VerdictKind.PENDING


def test_firing_opens_and_resolved_resolves():
    watch = Watch(rule(**ALERTS))
    assert watch.see(alert(EventStatus.FIRING)).kind is VerdictKind.OPENED
    assert watch.see(alert(EventStatus.FIRING), 1).kind is VerdictKind.ABSORBED
    assert watch.see(alert(EventStatus.RESOLVED), 2).kind is VerdictKind.RESOLVED
    assert watch.see(alert(EventStatus.RESOLVED), 3).kind is VerdictKind.BELOW


def test_an_incident_of_several_subjects_ends_with_the_last_of_them():
    watch = Watch(rule(**ALERTS))
    watch.see(alert(EventStatus.FIRING, "a"))
    watch.see(alert(EventStatus.FIRING, "b"))
    stays = watch.see(alert(EventStatus.RESOLVED, "a"))
    assert stays.kind is VerdictKind.ABSORBED
    assert "1 other subject is still wrong" in stays.reason
    assert watch.see(alert(EventStatus.RESOLVED, "b")).kind is VerdictKind.RESOLVED


def test_a_healthy_disk_of_a_group_neither_ends_nor_delays_what_another_began():
    watch = Watch(rule(group_by=["host"], **{"for": "5m"}))
    watch.see(reading(91, "/var"))
    assert watch.see(reading(10, "/srv"), 3).kind is VerdictKind.BELOW
    assert watch.see(reading(91, "/var"), 5).kind is VerdictKind.OPENED
    assert watch.see(reading(10, "/srv"), 6).kind is VerdictKind.ABSORBED
    assert watch.see(reading(10, "/var"), 7).kind is VerdictKind.RESOLVED


def test_a_storm_of_subjects_does_not_grow_the_state_without_bound():
    watch = Watch(rule(**ALERTS))
    for number in range(2000):
        watch.see(alert(EventStatus.FIRING, f"pod-{number}"))
    assert watch.state is not None
    assert len(watch.state.subjects) <= 256


def test_a_reading_without_a_threshold_is_ignored_and_says_why():
    verdict = Watch(rule(threshold=None, clear=None)).see(reading(91))
    assert verdict.kind is VerdictKind.IGNORED
    assert "threshold" in verdict.reason


@pytest.mark.parametrize("value", [None, float("nan"), float("inf"), float("-inf")])
def test_a_reading_that_is_no_number_changes_nothing(value):
    watch = Watch(rule())
    watch.see(reading(91))
    before = watch.state
    verdict = watch.see(reading(value), 1)
    assert verdict.kind is VerdictKind.IGNORED
    assert verdict.reason
    assert watch.state is before


def test_an_event_that_is_not_the_rules_business_is_ignored_with_the_matcher_it_missed():
    verdict = Watch(rule()).see(reading(91, type="host.memory"))
    assert verdict.kind is VerdictKind.IGNORED
    assert verdict.reason == 'does not match type="host.filesystem"'


def test_a_rule_that_is_switched_off_ignores_everything():
    verdict = Watch(rule(enabled=False)).see(reading(91))
    assert (verdict.kind, verdict.reason) == (VerdictKind.IGNORED, "the rule is switched off")


def test_a_clock_that_was_set_back_does_not_hold_a_rule_for_longer_than_its_cooldown():
    watch = Watch(rule())
    watch.see(reading(91), 525_600)
    watch.see(reading(91), 0)
    assert not watch.see(reading(91), 14).start_run
    assert watch.see(reading(91), 15).start_run


def test_a_clock_that_was_set_back_does_not_hold_a_pending_condition():
    watch = Watch(rule(**{"for": "5m"}))
    watch.see(reading(91), 525_600)
    watch.see(reading(91), 0)
    assert watch.see(reading(91), 5).kind is VerdictKind.OPENED


def test_the_same_opening_judged_twice_is_the_same_incident():
    first, _ = judge(rule(), reading(91), None, NOW)
    second, _ = judge(rule(), reading(91), None, NOW)
    assert first == second


def test_two_values_of_one_thing_are_one_incident_and_two_things_are_two():
    a, _ = judge(rule(), reading(91), None, NOW)
    b, _ = judge(rule(), reading(99, id="2", text="other"), None, NOW + MINUTE)
    c, _ = judge(rule(), reading(91, "/var"), None, NOW)
    assert a.fingerprint == b.fingerprint != c.fingerprint


def test_a_state_comes_back_from_the_store_as_it_went_in():
    watch = Watch(rule())
    watch.see(reading(91))
    assert watch.state is not None
    assert state_from_record(watch.state.to_record()) == watch.state


def test_a_verdicts_record_holds_plain_values():
    record = Watch(rule()).see(reading(91)).to_record()
    assert record["kind"] == "opened"
    assert all(type(value) in (str, bool) for value in record.values())


def test_an_event_is_judged_by_every_rule_whose_business_it_is():
    rules = [rule(name="a"), rule(name="b", threshold={"op": ">", "value": 95}), rule(name="c", **ALERTS)]
    asked: list[str] = []

    def recall(name: str, fingerprint: str) -> None:
        asked.append(f"{name} {fingerprint}")

    judged = judge_all(RuleBook(rules), reading(91), recall, NOW)
    assert [(verdict.rule, verdict.kind.value) for verdict, _ in judged] == [("a", "opened"), ("b", "below")]
    assert asked == [f"{verdict.rule} {verdict.fingerprint}" for verdict, _ in judged]
    assert [found.name for found in select_rules(rules, reading(91))] == ["a", "b"]


def test_the_goal_of_a_run_names_what_the_event_is_about():
    assert render_goal(rule(), reading(91, "/var")) == "Find what fills /var"
    assert render_goal(rule(run=None), reading(91)) == ""
