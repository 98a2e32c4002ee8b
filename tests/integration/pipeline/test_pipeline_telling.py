"""What the pipeline tells the outside, and what a retained message does inside."""

import asyncio
from datetime import UTC, datetime

from hermesd.events import RETAINED_TYPE, Event, Severity
from hermesd.state.events import find_event
from hermesd.state.marks import find_mark


async def heard(house, number):
    """Return so many notices, in the order in which they were told."""
    async with asyncio.timeout(20):
        while house.kit.bulletin.last < number:
            await asyncio.sleep(0.01)
    return [notice for _number, notice in await house.kit.bulletin.after(0)]


async def test_an_incident_its_runs_outcome_and_its_end_are_told_in_that_order(open_house, parts):
    planner = parts.in_rounds(parts.finish())
    async with open_house(planner, stages={"review_ms": 10}) as house:
        await house.reading(91.0)
        (run,) = await house.ended()
        await heard(house, 2)
        await house.reading(50.0)
        opened, ended, resolved = await heard(house, 3)
        (incident,) = await house.incidents()
    assert (opened.topic, opened.content["status"]) == (f"incidents/{incident.id}", "open")
    assert (opened.content["rule"], opened.content["value"]) == ("disk-full", 91.0)
    assert (ended.topic, ended.content["outcome"]) == (f"runs/{run.task_id}", run.outcome.value)
    assert ended.content["incident"] == incident.id
    assert (resolved.topic, resolved.content["status"]) == (opened.topic, "resolved")
    assert "goal" not in ended.content, "a person's words go nowhere"


async def test_a_retained_message_is_known_and_no_rule_judges_it(open_house, parts):
    rule = parts.disk_rule(match=["severity=critical"], threshold=None, clear=None)
    retained = Event(
        id="m-1",
        source="mqtt",
        type=RETAINED_TYPE,
        time=datetime.now(UTC),
        subject="plant/door",
        severity=Severity.CRITICAL,
        text="open",
    )
    async with open_house(rules=[rule]) as house:
        await house.inbox.accept([retained])

        async def decided():
            stored = await house.kit.store.read(lambda c: find_event(c, "m-1"))
            return stored if stored.decided_at else None

        stored = await house.until(decided)
        mark = await house.kit.store.read(lambda c: find_mark(c, RETAINED_TYPE, "plant/door"))
        assert await house.incidents() == []
    assert mark.value["status"] == "firing"
    assert [one["kind"] for one in stored.verdicts] == ["ignored"]
