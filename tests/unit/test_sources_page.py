"""docs/sources.md says every key of the listening sources, and its examples are what the models take."""

import re
import tomllib
from pathlib import Path
from typing import Annotated

import pytest
from pydantic import TypeAdapter

from hermesd.confd import Document
from hermesd.sources.mapping import Map
from hermesd.sources.settings import MqttSettings, Topic, WebhookSettings, read_source
from hermesd.sources.settings_base import Expect
from hermesd.sources.settings_mqtt import Publish
from hermesd.sources.settings_webhook import Hmac, Hook, Tls

PAGE = (Path(__file__).parents[2] / "docs" / "sources.md").read_text()
ROW = re.compile(r"^\| `(\w+)` \|.*\| (?:`(.*)`|see [^|]+) \|$", re.MULTILINE)
TABLES = {
    '`kind = "mqtt"`\n': MqttSettings,
    "`[[topic]]`": Topic,
    "`[publish]`": Publish,
    '`kind = "webhook"`.': WebhookSettings,
    "`[hmac]`": Hmac,
    "`[tls]`": Tls,
    "`[[hook]]`": Hook,
    "## Mappings": Map,
    "## What is expected": Expect,
}


def rows(heading):
    """Return the rows of the first table after a heading: key and example."""
    table = PAGE.split(heading, 1)[1].split("|---|---|---|---|\n", 1)[1].split("\n\n", 1)[0]
    return [(key, example.replace("\\|", "|")) for key, example in ROW.findall(table)]


@pytest.mark.parametrize("heading", TABLES)
def test_each_table_has_every_key_of_its_model_and_no_other(heading):
    assert sorted(key for key, _example in rows(heading)) == sorted(TABLES[heading].model_fields)


@pytest.mark.parametrize("heading", TABLES)
def test_each_example_is_taken_by_its_model(heading):
    fields = TABLES[heading].model_fields
    for key, example in rows(heading):
        if example:
            given = tomllib.loads(example)
            assert list(given) == [key]
            TypeAdapter(Annotated[fields[key].annotation, fields[key]]).validate_python(given[key])


def test_the_examples_of_whole_files_are_taken():
    blocks = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    assert len(blocks) == 3
    for text in blocks:
        path = Path("/etc/hermesd/conf.d/sources/example.toml")
        read_source(Document("example", path, tomllib.loads(text), ((path, text),)))
