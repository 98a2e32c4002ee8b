"""Helpers: what permissions.toml may ask for, the units made of it, and what `check` says of those."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from hermesd.confd import ConfigError
from hermesd.control.helper_units import MARK, alias_faults, files_of, program_fault
from hermesd.control.helpers import ACTIONS, helper_for
from hermesd.control.settings import load_policy
from hermesd.unit_sync import compared, sync_units

SHIPPED = Path(__file__).parents[3] / "conf.d"
ALL = """\
[reach]
readable_roots = ["/var"]
writable_roots = ["/var/cache"]
[helpers.web-restart]
command = "unit:restart"
args = { unit = "nginx.service" }
[helpers.web-reload]
command = "unit:reload"
args = { unit = "nginx.service" }
[helpers.web-reset]
command = "unit:reset_failed"
args = { unit = "nginx.service" }
[helpers.journal]
command = "journal:vacuum"
args = { keep_mb = 500 }
[helpers.packages]
command = "package:clean_cache"
[helpers.web-logs]
command = "log:rotate"
args = { name = "nginx" }
[helpers.cache]
command = "fs:cleanup"
args = { path = "/var/cache/myapp" }
"""
GOALS = {"web-logs": 1.6}


def layers(folder, text=ALL):
    (folder / "conf.d").mkdir(exist_ok=True)
    (folder / "conf.d" / "permissions.toml").write_text(text)
    return [SHIPPED, folder / "conf.d"]


@pytest.fixture
def policy(tmp_path):
    return load_policy(layers(tmp_path))


@pytest.fixture
def units(tmp_path):
    folder = tmp_path / "system"
    folder.mkdir()
    return folder


def section(command, args):
    return f'[reach]\nwritable_roots = ["/var/cache"]\n[helpers.one]\ncommand = "{command}"\nargs = {args}\n'


def test_every_command_that_may_have_a_helper_has_one_here_and_none_is_there_by_default(policy):
    assert {helper.command for helper in policy.helpers} == set(ACTIONS)
    assert load_policy([SHIPPED]).helpers == ()


@pytest.mark.parametrize(
    ("command", "args", "line", "words"),
    [
        ("unit:restart", '{ unit = "systemd-journald.service" }', 5, "keeps records"),
        ("unit:restart", '{ unit = "rsyslog.service" }', 5, "keeps records"),
        ("unit:reload", '{ unit = "auditd.service" }', 5, "keeps records"),
        ("unit:restart", '{ unit = "dbus.service" }', 5, "keeps records"),
        ("unit:restart", '{ unit = "dbus.socket" }', 5, "keeps records"),
        ("unit:restart", '{ unit = "hermesd-executor.service" }', 5, "keeps records"),
        ("unit:reset_failed", '{ unit = "hermesd.service" }', 5, "keeps records"),
        ("unit:restart", '{ unit = "hermesd-do-one.socket" }', 5, "keeps records"),
        ("unit:restart", '{ unit = "systemd-reboot.service" }', 5, "keeps records"),
        ("unit:restart", '{ unit = "emergency.service" }', 5, "keeps records"),
        ("unit:restart", '{ unit = "user@0.service" }', 5, "keeps records"),
        ("unit:restart", '{ unit = "poweroff.target" }', 5, "stands for more"),
        ("unit:restart", '{ unit = "system.slice" }', 5, "stands for more"),
        ("unit:restart", '{ unit = "var.mount" }', 5, "stands for more"),
        ("unit:restart", '{ unit = "backup@.service" }', 5, "template"),
        ("unit:restart", '{ unit = "nginx" }', 5, "name of a unit"),
        ("unit:restart", '{ unit = "--all" }', 5, "may not begin"),
        ("unit:restart", "{}", 5, "is missing"),
        ("unit:restart", '{ unit = "nginx.service", verb = "stop" }', 5, "no such argument"),
        ("unit:status", '{ unit = "nginx.service" }', 4, "can have no helper"),
        ("shell:run", "{}", 4, "can have no helper"),
        ("journal:vacuum", "{ keep_mb = 0 }", 5, "at least 50"),
        ("journal:vacuum", '{ keep_mb = "1" }', 5, "integer"),
        ("log:rotate", '{ name = "../shadow" }', 5, "must match"),
        ("fs:cleanup", '{ path = "/var" }', 5, "reaches hermesd"),
        ("fs:cleanup", '{ path = "/etc" }', 5, "outside"),
        ("fs:cleanup", '{ path = "/var/lib/hermesd" }', 5, "own state"),
        ("fs:cleanup", '{ path = "/var/log/journal" }', 5, "log that services"),
        ("fs:cleanup", '{ path = "/var/spool" }', 5, "no writable root"),
        ("fs:cleanup", '{ path = "/var/cache/%n" }', 5, "no unit file may"),
        ("fs:cleanup", '{ path = "/var/cache/a", older_than_s = 0 }', 5, "no such argument"),
    ],
)
def test_a_helper_that_crosses_a_line_is_refused_with_its_line(tmp_path, command, args, line, words):
    with pytest.raises(ConfigError) as error:
        load_policy(layers(tmp_path, section(command, args)))
    fault = next(fault for fault in error.value.faults if re.search(words, fault.reason))
    assert (fault.file.name, fault.line) == ("permissions.toml", line)


@pytest.mark.parametrize("name", ["Web", "a b", '"a/b"', '"../x"', '"-x"', f'"{"x" * 41}"'])
def test_the_name_of_a_helper_cannot_be_anything_but_a_name(tmp_path, name):
    name = name if name.startswith('"') else f'"{name}"'
    text = f'[helpers.{name}]\ncommand = "unit:restart"\nargs = {{ unit = "nginx.service" }}\n'
    with pytest.raises(ConfigError, match="no name of a helper"):
        load_policy(layers(tmp_path, text))


def test_only_a_request_with_exactly_the_fixed_values_is_served(policy):
    def serves(command, **values):
        found = helper_for(policy.helpers, command, values)
        return found.name if found else None

    assert serves("unit:restart", unit="nginx.service") == "web-restart"
    assert serves("unit:reload", unit="nginx.service") == "web-reload"
    assert serves("unit:restart", unit="nginx.socket") is None
    assert serves("journal:vacuum", keep_mb=500) == "journal"
    assert serves("journal:vacuum", keep_mb=499) is None
    assert serves("fs:cleanup", path="/var/cache/myapp", kinds=["caches"]) == "cache"
    assert serves("fs:cleanup", path="/var/cache/myapp/deep") == "cache"
    assert serves("fs:cleanup", path="/var/cache/myapp2") is None
    assert serves("fs:cleanup", path="/var/cache") is None


def test_a_service_runs_one_line_that_holds_the_fixed_values_and_may_write_only_what_it_needs(policy):
    files = files_of(policy.helpers, "hermesd-executor", Path("/usr/lib/hermesd/host_action.py"))
    assert len(files) == 14

    def service(name):
        lines = files[f"hermesd-do-{name}@.service"].splitlines()
        return {key: value for key, _, value in (line.partition("=") for line in lines)}

    restart = service("web-restart")
    assert restart["ExecStart"] == (
        "/usr/bin/python3 -I -S -B /usr/lib/hermesd/host_action.py "
        "run 60 /usr/bin/systemctl --no-ask-password --no-pager restart -- nginx.service"
    )
    assert restart["CapabilityBoundingSet"] == ""
    assert "ReadWritePaths" not in restart
    cache = service("cache")
    assert cache["ExecStart"].endswith("host_action.py remove 60 /var/cache/myapp")
    assert cache["CapabilityBoundingSet"] == "CAP_DAC_OVERRIDE"
    assert cache["ReadWritePaths"] == "/var/cache/myapp"
    assert "/run/systemd/private" in cache["InaccessiblePaths"]
    for name, text in files.items():
        if name.endswith(".socket"):
            assert "SocketGroup=hermesd-executor\nSocketMode=0660\n" in text
            assert "Accept=yes\n" in text


ANALYZE = shutil.which("systemd-analyze")


def test_systemd_understands_every_line_and_finds_each_service_little_exposed(policy, units, needs):
    needs(ANALYZE is not None, "systemd-analyze (Debian package systemd)")
    files = files_of(policy.helpers, "root")
    for name, text in files.items():
        (units / name).write_text(text)
    sockets = [units / name for name in files if name.endswith(".socket")]
    done = subprocess.run(
        [ANALYZE, "verify", "--man=no", *sockets], capture_output=True, text=True, check=False
    )
    ours = [line for line in (done.stdout + done.stderr).splitlines() if "hermesd-do" in line]
    # Where a program is not installed that is said, and nothing else.
    assert [line for line in ours if "is not executable" not in line] == []
    for helper in policy.helpers:
        path = units / f"{helper.unit}@.service"
        done = subprocess.run(
            [ANALYZE, "security", "--offline=true", "--no-pager", path],
            capture_output=True,
            text=True,
            check=False,
        )
        found = re.search(r"Overall exposure level for \S+: ([\d.]+)", done.stdout)
        assert found, done.stdout + done.stderr
        assert float(found[1]) <= GOALS.get(helper.name, 1.0), helper.name


def test_sync_writes_what_is_asked_for_once_and_removes_what_is_not_any_more(tmp_path, units):
    first = sync_units(layers(tmp_path), units, dry_run=False)
    assert first.faults == 0, first.lines
    assert len(list(units.iterdir())) == 14
    assert "  systemctl daemon-reload" in first.lines
    again = sync_units(layers(tmp_path), units, dry_run=False)
    assert again.lines == ("7 helpers, all as permissions.toml says",)
    (units / "hermesd-do-mine.service").write_text("[Service]\nExecStart=/bin/true\n")
    fewer = ALL.partition("[helpers.web-reload]")[0]
    dry = sync_units(layers(tmp_path, fewer), units, dry_run=True)
    assert sum("would be removed" in line for line in dry.lines) == 12
    assert len(list(units.iterdir())) == 15
    sync_units(layers(tmp_path, fewer), units, dry_run=False)
    left = sorted(path.name for path in units.iterdir())
    assert left == [
        "hermesd-do-mine.service",
        "hermesd-do-web-restart.socket",
        "hermesd-do-web-restart@.service",
    ]


def test_a_file_that_somebody_else_wrote_is_left_and_told(tmp_path, units):
    foreign = units / "hermesd-do-web-restart.socket"
    foreign.write_text("[Socket]\nListenStream=/run/mine\n")
    report = sync_units(layers(tmp_path), units, dry_run=False)
    assert report.faults == 1
    assert f"{foreign} is there and was not written by hermesd" in report.lines[0]
    assert foreign.read_text() == "[Socket]\nListenStream=/run/mine\n"


def test_check_names_the_file_that_differs_and_only_notes_what_is_not_installed(tmp_path, units):
    policy = load_policy(layers(tmp_path))
    bare = compared(policy, units)
    assert bare.faults == ()
    assert len(bare.notes) == 7
    sync_units(layers(tmp_path), units, dry_run=False)
    assert compared(policy, units) == type(bare)((), ())
    changed = units / "hermesd-do-web-restart@.service"
    changed.write_text(changed.read_text().replace("nginx.service", "sshd.service"))
    (units / "hermesd-do-old.socket").write_text(f"{MARK}\n")
    found = compared(policy, units).faults
    assert [line.split()[0] for line in found] == [str(changed), f"{units}/hermesd-do-old.socket"]


def test_another_name_of_a_unit_opens_no_line(tmp_path, policy):
    system = tmp_path / "etc/systemd/system"
    system.mkdir(parents=True)
    (system / "rsyslog.service").write_text("")
    (system / "nginx.service").symlink_to(system / "rsyslog.service")
    (fault, *_more) = alias_faults(policy.helpers, tmp_path)
    assert "nginx.service is another name of rsyslog.service" in fault


def test_a_program_that_others_can_change_is_not_installed_for_root(tmp_path):
    program = tmp_path / "host_action.py"
    program.write_text("")
    program.chmod(0o666)
    assert "can be changed by others" in program_fault(program)
