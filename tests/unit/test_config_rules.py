"""What the configuration says of rules that name one another, and of maintenance windows."""

from datetime import UTC, datetime

import pytest

from hermesd.confd import ConfigError, shipped
from hermesd.config import load_config

RULE = """
match = ['type="m"']
group_by = ["host"]

[[inhibit]]
by = "{by}"
equal = ["host"]
"""


@pytest.fixture
def layer(tmp_path):
    def write(name, text):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        return [shipped(), tmp_path]

    return write


def test_a_rule_inhibited_by_one_that_is_not_there_is_refused_with_file_and_line(layer, tmp_path):
    with pytest.raises(ConfigError) as caught:
        load_config(layer("rules/mine.toml", RULE.format(by="gone")), {})
    [fault] = caught.value.faults
    assert str(fault) == f"{tmp_path}/rules/mine.toml:6: inhibit.by: there is no rule 'gone'"


def test_a_rule_may_be_inhibited_by_a_shipped_one(layer):
    config = load_config(layer("rules/mine.toml", RULE.format(by="disk-full")), {})
    assert "mine" in {rule.name for rule in config.rules}


def test_windows_are_read_from_one_file(layer):
    text = '[[window]]\nreason = "move"\nfrom = 2027-03-01T08:00:00Z\nto = 2027-03-01T12:00:00Z\n'
    [window] = load_config(layer("maintenance.toml", text), {}).maintenance
    assert window.is_open(datetime(2027, 3, 1, 9, tzinfo=UTC))
    assert not window.is_open(datetime(2027, 3, 1, 12, tzinfo=UTC))


def test_a_window_without_an_end_is_refused_with_file_and_line(layer, tmp_path):
    text = '[[window]]\nreason = "move"\nfrom = 2027-03-01T08:00:00Z\n'
    with pytest.raises(ConfigError, match="either from and to, or at and for") as caught:
        load_config(layer("maintenance.toml", text), {})
    assert f"{tmp_path}/maintenance.toml:1" in str(caught.value)
