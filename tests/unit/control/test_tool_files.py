"""Files of tools.d/ as the executor reads them: whose they may be, and what nothing runs for."""

import os
import sys

import pytest

from hermesd.checking import check_all
from hermesd.confd import ConfigError
from hermesd.control import host
from hermesd.control.binding import bind
from hermesd.control.sandbox.base import Ended
from hermesd.control.settings import load_policy
from hermesd.control.toolbox import Toolbox, read_answer, with_tools
from hermesd.protocol import CommandRequest

SOURCE = """\
import pathlib

from hermesd_tools import register_tool

pathlib.Path({mark!r}).write_text("somebody imported me")


@register_tool(
    name="test:look",
    description="Looks, for the tests of tools.",
)
def look():
    pass
"""
ANSWER = (
    b'{"faults": [], "tools": [{"line": 8, "definition": {"name": "test:look", "description":'
    b' "Looks, for the tests of tools.", "effect": "read", "permission": "public", "args": {}}}]}'
)


@pytest.fixture
def conf(tmp_path, needs):
    needs(os.geteuid() == 0, "root, whose a tool's file has to be")
    (tmp_path / "tools.d").mkdir()
    path = tmp_path / "tools.d" / "mine.py"
    path.write_text(SOURCE.format(mark=str(tmp_path / "mark")))
    path.chmod(0o644)
    return tmp_path


def faults_of(conf):
    with pytest.raises(ConfigError) as error:
        load_policy([conf])
    return error.value.faults


@pytest.mark.parametrize(
    ("owner", "mode", "words"),
    [
        (0, 0o664, "writable by root alone"),
        (0, 0o646, "writable by root alone"),
        (65534, 0o644, "must belong to root"),
    ],
)
def test_a_file_that_somebody_else_may_write_is_refused(conf, owner, mode, words):
    path = conf / "tools.d" / "mine.py"
    path.chmod(mode)
    os.chown(path, owner, 0)

    assert [(fault.file, words in fault.reason) for fault in faults_of(conf)] == [(path, True)]


@pytest.mark.parametrize(
    ("source", "line", "words"),
    [
        (b"x = 1\ndef f(:\n    pass\n", 2, "invalid syntax"),
        (b"\xff\xfe", 0, "not UTF-8 at byte 0"),
        (b"x = 'a\0b'\n", 0, "null"),
        (b"#" * (1 << 20) + b"\n", 0, "at most 1048576 bytes"),
        (b"(" * 5000 + b")" * 5000, 1, "too many nested"),
    ],
)
def test_a_file_that_is_no_python_is_told_with_its_line(conf, source, line, words):
    (conf / "tools.d" / "mine.py").write_bytes(source)

    (fault,) = faults_of(conf)
    assert (fault.line, words in fault.reason) == (line, True), fault


@pytest.mark.parametrize("name", ["Mine", "m-ine", "m\u0456ne", "m ine"])
def test_a_file_with_a_name_that_could_deceive_is_refused(conf, name):
    (conf / "tools.d" / f"{name}.py").write_text("")

    assert "small letters" in faults_of(conf)[0].reason


def test_a_folder_or_a_pipe_in_the_place_of_a_file_is_a_fault_and_nothing_waits_for_it(conf):
    os.mkfifo(conf / "tools.d" / "pipe.py")
    (conf / "tools.d" / "folder.py").mkdir()

    assert [fault.file.name for fault in faults_of(conf)] == ["folder.py", "pipe.py"]


def test_a_later_layer_replaces_or_masks_a_file(conf, tmp_path):
    over = tmp_path / "over"
    (over / "tools.d").mkdir(parents=True)
    (over / "tools.d" / "mine.py").symlink_to("/dev/null")
    assert load_policy([conf, over]).tool_files == ()

    (over / "tools.d" / "mine.py").unlink()
    (over / "tools.d" / "mine.py").write_text("x = 1\n")
    assert [file.path for file in load_policy([conf, over]).tool_files] == [over / "tools.d" / "mine.py"]


def test_no_process_of_ours_executes_a_file_while_it_reads_and_checks_it(conf):
    (conf / "daemon.toml").write_text(
        f'[executor]\nsandbox = "docker"\ndocker_sockets = ["{conf}/none.sock"]\n'
    )
    policy = load_policy([conf])
    report = check_all([conf])

    assert [file.path.name for file in policy.unread] == ["mine.py"]
    assert any("mine.py: it parses; what it registers was not read" in line for line in report.lines)
    assert not (conf / "mark").exists()
    assert "hermesd_tools" not in sys.modules


