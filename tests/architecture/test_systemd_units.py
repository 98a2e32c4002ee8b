"""The units hold what the processes need and no more, as systemd itself judges it."""

import configparser
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
UNITS = {"hermesd.service": "1.5", "hermesd-executor.service": "2.0"}
ANALYZE = shutil.which("systemd-analyze")


@pytest.fixture
def analyze(needs):
    needs(ANALYZE is not None, "systemd-analyze (Debian package systemd)")

    def run(*arguments):
        done = subprocess.run([ANALYZE, *arguments], capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr

    return run


def settings(unit):
    parser = configparser.ConfigParser(strict=False, interpolation=None, delimiters=("=",))
    parser.optionxform = str
    parser.read(ROOT / "systemd" / unit)
    return parser["Service"]


@pytest.mark.parametrize("unit", UNITS)
def test_systemd_understands_every_line_of_the_unit(analyze, unit):
    _, text = analyze("verify", "--man=no", f"{ROOT}/systemd/{unit}")
    # Where hermesd is not installed its program is not there: the one complaint that is expected.
    assert [line for line in text.splitlines() if "/usr/bin/hermesd is not executable" not in line] == []


@pytest.mark.parametrize(("unit", "goal"), UNITS.items())
def test_the_unit_is_exposed_no_more_than_its_goal(analyze, unit, goal):
    _, text = analyze("security", "--offline=true", "--no-pager", f"{ROOT}/systemd/{unit}")
    found = re.search(r"Overall exposure level for \S+: ([\d.]+)", text)
    assert found, text
    assert float(found[1]) <= float(goal)


@pytest.mark.parametrize("unit", UNITS)
def test_the_unit_waits_longer_for_a_stop_than_the_process_takes(unit):
    from hermesd.lifecycle import STOP_SECONDS, STUCK_SECONDS

    assert float(settings(unit)["TimeoutStopSec"]) > STOP_SECONDS + STUCK_SECONDS


@pytest.mark.parametrize("unit", UNITS)
def test_a_wrong_file_does_not_make_systemd_start_again_and_again(unit):
    from hermesd.cli import EXIT_CONFIG

    assert settings(unit)["RestartPreventExitStatus"] == str(EXIT_CONFIG)


def test_the_executor_has_no_network_and_cannot_read_the_key():
    executor = settings("hermesd-executor.service")
    assert executor["PrivateNetwork"] == "yes"
    assert "/etc/hermesd/api_key" in executor["InaccessiblePaths"]
    assert "LoadCredential" not in executor


def test_the_agent_reaches_no_engine_and_no_namespace():
    agent = settings("hermesd.service")
    assert agent["RestrictNamespaces"] == "yes"
    assert agent["CapabilityBoundingSet"] == ""
    assert "/run/docker.sock" in agent["InaccessiblePaths"]


def test_the_two_processes_are_two_users():
    users = {unit: settings(unit)["User"] for unit in UNITS}
    assert users == {"hermesd.service": "hermesd", "hermesd-executor.service": "hermesd-executor"}
    declared = (ROOT / "systemd/sysusers.d/hermesd.conf").read_text()
    assert {name for name in users.values() if re.search(rf"^u {name}\s", declared, re.MULTILINE)} == set(
        users.values()
    )


def test_the_state_that_one_unit_hides_from_the_other_stands_before_either_starts():
    lines = (ROOT / "systemd/tmpfiles.d/hermesd.conf").read_text().splitlines()
    made = {line.split()[1] for line in lines if line.startswith("d ")}
    hidden = {path.lstrip("-") for unit in UNITS for path in settings(unit)["InaccessiblePaths"].split()}
    state = {path for path in hidden if path.startswith("/var/lib/hermesd")}
    assert state == {"/var/lib/hermesd", "/var/lib/hermesd-executor"}
    assert state <= made
