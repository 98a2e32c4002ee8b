"""What a rule file may say, and what a wrong one is told."""

from pathlib import Path

import pytest

from hermesd.confd import ConfigError, Document, named, read_file, read_folder, shipped
from hermesd.rules.rule import Rule, Threshold

GOOD = """
description = "A disk"
match = ['type=~"host[.](filesystem|folder)"', 'path!="/boot"']
title = "Disk {path} on {host} is {value:.0f} % full"
group_by = ["host", "path"]
severity = "critical"
for = "1m30s"
cooldown = "1h"

[threshold]
op = ">"
value = 80

[clear]
op = "<"
value = 75

[run]
runbook = "disk-full"
goal = "Find what fills {path} on {host}"
"""


def document(tmp_path: Path, text: str, name: str = "disk.toml") -> Document:
    (tmp_path / name).write_text(text)
    found = read_file([tmp_path], name)
    assert found is not None
    return named(found)


def faults(tmp_path: Path, text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        document(tmp_path, text).read(Rule)
    return [str(fault).replace(f"{tmp_path}/", "") for fault in caught.value.faults]


def test_a_whole_file_is_read_with_durations_in_seconds_and_compiled_matchers(tmp_path):
    rule = document(tmp_path, GOOD).read(Rule)
    assert (rule.name, rule.for_seconds, rule.cooldown_seconds) == ("disk", 90.0, 3600.0)
    assert [str(matcher) for matcher in rule.match] == [
        'type=~"host[.](filesystem|folder)"',
        'path!="/boot"',
    ]
    assert rule.run is not None
    assert rule.run.runbook == "disk-full"


def test_a_rule_that_names_itself_keeps_its_name(tmp_path):
    assert document(tmp_path, 'name = "mine"\n' + GOOD).read(Rule).name == "mine"


def test_without_clear_a_rule_ends_where_its_threshold_stops_holding(tmp_path):
    rule = document(tmp_path, GOOD.replace('[clear]\nop = "<"\nvalue = 75\n', "")).read(Rule)
    assert rule.clear is None
    assert rule.ends == Threshold(op="<=", value=80)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ('for = "1m30s"', "for = 90", "disk.toml:7: for: "),
        ('for = "1m30s"', 'for = "90"', "disk.toml:7: for: "),
        ('cooldown = "1h"', 'cooldown = "1 h"', "disk.toml:8: cooldown: "),
        ("'path!=\"/boot\"'", "'path!'", "disk.toml:3: match.1: "),
        ('(filesystem|folder)"', '(filesystem|folder"', "disk.toml:3: match.0: "),
        ('(filesystem|folder)"', '(?=folder)"', "disk.toml:3: match.0: "),
        ("{value:.0f}", "{value:999999999f}", "disk.toml:4: title: "),
        ("{host}", "{host.__class__}{", "disk.toml:4: title: "),
        ('group_by = ["host", "path"]', "", "disk.toml: group_by is missing"),
        ('severity = "critical"', 'severity = "bad"', "disk.toml:6: severity: "),
        ('op = ">"', 'op = "=="', "disk.toml:11: threshold.op: "),
        ("value = 80", "value = nan", "disk.toml:12: threshold.value: "),
        ("value = 80", 'value = "80"', "disk.toml:12: threshold.value: "),
        ("value = 80", "value = true", "disk.toml:12: threshold.value: "),
        ("description", "descripton", "disk.toml:2: descripton: there is no such setting"),
        ('runbook = "disk-full"', 'runbook = "../../etc"', "disk.toml:19: run.runbook: "),
    ],
)
def test_a_wrong_setting_is_named_with_its_file_and_line(tmp_path, old, new, expected):
    assert old in GOOD
    assert any(fault.startswith(expected) for fault in faults(tmp_path, GOOD.replace(old, new, 1)))


@pytest.mark.parametrize(
    ("op", "value", "reason"),
    [
        ("<", 90, "a value can meet both"),
        ("<=", 80.5, "a value can meet both"),
        (">", 75, "points the same way"),
    ],
)
def test_a_clear_that_overlaps_its_threshold_is_refused(tmp_path, op, value, reason):
    text = GOOD.replace('op = "<"\nvalue = 75', f'op = "{op}"\nvalue = {value}')
    assert any(reason in fault for fault in faults(tmp_path, text))


def test_a_clear_that_touches_its_threshold_is_refused_only_if_one_value_meets_both(tmp_path):
    touching = GOOD.replace('op = "<"\nvalue = 75', 'op = "<="\nvalue = 80')
    assert document(tmp_path, touching).read(Rule).clear is not None
    both = touching.replace('op = ">"', 'op = ">="')
    assert any("both" in fault for fault in faults(tmp_path, both))


def test_a_clear_without_a_threshold_is_refused(tmp_path):
    text = GOOD.replace('[threshold]\nop = ">"\nvalue = 80\n', "")
    assert any("clear without a threshold" in fault for fault in faults(tmp_path, text))


def test_a_rule_that_matches_everything_by_saying_nothing_is_refused(tmp_path):
    start = GOOD.index("match")
    text = GOOD[:start] + "match = []" + GOOD[GOOD.index("\ntitle") :]
    assert any("match" in fault for fault in faults(tmp_path, text))


def test_every_shipped_rule_is_read_and_the_defaults_are_there():
    rules = {
        rule.name: rule for rule in (named(found).read(Rule) for found in read_folder([shipped()], "rules"))
    }
    assert {"disk-full", "health-down", "alertmanager", "memory"} <= set(rules)
    disk = rules["disk-full"]
    assert (disk.threshold, disk.clear) == (Threshold(op=">", value=80), Threshold(op="<", value=75))
    assert rules["memory"].for_seconds == 300.0
