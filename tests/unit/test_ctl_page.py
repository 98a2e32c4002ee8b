"""The operator's page about hermesctl says what hermesctl is: every command, option and exit code."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

from hermesd.ctl.exits import Exit
from hermesd.ctl.main import cli

PAGE = (Path(__file__).parents[2] / "docs" / "hermesctl.md").read_text(encoding="utf-8")
HEADINGS = "\n".join(line for line in PAGE.splitlines() if line.startswith("### "))


def leaves(command: click.Command, path: str = "hermesctl"):
    if isinstance(command, click.Group):
        for name, inner in command.commands.items():
            yield from leaves(inner, f"{path} {name}")
    else:
        yield path, command


COMMANDS = dict(leaves(cli))


@pytest.mark.parametrize("path", COMMANDS)
def test_every_command_has_its_place_and_a_real_example(path):
    assert re.search(rf"`{path}[ `]", HEADINGS)
    assert re.search(rf"^\$ {path}\b", PAGE, re.MULTILINE)


def test_every_heading_names_a_command_that_exists():
    named = re.findall(r"`(hermesctl [a-z ]+?)(?: [A-Z\[]|`| \[)", HEADINGS)
    assert set(named) == set(COMMANDS)


@pytest.mark.parametrize("path", COMMANDS)
def test_every_option_of_a_command_is_named(path):
    for param in COMMANDS[path].params:
        if isinstance(param, click.Option) and not param.hidden:
            assert f"{param.opts[0]}" in HEADINGS, f"{path} {param.opts[0]}"


def test_every_exit_code_is_in_the_table():
    listed = {int(code) for code in re.findall(r"^\| (\d+) \|", PAGE, re.MULTILINE)}
    assert listed == {int(code) for code in Exit}
