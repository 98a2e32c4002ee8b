"""docs/rules.md says every key of a rule, and its examples are what the models take."""

import re
import tomllib
from pathlib import Path

from hermesd.rules.maintenance import MaintenanceFile
from hermesd.rules.rule import Mode, Rule
from hermesd.rules.verdict import HoldKind

PAGE = (Path(__file__).parents[2] / "docs" / "rules.md").read_text()
ROWS = re.findall(r"^\| `(\w+)` \|.*\| `([^`]+)` \|$", PAGE, re.MULTILINE)
WHOLE = {"name": "page", "match": ['type="m"'], "group_by": [], "run": {"goal": "Look"}}
TOGETHER = {
    "clear": {"threshold": {"op": ">", "value": 80}},
    "count": {"window": "1m"},
    "window": {"count": 2},
}


def test_the_table_has_every_key_of_a_rule_and_no_other():
    written = {field.alias or name for name, field in Rule.model_fields.items()}
    assert sorted(key for key, _example in ROWS) == sorted(written)


def test_each_example_is_taken_by_a_rule():
    for key, example in ROWS:
        given = tomllib.loads(example)
        assert list(given) == [key]
        Rule.model_validate({**WHOLE, **TOGETHER.get(key, {}), **given})


def test_each_mode_and_each_reason_to_start_nothing_is_named():
    assert {name for name in Mode if f"`{name}`" not in PAGE} == set()
    assert {name for name in HoldKind if f"`{name}`" not in PAGE} == set()


def test_the_example_of_windows_is_taken():
    [text] = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    assert len(MaintenanceFile.model_validate(tomllib.loads(text)).window) == 2
