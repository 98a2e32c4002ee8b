"""The pages about sources say every key and every reading, and their examples are what the models take."""

import re
import tomllib
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import pytest
from pydantic import TypeAdapter

from hermesd.confd import Document, named, read_folder, shipped
from hermesd.events import Event, EventStatus
from hermesd.rules.engine import judge
from hermesd.rules.rule import Rule
from hermesd.sources.health import CERTIFICATE_TYPE, LATENCY_TYPE
from hermesd.sources.mapping import Map
from hermesd.sources.mounts import Mount
from hermesd.sources.series import series_of
from hermesd.sources.settings import MqttSettings, Topic, WebhookSettings, read_source
from hermesd.sources.settings_base import Expect
from hermesd.sources.settings_health import Check, HealthSettings
from hermesd.sources.settings_host import Filesystems, Folder, HostSettings, Level
from hermesd.sources.settings_mqtt import Publish
from hermesd.sources.settings_units import UnitsSettings
from hermesd.sources.settings_webhook import Hmac, Hook, Tls
from hermesd.sources.units import CLOCK_TYPE, FAILED_TYPE, RESTARTS_TYPE

NOW = datetime(2026, 1, 1, tzinfo=UTC)
DOCS = Path(__file__).parents[2] / "docs"
LISTENING, LOOKING = ((DOCS / name).read_text() for name in ("sources.md", "sources-host.md"))
ROW = re.compile(r"^\| `(\w+)` \|.*\| (?:`(.*)`|see [^|]+) \|$", re.MULTILINE)
READING = re.compile(
    r"^\| `([a-z_.]+)` \| (\w+) \| [^|]+ \| [^|]+ \| ([^|]+) \| (?:`([a-z-]+)`|–) \|$", re.MULTILINE
)
TABLES = [
    (LISTENING, '`kind = "mqtt"`\n', MqttSettings),
    (LISTENING, "`[[topic]]`", Topic),
    (LISTENING, "`[publish]`", Publish),
    (LISTENING, '`kind = "webhook"`.', WebhookSettings),
    (LISTENING, "`[hmac]`", Hmac),
    (LISTENING, "`[tls]`", Tls),
    (LISTENING, "`[[hook]]`", Hook),
    (LISTENING, "## Mappings", Map),
    (LISTENING, "## What is expected", Expect),
    (LOOKING, '`kind = "host"`.', HostSettings),
    (LOOKING, "`[filesystems]`", Filesystems),
    (LOOKING, "`[[folder]]`", Folder),
    (LOOKING, "such as `[memory]`", Level),
    (LOOKING, '`kind = "units"`.', UnitsSettings),
    (LOOKING, '`kind = "health"`.', HealthSettings),
    (LOOKING, "`[[check]]`", Check),
]
every_table = pytest.mark.parametrize(
    ("page", "heading", "model"), TABLES, ids=[model.__name__ for _page, _heading, model in TABLES]
)


def rows(page, heading):
    """Return the rows of the first table after a heading: key and example."""
    table = page.split(heading, 1)[1].split("|---|---|---|---|\n", 1)[1].split("\n\n", 1)[0]
    return [(key, example.replace("\\|", "|")) for key, example in ROW.findall(table)]


@every_table
def test_each_table_has_every_key_of_its_model_and_no_other(page, heading, model):
    assert sorted(key for key, _example in rows(page, heading)) == sorted(model.model_fields)


@every_table
def test_each_example_is_taken_by_its_model(page, heading, model):
    fields = model.model_fields
    for key, example in rows(page, heading):
        if example:
            given = tomllib.loads(example)
            assert list(given) == [key]
            TypeAdapter(Annotated[fields[key].annotation, fields[key]]).validate_python(given[key])


@pytest.mark.parametrize(("page", "files"), [(LISTENING, 3), (LOOKING, 3)])
def test_the_examples_of_whole_files_are_taken(page, files):
    blocks = [text for text in re.findall(r"```toml\n(.*?)```", page, re.DOTALL) if text.startswith("kind")]
    assert len(blocks) == files
    for text in blocks:
        path = Path("/etc/hermesd/conf.d/sources/example.toml")
        read_source(Document("example", path, tomllib.loads(text), ((path, text),)))


def test_the_example_of_a_rule_is_taken():
    (text,) = re.findall(r"```toml\n(# /etc/hermesd/conf.d/rules.*?)```", LOOKING, re.DOTALL)
    path = Path("/etc/hermesd/conf.d/rules/busy.toml")
    named(Document("busy", path, tomllib.loads(text), ((path, text),))).read(Rule)


def everything():
    """Return all that the host source can measure: type, unit and labels of each series."""
    on = {name: Level() for name, field in HostSettings.model_fields.items() if field.annotation is Level}
    settings = HostSettings(kind="host", name="h", folder=(Folder(path="/x", budget_bytes=1),), **on)
    return series_of(settings, [Mount("/", "/dev/x", "ext4", "8:1")])


def test_the_table_of_readings_has_every_reading_with_its_unit_and_no_other():
    told = {(series.type, series.measure.unit) for series in everything()}
    told |= {(FAILED_TYPE, "flag"), (RESTARTS_TYPE, "count"), (CLOCK_TYPE, "flag")}
    told |= {(LATENCY_TYPE, "ms"), (CERTIFICATE_TYPE, "days")}
    assert {(kind, unit) for kind, unit, _labels, _rule in READING.findall(LOOKING)} == told
    assert len(READING.findall(LOOKING)) == len(told)


def test_the_table_of_readings_names_the_labels_that_rules_steer_by():
    written = {kind: set(re.findall(r"`(\w+)`", labels)) for kind, _u, labels, _r in READING.findall(LOOKING)}
    for series in everything():
        assert written[series.type] == {name for name, _value in series.labels}


def test_the_table_of_readings_says_how_small_a_change_waits():
    for series in everything():
        row = next(line for line in LOOKING.splitlines() if line.startswith(f"| `{series.type}` |"))
        default = next(
            (one.min_change for one in series_of(shipped_host(), [Mount("/", "/dev/x", "ext4", "8:1")])
             if one.type == series.type),
            None,
        )  # fmt: skip
        if default is not None:
            words = f"from {default:g} on" if default not in {0.0, 1.0} else "when it changes"
            assert words in row, row


def shipped_host():
    (document,) = [one for one in read_folder([shipped()], "sources") if one.name == "host"]
    return read_source(document)


def test_each_rule_that_the_table_names_ships_and_judges_that_reading():
    rules = {rule.name: rule for rule in (named(one).read(Rule) for one in read_folder([shipped()], "rules"))}
    for kind, _unit, _labels, rule in READING.findall(LOOKING):
        if rule:
            labels = {"stall": "full"}
            event = Event("1", "s", kind, NOW, labels=labels, status=EventStatus.READING, value=1.0)
            assert judge(rules[rule], event, None, NOW)[0].kind != "ignored", rule
            assert rules[rule].threshold is not None
            assert rules[rule].clear is not None
