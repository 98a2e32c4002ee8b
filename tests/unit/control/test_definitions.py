"""What a definition may never ask for, each refused at load with file and line."""

import pytest

from hermesd.confd import ConfigError
from hermesd.control.redlines import link_fault
from hermesd.control.settings import load_policy

GOOD = """\
name        = "test:look"
description = "A command for the tests, long enough to be a description."
effect      = "read"
permission  = "public"
executable  = "/usr/bin/cat"
argv        = ["--", "{path}"]

[args.path]
type        = "path"
description = "What to show"
roots       = ["/var"]
default     = "/var/log"
"""


def load(tmp_path, text, permissions=""):
    (tmp_path / "commands").mkdir(exist_ok=True)
    (tmp_path / "commands" / "bad.toml").write_text(text)
    (tmp_path / "permissions.toml").write_text(permissions)
    return load_policy([tmp_path])


def test_the_good_definition_that_the_bad_ones_are_made_of_loads(tmp_path):
    assert list(load(tmp_path, GOOD).commands) == ["test:look"]


@pytest.mark.parametrize(
    ("change", "line", "words"),
    [
        (('effect      = "read"', 'effect      = "change"'), 4, "never public"),
        (('effect      = "read"', 'effect      = "destroy"'), 4, "never public"),
        (('effect      = "read"', 'effect      = "send"'), 4, "never public"),
        (('effect      = "read"', 'effect      = "read"\ncosts = true'), 5, "never public"),
        (('"public"', '"internal"\noverwrites = true'), 3, "preview"),
        (("/usr/bin/cat", "/usr/bin/bash"), 5, "runs other programs"),
        (("/usr/bin/cat", "/usr/bin/python3.11"), 5, "runs other programs"),
        (("/usr/bin/cat", "/usr/bin/env"), 5, "runs other programs"),
        (("/usr/bin/cat", "/tmp/cat"), 5, "lies in /usr/bin"),
        (("/usr/bin/cat", "cat"), 5, "lies in /usr/bin"),
        (('["--", "{path}"]', '["--files0-from={path}"]'), 6, "neither a literal nor exactly one"),
        (('["--", "{path}"]', '["-exec", "{path}"]'), 6, "runs, writes or reaches"),
        (('["--", "{path}"]', '["{path}", "{other}"]'), 6, "not an argument"),
        (('["--", "{path}"]', '["--"]'), 6, "is not used"),
        (('["/var"]', '["/run"]'), 11, "never given"),
        (('["/var"]', '["/proc"]'), 11, "never given"),
        (('["/var"]', '["/"]'), 11, "whole file system"),
        (('["/var"]', '["/var/lib/hermesd"]'), 11, "own state"),
        (('["/var"]', '["/var/lib/hermesd-executor/audit"]'), 11, "own state"),
        (('["/var"]', '["/var/../etc"]'), 11, "'..'"),
        (('default     = "/var/log"', 'default     = "/etc"'), 12, "outside"),
        (('"path"\ndescription', '"path"\npattern = "(a+)+"\ndescription'), 10, "repeat inside a repeat"),
        (('permission  = "public"', 'permission  = "public"\nshell = true'), 5, "no such setting"),
        (('effect      = "read"', 'effect      = "readd"'), 3, "read"),
        (("executable ", "nothing "), 5, "no such setting"),
    ],
)
def test_a_definition_that_crosses_a_line_is_refused_with_its_line(tmp_path, change, line, words):
    text = GOOD.replace(*change, 1)
    assert text != GOOD
    with pytest.raises(ConfigError) as error:
        load(tmp_path, text)
    fault = next(fault for fault in error.value.faults if words in fault.reason)
    assert (fault.file.name, fault.line) == ("bad.toml", line)


@pytest.mark.parametrize("mount", ["/run/docker.sock", "/run", "/dev", "/root", "/etc/shadow"])
def test_a_mount_of_what_no_command_may_have_is_refused(tmp_path, mount):
    with pytest.raises(ConfigError, match="never given"):
        load(tmp_path, GOOD + f'\n[sandbox]\nmounts = ["{mount}"]\n')


def test_a_network_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"sandbox\.network"):
        load(tmp_path, GOOD + '\n[sandbox]\nnetwork = "host"\n')


@pytest.mark.parametrize(
    "root", ["/", "/home", "/etc", "/usr/lib", "/var", "/var/log/journal", "/var/lib/hermesd"]
)
def test_a_writable_root_beyond_a_red_line_is_refused(tmp_path, root):
    with pytest.raises(ConfigError) as error:
        load(tmp_path, GOOD, f'[reach]\nwritable_roots = ["{root}"]\n')
    assert error.value.faults[0].line == 2


def test_every_fault_of_every_file_is_told_at_once(tmp_path):
    (tmp_path / "commands").mkdir()
    (tmp_path / "commands" / "a.toml").write_text("name = \n")
    with pytest.raises(ConfigError) as error:
        load(tmp_path, GOOD.replace("/usr/bin/cat", "/usr/bin/sh"), "[reach]\nreadable = []\n")
    assert {fault.file.name for fault in error.value.faults} >= {"a.toml", "permissions.toml"}


@pytest.mark.parametrize(
    ("executable", "resolved", "words"),
    [
        ("/usr/bin/nawk", "/usr/bin/mawk", "mawk runs other programs"),
        ("/usr/bin/editor", "/usr/bin/vim.basic", "vim.basic runs other programs"),
        ("/usr/bin/tool", "/usr/bin/python3.11", "python3.11 runs other programs"),
        ("/usr/bin/tool", "/opt/tool/bin/tool", "lies in /usr/bin"),
        ("/usr/sbin/ss", "/usr/bin/ss", ""),
        ("/usr/bin/df", "/usr/lib/cargo/bin/coreutils", ""),
        ("/usr/bin/df", "/bin/busybox", ""),
    ],
)
def test_a_program_by_another_name_is_what_it_leads_to(executable, resolved, words):
    fault = link_fault(executable, resolved)
    assert words in fault
    assert bool(fault) == bool(words)
