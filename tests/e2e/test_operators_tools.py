"""A file of tools.d/ through the real executor: at its start, on reloads, changed behind its back."""

import asyncio
import hashlib
import os
import shutil
import signal
from pathlib import Path

import pytest

from hermesd.audit import read_records
from hermesd.checking import check_all

pytestmark = pytest.mark.slow

PAGE = Path(__file__).parents[2] / "docs" / "tools.md"
SHIPPED = Path(__file__).parents[2] / "conf.d"
OTHER = """\
from hermesd_tools import register_tool


@register_tool(name="test:greet", description="Says hello, for the tests.", permission="{permission}")
def greet():
    return "hello token=abcdefghijklmnop0123456789"
"""


def example():
    text = PAGE.read_text()
    block = text.partition("<!-- the example begins -->")[2].partition("<!-- the example ends -->")[0]
    return block.partition("```python\n")[2].partition("```")[0]


@pytest.fixture(autouse=True)
def as_root(needs):
    needs(os.geteuid() == 0, "root, whose a tool's file has to be")


async def test_the_example_of_the_page_works_as_it_stands(pair, as_agent):
    pair.write("tools.d/backups.py", example())
    (pair.data / "old.tar").write_bytes(b"x" * 10)
    (pair.data / "new.tar").write_bytes(b"x" * 10)
    os.utime(pair.data / "old.tar", (1e9, 1e9))
    await pair.start("executor")

    infos = {one["name"]: one for one in (await pair.executor("commands"))["commands"]}
    assert infos["backup:age"]["description"].startswith("Says how old the newest backup")
    result = await as_agent(pair, "backup:age", "r1", path=str(pair.data))
    assert result["status"] == "succeeded", result["reason"]
    assert result["rows"] == [{"files": 2, "newest": "new.tar", "hours": 0.0}]
    assert result["summary"] == "newest of 2 is 0 h old"
    none = await as_agent(pair, "backup:age", "r2", path=str(pair.data), least_bytes=11)
    assert (none["status"], none["reason"]) == ("failed", "exit status 1: there is no backup in this folder")
    outside = await as_agent(pair, "backup:age", "r3", path="/etc")
    assert (outside["status"], outside["rejected"][0]["field"]) == ("refused", "path")


async def test_a_wrong_file_takes_no_other_down_at_the_start_and_nothing_is_reloaded_with_it(pair, as_agent):
    pair.write("tools.d/good.py", OTHER.format(permission="public"))
    bad = pair.write("tools.d/bad.py", OTHER.format(permission="open").replace("greet", "shout"))
    await pair.start("executor")

    status = await pair.executor("status")
    assert status["tool_faults"] == [
        f"{bad}:4: permission: Input should be 'public', 'internal' or 'confidential'"
    ]
    assert str(bad) in pair.log("executor")
    result = await as_agent(pair, "test:greet", "r1")
    assert (result["status"], result["output"]) == ("succeeded", "hello token=[redacted]")

    pair.write("commands/no.toml", "name = 1\n").unlink()
    pair.write("tools.d/good.py", OTHER.format(permission="public").replace("hello", "good morning"))
    changed = await as_agent(pair, "test:greet", "r2")
    assert changed["status"] == "refused"
    assert "changed since the policy was read" in changed["reason"]
    os.kill(pair.parts["executor"][0].pid, signal.SIGHUP)
    await pair.until(lambda: said(pair, "the old configuration stays"))
    assert (await pair.executor("status"))["policy_version"] == status["policy_version"]

    bad.unlink()
    os.kill(pair.parts["executor"][0].pid, signal.SIGHUP)

    async def another():
        return (await pair.executor("status"))["policy_version"] != status["policy_version"]

    await pair.until(another)
    assert (await pair.executor("status"))["tool_faults"] == []
    loaded = [
        one for one in read_records(pair.folder / "executor/state/audit") if one["kind"] == "policy.loaded"
    ]
    digest = hashlib.sha256((pair.conf / "tools.d/good.py").read_bytes()).hexdigest()
    assert loaded[-1]["tools"] == {"good.py": digest}
    assert (await as_agent(pair, "test:greet", "r3"))["output"].startswith("good morning")


async def said(pair, words):
    return words in pair.log("executor")


async def test_what_is_not_public_waits_for_a_person(pair, as_agent):
    pair.write("tools.d/good.py", OTHER.format(permission="internal"))
    await pair.start("executor")

    asking = asyncio.create_task(as_agent(pair, "test:greet", "r1"))
    operation = await pair.pending()
    assert operation["text"] == f"only reads; runs {pair.conf}/tools.d/good.py"
    assert (await pair.approve(operation["id"]))["outcome"] == "succeeded"
    assert (await asking)["output"] == "hello token=[redacted]"


