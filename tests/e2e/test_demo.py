"""`hermesd demo`, as somebody who has just cloned the project runs it."""

import json
import os
import subprocess
import time
from pathlib import Path

import pytest

from hermesd.launcher import Program

pytestmark = pytest.mark.slow

ROOT = os.geteuid() == 0
SECONDS = 60
OURS = Program()


def demo(
    *arguments: str, before: tuple[str, ...] = (), program: Program = OURS, **identity
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*before, *program.argv, "demo", *arguments],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
        cwd="/",
        env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8", **program.environ},
        **identity,
    )


def leftovers() -> set[str]:
    folders = {str(path) for path in Path("/tmp").glob("hermesd-demo-*")}
    mounts = {
        line.split()[1] for line in Path("/proc/mounts").read_text().splitlines() if "hermesd-demo" in line
    }
    processes = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if b"hermesd-demo" in (entry / "cmdline").read_bytes():
                    processes.add(f"pid {entry.name}")
            except OSError:
                continue
    return folders | mounts | processes


def check_object(found: dict, *, kinds: set[str]) -> None:
    assert found["incident"]["status"] == "resolved"
    assert found["incident"]["opened"] < found["incident"]["resolved"]
    assert found["run"]["outcome"] == "resolved"
    stages = found["run"]["stages"]
    assert all(set(stage) == {"name", "round", "ms", "budget_ms", "outcome"} for stage in stages)
    assert kinds <= {stage["name"] for stage in stages}
    assert all(stage["ms"] <= stage["budget_ms"] for stage in stages)
    approval = found["approval"]
    assert approval["outcome"] == "succeeded"
    assert approval["files"] == approval["files_removed"] == 37
    assert approval["bytes"] > 10_000_000
    assert approval["freed_bytes"] >= approval["bytes"]
    assert found["audit"]["verified"] is True
    assert found["audit"]["records"] > 20


STAGES = {"receive", "brief", "plan", "validate", "confirm", "prepare", "execute", "review", "report"}


def test_it_repairs_a_full_disk_and_tells_one_json_object_and_leaves_nothing_behind():
    before = leftovers()
    began = time.monotonic()
    done = demo("--json")
    seconds = time.monotonic() - began
    assert done.returncode == 0, done.stderr
    check_object(json.loads(done.stdout), kinds=STAGES)
    assert seconds < 30  # the promise of the README, with an order of magnitude to spare
    assert leftovers() == before


@pytest.mark.skipif(not ROOT, reason="only root can be somebody else")
def test_an_ordinary_user_sees_the_same_story_with_a_folder_and_its_budget(program):
    done = demo("--json", program=program, user=64810, group=64810, extra_groups=[])
    assert done.returncode == 0, done.stderr
    check_object(json.loads(done.stdout), kinds=STAGES)


def test_it_tells_the_story_to_a_person_in_their_language():
    done = demo("--lang", "zh")
    assert done.returncode == 0, done.stderr
    assert "审计已验证" in done.stdout
    assert "报告" in done.stdout
    done = demo("--lang", "en")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    for words in ("37 files under", "not reversible", "REPORT", "STAGES", "untouched", "audit verified"):
        assert any(words in line for line in lines), words


@pytest.mark.skipif(not ROOT, reason="hiding a program takes a mount namespace")
def test_without_a_sandbox_it_ends_with_3_and_names_the_remedy():
    hide = 'mount --bind /dev/null /usr/bin/bwrap && exec "$@"'
    done = demo(before=("/usr/bin/unshare", "--mount", "/bin/sh", "-c", hide, "sh"))
    assert done.returncode == 3, done.stdout + done.stderr
    assert "apt-get install bubblewrap" in done.stderr
    assert "Traceback" not in done.stderr
