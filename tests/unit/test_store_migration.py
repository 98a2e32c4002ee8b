"""A store of an earlier version keeps what it holds."""

import sqlite3
from contextlib import closing
from datetime import UTC, datetime

from hermesd.state import incidents, rule_states
from hermesd.state.schema import MIGRATIONS
from hermesd.state.store import open_store

OPENED = "2026-03-01T12:00:00+00:00"
STATE = '{"pending_since":null,"opened_at":null,"incident_id":"","last_run_at":null,"subjects":[]}'


async def test_a_store_of_the_first_version_is_taken_over_with_its_incidents_and_what_rules_remember(
    tmp_path,
):
    path = tmp_path / "state.db"
    with closing(sqlite3.connect(path)) as first:
        for statement in MIGRATIONS[0]:
            first.execute(statement)
        first.execute(
            "INSERT INTO incidents (id, rule, fingerprint, title, labels, severity, opened_at, last_event_at,"
            " status, events, unit) VALUES ('i', 'r', 'f', 't', '{}', 'info', ?, ?, 'open', 3, '')",
            (OPENED, OPENED),
        )
        first.execute("INSERT INTO rule_states (rule, fingerprint, state) VALUES ('r', 'f', ?)", (STATE,))
        first.execute("PRAGMA user_version = 1")
        first.commit()
    with closing(open_store(path)) as store:
        [incident] = await store.read(lambda c: incidents.list_incidents(c, include_resolved=True))
        [row] = await store.read(rule_states.rule_states)
    assert (incident.events, incident.opened_at, incident.escalated) == (
        3,
        datetime(2026, 3, 1, 12, 0, tzinfo=UTC),
        "",
    )
    assert (row.rule, row.due_at, row.event) == ("r", None, None)
