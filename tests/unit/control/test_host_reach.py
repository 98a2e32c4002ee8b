"""What of the host a shipped command is given beside its roots: one namespace, one socket, named groups."""

from pathlib import Path

import pytest

from hermesd.control import host
from hermesd.control.binding import Bound, bind
from hermesd.control.redlines import BUS_SOCKET
from hermesd.control.settings import load_policy
from hermesd.protocol import CommandRequest, Effect

SHIPPED = Path(__file__).parents[3] / "conf.d"
POLICY = load_policy([SHIPPED])
SPECS = {name: command.spec for name, command in sorted(POLICY.commands.items())}


def bound(name):
    """Return the command's own example as it would run, None where this host lacks what it needs."""
    args = {arg: spec.examples[0] for arg, spec in SPECS[name].args.items() if spec.examples}
    request = CommandRequest(request_id="r1", task_id="t1", intent="a test", command=name, args=args)
    found = bind(POLICY, request, host)
    return found if isinstance(found, Bound) else None


@pytest.mark.parametrize("name", [name for name, spec in SPECS.items() if spec.sandbox.dbus])
def test_a_command_with_the_bus_only_reads_and_is_given_its_one_socket_and_no_folder(name):
    spec = SPECS[name]
    assert spec.effect is Effect.READ
    assert (spec.sandbox.host_pid, spec.sandbox.mounts, spec.sandbox.mounts_if_there) == (False, (), ())
    if found := bound(name):
        assert (found.profile.files, found.profile.mounts) == ((BUS_SOCKET,), ())


@pytest.mark.parametrize("name", [name for name, spec in SPECS.items() if spec.sandbox.host_pid])
def test_a_command_that_sees_the_hosts_processes_only_reads_and_is_given_no_socket(name):
    spec = SPECS[name]
    assert spec.effect is Effect.READ
    assert (spec.sandbox.dbus, spec.sandbox.network) == (False, "none")
    if found := bound(name):
        assert found.profile.files == ()
        assert all(mount.mode == "ro" for mount in found.profile.mounts)


def test_no_command_but_those_about_processes_and_their_files_sees_the_hosts_processes():
    seeing = {name for name, spec in SPECS.items() if spec.sandbox.host_pid}
    assert {name.partition(":")[0] for name in seeing} <= {"process", "net", "system"}


def test_the_groups_that_commands_name_are_those_of_the_logs_and_nothing_that_gives_power():
    named = {group for spec in SPECS.values() for group in spec.sandbox.groups}
    assert named <= {"adm", "systemd-journal", "utmp"}
