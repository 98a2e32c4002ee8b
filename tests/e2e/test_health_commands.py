"""Health checks by command through both real processes: the agent asks, the executor runs, in a container."""

import pytest

pytestmark = pytest.mark.slow

SOURCE = """
kind = "health"
enabled = true
interval_s = 0.5

[[check]]
name = "has-load"
url = "command:system:load"
timeout_s = 20

[[check]]
name = "too-quiet"
url = "command:system:load"
body = "no load average says this"
timeout_s = 20

[[check]]
name = "cleaner"
url = "command:fs:cleanup"
times = 1
timeout_s = 20
"""


async def test_a_read_says_up_or_down_and_what_changes_something_is_never_asked_for(pair):
    pair.write("sources/health.toml", SOURCE)
    await pair.start()

    async def open_ones():
        found = (await pair.agent("incidents", limit=50))["incidents"]
        names = {one["labels"]["check"] for one in found if one["status"] != "resolved"}
        return found if {"too-quiet", "cleaner"} <= names else None

    incidents = await pair.until(open_ones, 60)
    assert {one["labels"]["check"] for one in incidents} == {"too-quiet", "cleaner"}
    assert (await pair.executor("approvals"))["operations"] == []
    assert (await pair.executor("status"))["usable"]
