"""What a verdict costs: the flood that other rule engines were measured with, and many rules beside one.

20,000 readings of 50 hosts meet one rule with a threshold and a cooldown by host. The engine alone
is measured, as the other was (3,600 events/s): no source, no disk.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from random import Random
from time import perf_counter

from figures import row

from hermesd.events import Event, EventStatus
from hermesd.rules.engine import RuleBook, RuleState, judge_all
from hermesd.rules.rule import Rule

EVENTS = 20_000
HOSTS = 50
ROUNDS = 5
ELSEWHERE = 3_600
START = datetime(2026, 3, 1, tzinfo=UTC)


def measure() -> list[dict]:
    alone, among = best(1), best(200)
    return [
        at_least(
            "rule engine, 20,000 events of 50 hosts, against 3.6 k/s elsewhere",
            EVENTS / alone / ELSEWHERE,
            20,
        ),
        row("200 rules loaded against 1", among / alone, "times", 2),
    ]


def at_least(name: str, value: float, goal: float) -> dict:
    return {"name": name, "value": round(value, 2), "unit": "times", "goal": goal, "ok": value >= goal}


def best(rules: int) -> float:
    """Return the seconds of the quickest of some rounds: the others met something else at work."""
    loaded = RuleBook(rule(number) for number in range(rules))
    events = flood()
    return min(seconds(lambda: play(loaded, events)) for _ in range(ROUNDS))


def rule(number: int) -> Rule:
    return Rule.model_validate(
        {
            "name": f"rule-{number}",
            "match": ['type="host.cpu"' if number == 0 else f'type="other.{number}"'],
            "title": "CPU of {host} at {value:.0f} %",
            "group_by": ["host"],
            "cooldown": "5m",
            "threshold": {"op": ">", "value": 80},
            "run": {"goal": "Look at {host}"},
        }
    )


def flood() -> list[Event]:
    chance = Random(1)  # the same for every round and every run
    return [
        Event(
            id=str(number),
            source="bench",
            type="host.cpu",
            time=START,
            subject=f"h{number % HOSTS}",
            labels={"host": f"h{number % HOSTS}", "core": "all", "site": "one"},
            status=EventStatus.READING,
            value=round(chance.uniform(0, 100), 1),
            unit="percent",
        )
        for number in range(EVENTS)
    ]


def play(book: RuleBook, events: list[Event]) -> int:
    states: dict[tuple[str, str], RuleState] = {}

    def recall(name: str, mark: str) -> RuleState | None:
        return states.get((name, mark))

    granted = 0
    now = START
    for event in events:
        now += timedelta(milliseconds=1)
        for verdict, state in judge_all(book, event, recall, now):
            granted += verdict.start_run
            if state is None:
                states.pop((verdict.rule, verdict.fingerprint), None)
            else:
                states[verdict.rule, verdict.fingerprint] = state
    return granted


def seconds(work: Callable[[], object]) -> float:
    gc.collect()
    begun = perf_counter()
    work()
    return perf_counter() - begun