CHANGE = """\
import os
from typing import Annotated
from hermesd_tools import Argument, register_tool, targets


@register_tool(name="test:empty", description="Empties the files that a person confirmed.", effect="change",
               preview="fs:cleanup_preview")
def empty(path: Annotated[str, Argument("Where", type="path", roots=["/tmp"])]):
    folder = os.open(path, os.O_RDONLY)
    for target in targets():
        os.truncate(os.open(target.name, os.O_RDWR | os.O_NOFOLLOW, dir_fd=folder), 0)
    return f"{len(targets())} emptied"
"""


async def test_a_tool_that_changes_gets_exactly_what_a_person_confirmed(pair, as_agent):
    pair.write("tools.d/empty.py", CHANGE)
    await pair.start("executor")
    rubbish = pair.rubbish(files=3, size=1000)

    asking = asyncio.create_task(as_agent(pair, "test:empty", "r1", path=str(pair.data)))
    operation = await pair.pending()
    assert operation["text"].startswith("3 files under ")
    assert (await pair.approve(operation["id"]))["outcome"] == "succeeded"
    assert (await asking)["output"] == "3 emptied"
    assert [path.stat().st_size for path in rubbish] == [0, 0, 0]


async def test_a_tool_that_changes_is_not_called_when_the_world_is_another(pair, as_agent):
    pair.write("tools.d/empty.py", CHANGE)
    await pair.start("executor")
    rubbish = pair.rubbish(files=3, size=1000)

    asking = asyncio.create_task(as_agent(pair, "test:empty", "r1", path=str(pair.data)))
    operation = await pair.pending()
    shown = await pair.executor("approve.show", id=operation["id"])
    rubbish[1].write_bytes(b"in use again")
    await pair.executor(
        "approve.redeem", id=operation["id"], token=shown["token"], second=shown["second_word"]
    )
    result = await asking
    assert (result["status"], result["reason"]) == (
        "plan_changed",
        "nothing was done: cache/001.bin had 1000 bytes and has 12",
    )
    assert [path.stat().st_size for path in rubbish] == [1000, 12, 1000]


def second_example(root):
    """The page's pair of a preview and what it previews, for a folder of the test's own."""
    blocks = PAGE.read_text().split("```python\n")[1:]
    text = next(block.partition("```")[0] for block in blocks if "spool:drop" in block)
    return (
        "import os\nfrom pathlib import Path\nfrom typing import Annotated\n"
        "from hermesd_tools import Argument, register_tool, targets\n\n"
        + text.replace('"/var/spool/shop"', f'"{root}"')
    )


async def test_the_pages_preview_and_its_removal_work_together(pair, as_agent):
    pair.write("tools.d/spool.py", second_example(pair.data))
    await pair.start("executor")
    assert (await pair.executor("status"))["tool_faults"] == []
    jobs = pair.data / "jobs"
    pair.make(jobs, pair.players.executor)
    for name in ("a.failed", "b.failed", "c.running"):
        (jobs / name).write_bytes(b"x" * 100)
    (jobs / "link.failed").symlink_to("/etc/passwd")

    linked = await as_agent(pair, "spool:drop", "r0", path=str(pair.data))
    assert (linked["status"], "no regular file" in linked["reason"]) == ("failed", True)
    (jobs / "link.failed").unlink()
    asking = asyncio.create_task(as_agent(pair, "spool:drop", "r1", path=str(pair.data)))
    operation = await pair.pending()
    assert operation["text"].startswith("2 files under ")
    shown = await pair.executor("approve.show", id=operation["id"])
    assert shown["second_word"]
    assert (await pair.approve(operation["id"]))["outcome"] == "succeeded"
    assert (await asking)["output"] == "2 dropped"
    assert [path.name for path in jobs.iterdir()] == ["c.running"]


def test_check_proves_each_file_in_a_container(tmp_path, needs):
    needs(shutil.which("bwrap"), "bwrap")
    (tmp_path / "tools.d").mkdir()
    (tmp_path / "daemon.toml.d").mkdir()
    (tmp_path / "daemon.toml.d" / "sandbox.toml").write_text('[executor]\nsandbox = "bubblewrap"\n')
    (tmp_path / "tools.d" / "backups.py").write_text(example())
    good = check_all([SHIPPED, tmp_path])
    bad = tmp_path / "tools.d" / "bad.py"
    bad.write_text(OTHER.format(permission="open"))
    report = check_all([SHIPPED, tmp_path])

    assert (good.faults, report.faults) == (0, 1)
    assert f"{bad}:4: permission: Input should be 'public', 'internal' or 'confidential'" in report.lines
    assert not any("was not read" in line for line in (*good.lines, *report.lines))
