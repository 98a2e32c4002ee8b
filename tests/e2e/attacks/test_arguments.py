"""Options, wrappers and processes in the place of a value: none is one, and nothing of them runs."""

import pytest

pytestmark = pytest.mark.slow

OPTIONS = {
    ("fs:largest", "path"): (
        *("-delete", "-exec", "-fprintf", "-files0-from=/etc/shadow", "--files0-from=/etc/shadow"),
        *("@file", "-rf"),
    ),
    ("log:tail", "path"): (
        *("-I", "--checkpoint-action=exec=sh", "-e", "-o", "-f/etc/shadow", "@/etc/shadow"),
        "LD_PRELOAD=/tmp/x.so",
    ),
    ("unit:status", "unit"): (
        *("-H", "-Hroot@h", "--root=/", "--vacuum-time=1s", "-D/tmp", "--roo", "-al", "eww"),
        *("LD_PRELOAD", "LD_PRELOAD=/tmp/x.so"),
    ),
    ("log:search", "text"): ("-f/etc/shadow", "--file=/etc/shadow", "--fil", "-rn"),
}
BESIDE = {"text": {"path": "/var/log/syslog"}, "pid": {"name": "stuck-job"}}
WRAPPERS = (
    *("env", "xargs", "timeout", "busybox", "python3", "tar", "rsync", "date", "sort", "find", "du"),
    *("/usr/bin/env", "sh", "shell:run", "ps eww", "kill", "rm"),
)


async def test_no_option_gets_through_an_argument(pair, hostile):
    await pair.start("executor")
    await hostile.is_refused(OPTIONS, BESIDE)


async def test_no_wrapper_is_a_command(pair, hostile):
    await pair.start("executor")
    for name in WRAPPERS:
        answer = hostile.said(hostile.line(name, {}))
        assert answer in {("succeeded", "refused"), ("failed", "")}, (name, answer)


async def test_no_process_that_is_none_or_everybodys_is_named(pair, hostile):
    await pair.start("executor")
    await hostile.is_refused({("process:terminate", "pid"): (0, -1, 1, True, "1", 2**70)}, BESIDE)


async def test_a_process_is_ended_by_a_person_alone_and_by_its_name_too(pair, hostile):
    """A number may have been given to another meanwhile: the words to type ask for the name first."""
    await pair.start("executor")
    result = hostile.ask("process:terminate", pid=4194304, name="stuck-job")
    assert result["status"] == "ticketed"
    assert result["impact"]["text"].find("ps -o comm= -p 4194304") < result["impact"]["text"].find(
        "sudo kill"
    )
    assert "= stuck-job" in result["impact"]["text"]