def complete(policy, answer=ANSWER, **ended):
    file = policy.tool_files[0]
    how = {"exit_status": 0, "stdout": answer, "stderr": b"", "ms": 1.0, **ended}
    return with_tools(policy, {file.path: read_answer(file, Ended(**how))})


def test_the_version_of_a_policy_changes_with_a_byte_of_a_file_and_so_does_what_a_token_is_bound_to(conf):
    before = load_policy([conf])
    path = conf / "tools.d" / "mine.py"
    path.write_text(path.read_text() + "# more\n")
    after = load_policy([conf])
    request = CommandRequest(request_id="r", task_id="t", intent="a test", command="test:look", args={})
    bounds = [bind(complete(policy).policy, request, host) for policy in (before, after)]

    assert before.version != after.version
    assert bounds[0].digest() != bounds[1].digest()
    assert bounds[0].command.changed()
    assert not bounds[1].command.changed()


def test_a_job_carries_the_bytes_that_were_read_and_no_name_of_a_file_on_the_host(conf):
    policy = load_policy([conf])
    request = CommandRequest(request_id="r", task_id="t", intent="a test", command="test:look", args={})
    job = bind(complete(policy).policy, request, host).job

    assert job.argv == (b"call", b"tools.d/mine.py", policy.tool_files[0].source, b"test:look")


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"[]",
        b"{}",
        b'{"tools": 3, "faults": []}',
        b'{"tools": [{}], "faults": []}',
        b'{"tools":[],"faults":[3]}',
    ],
)
def test_an_answer_that_is_none_is_a_fault_of_the_file_and_nothing_else(conf, answer):
    done = complete(load_policy([conf]), answer, exit_status=139, stderr=b"killed\n")

    assert [fault.reason for fault in done.faults] == [
        "it ended before it was read (exit status 139): killed"
    ]
    assert done.policy.commands == {}


def test_a_name_that_the_catalogue_has_is_no_tools(conf):
    (conf / "commands").mkdir()
    (conf / "commands" / "look.toml").write_text(
        'name = "test:look"\ndescription = "Looks, for the tests of tools."\neffect = "read"\n'
        'permission = "public"\nexecutable = "/usr/bin/uptime"\n'
    )
    done = complete(load_policy([conf]))

    assert [(fault.line, fault.reason) for fault in done.faults] == [
        (9, "test:look is defined by another file too")
    ]
    assert done.policy.commands["test:look"].code is None


def test_what_a_toml_file_names_may_be_brought_by_a_tool_and_is_missed_when_it_is_not(conf):
    (conf / "commands").mkdir()
    (conf / "commands" / "up.toml").write_text(
        'name = "test:up"\ndescription = "Looks, for the tests of tools."\neffect = "read"\n'
        'permission = "public"\nexecutable = "/usr/bin/uptime"\nfallback = "test:look"\n'
    )
    policy = load_policy([conf])

    assert complete(policy).faults == ()
    missed = complete(policy, ANSWER.replace(b"test:look", b"test:sees"))
    assert [(fault.line, fault.reason) for fault in missed.faults] == [
        (6, "fallback: there is no command test:look")
    ]


def test_a_toml_file_cannot_name_what_runs_operators_files(conf):
    (conf / "commands").mkdir()
    (conf / "commands" / "up.toml").write_text(
        'name = "test:up"\ndescription = "Looks, for the tests of tools."\neffect = "read"\n'
        'permission = "public"\ntool = "registered"\nargv = ["call", "x", "import os", "test:up"]\n'
    )

    assert [(fault.line, "they alone" in fault.reason) for fault in faults_of(conf)] == [(5, True)]


class Counting:
    """A sandbox that answers every reading and counts them; it starts nothing."""

    name = "counting"

    def __init__(self):
        self.read = 0

    async def start(self, profile):
        self.read += 1
        return self

    async def resolve(self, job):
        return ()

    async def run(self):
        return Ended(0, ANSWER, b"", 1.0)

    async def destroy(self):
        pass


async def test_a_file_is_read_once_for_as_long_as_it_is_the_same(conf):
    sandbox, toolbox = Counting(), Toolbox()
    for _ in range(2):
        done = await toolbox.complete(load_policy([conf]), sandbox)
    without = await toolbox.complete(load_policy([conf]), None)
    (conf / "tools.d" / "mine.py").write_text(SOURCE.format(mark="/x"))
    unread = await toolbox.complete(load_policy([conf]), None)
    await toolbox.complete(load_policy([conf]), sandbox)

    assert sandbox.read == 2
    assert list(done.policy.commands) == list(without.policy.commands) == ["test:look"]
    assert [file.path.name for file in unread.policy.unread] == ["mine.py"]
