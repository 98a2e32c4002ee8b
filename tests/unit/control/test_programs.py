"""The program that a definition names: whose it must be, and that it is the same one at every call."""

import os

import pytest

from hermesd.control.catalogue import Command, CommandSpec, identify


@pytest.fixture
def program(tmp_path, needs):
    needs(os.geteuid() == 0, "root, whose a program has to be")
    path = tmp_path / "look"
    path.write_text("#!/bin/true\n")
    path.chmod(0o755)
    return path


def spec_of(path):
    return CommandSpec(
        name="test:look",
        description="A command for the tests, long enough.",
        effect="read",
        permission="public",
        executable=str(path),
    )


def test_a_program_that_is_roots_alone_may_be_named(program):
    found = program.stat()
    assert identify(spec_of(program)) == ((found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns), "")


@pytest.mark.parametrize(
    ("owner", "mode", "words"),
    [
        (0, 0o775, "writable by root alone"),
        (0, 0o757, "writable by root alone"),
        (65534, 0o755, "must belong to root"),
        (0, 0o644, "is not a program"),
        (0, 0o4755, "set-user-id"),
        (0, 0o2755, "set-user-id or set-group-id"),
    ],
)
def test_a_program_that_somebody_else_may_change_or_that_takes_more_rights_is_a_fault(
    program, owner, mode, words
):
    os.chown(program, owner, 0)
    program.chmod(mode)
    _identity, fault = identify(spec_of(program))
    assert fault.startswith("!executable: ")
    assert words in fault


def test_a_program_that_is_not_there_makes_a_command_unusable_and_is_no_fault(program):
    program.unlink()
    assert identify(spec_of(program))[1] == f"{program} is not installed on this host"


def test_a_link_to_what_no_command_may_name_is_a_fault(program):
    (program.parent / "nice_name").symlink_to("/usr/bin/env")
    assert "runs other programs" in identify(spec_of(program.parent / "nice_name"))[1]


@pytest.mark.parametrize("how", ["replaced", "written", "removed"])
def test_a_program_that_is_another_one_since_the_policy_was_read_is_seen(program, how):
    spec = spec_of(program)
    command = Command(spec, 1000, identify(spec)[0])
    assert not command.changed()
    if how == "replaced":
        other = program.with_suffix(".new")
        other.write_text("#!/bin/true\n")
        other.chmod(0o755)
        other.replace(program)
    elif how == "written":
        program.write_text("#!/bin/false\n")
    else:
        program.unlink()
    assert command.changed()


async def test_a_call_of_a_program_that_changed_since_is_refused_before_anything_starts(house):
    async with house.open() as gate:
        name = "system:load"
        command = gate.policy.commands[name]
        gate.policy.commands[name] = Command(command.spec, command.timeout_ms, (0, 0, 0, 1))
        result = await gate.run(house.request(name), lambda _p: None)
    assert (result.status, "changed since the policy was read" in result.reason) == ("refused", True)
    assert house.sandbox.started == []
