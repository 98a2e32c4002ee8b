"""Undo, with real containers and a real second file system: what was removed comes back as it was."""

import asyncio
import contextlib
import json
import os
import sqlite3
import subprocess
import sys
from contextlib import contextmanager

import pytest

from hermesd.demo.stage import AskError
from hermesd.ipc.client import Unreachable

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a second file system"),
]

ODD = (b"new\nline.tmp", b"not\xffutf8.tmp", "中文.tmp".encode(), b" blank .tmp", b"plain.tmp")


@contextmanager
def mounted(folder, size="16m", mode="1733"):
    """A second file system at a folder, for as long as the test needs it."""
    folder.mkdir()
    options = f"size={size},mode={mode}"
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "hermesd-test", folder], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)  # a container may still be ending


@pytest.fixture
def quarantine(pair):
    """The pair's quarantine, on a file system of its own."""
    with mounted(pair.folder / "quarantine") as folder:
        configure(pair, folder)
        yield folder


def configure(pair, folder, more=""):
    pair.write("permissions.toml.d/quarantine.toml", f'[quarantine]\nfolder = "{folder}"\n{more}')


def lay(pair, names=ODD, size=4000):
    """Files with odd names, modes and times to the nanosecond, owned by who would clean them."""
    pair.make(pair.data / "cache", pair.players.executor)
    for number, name in enumerate(names):
        path = pair.data / "cache" / os.fsdecode(name)
        path.write_bytes(os.urandom(size + number) + bytes(5000))
        path.chmod(0o640 + number % 5)
        os.chown(path, pair.players.executor.uid, pair.players.executor.gid)
        os.utime(path, ns=(1_000_000_000_123_456_789 + number, 1_000_000_000_987_654_321 + number))
    return now_in(pair)


def seen(path):
    """All that must be equal afterwards: bytes, mode, owner, and when it was written."""
    status = path.lstat()
    return path.read_bytes(), status.st_mode, status.st_uid, status.st_gid, status.st_mtime_ns


def now_in(pair):
    return {os.fsencode(path.name): seen(path) for path in (pair.data / "cache").iterdir()}


async def remove(pair, as_agent, request_id="t1.1.0.1"):
    asking = asyncio.create_task(as_agent(pair, "fs:cleanup", request_id, path=str(pair.data)))
    operation = await pair.pending()
    shown = await pair.executor("approve.show", id=operation["id"])
    answer = await pair.executor(
        "approve.redeem", id=operation["id"], token=shown["token"], second=shown["second_word"]
    )
    await asking
    return shown, answer


async def waiting_or_ended(pair, asking):
    """Return the operation that waits now; a request that ended instead fails with its answer."""

    async def look():
        if asking.done():
            pytest.fail(str(asking.result()))
        return (await pair.executor("approvals"))["operations"]

    return (await pair.until(look))[0]


async def restore(pair, as_agent, operation, request_id="t2.1.0.1"):
    asking = asyncio.create_task(as_agent(pair, "fs:restore", request_id, operation=operation))
    waiting = await waiting_or_ended(pair, asking)
    answer = await pair.approve(waiting["id"])
    await asking
    return waiting, answer


async def test_what_was_removed_comes_back_with_its_bytes_mode_times_and_odd_names(
    pair, quarantine, as_agent
):
    await pair.start("executor")
    before = lay(pair)
    shown, answer = await remove(pair, as_agent)
    assert shown["impact"]["reversible"] is True
    assert shown["text"].endswith(", can be undone for 72 h")
    assert answer["outcome"] == "succeeded", answer
    assert now_in(pair) == {}
    (kept,) = (await pair.executor("kept"))["kept"]
    assert (kept["operation"], kept["root"], kept["files"]) == ("op-t1.1.0.1", str(pair.data), len(ODD))
    waiting, answer = await restore(pair, as_agent, "op-t1.1.0.1")
    assert waiting["text"] == f"5 files under {pair.data}, 45.0 kB, put back"
    assert answer["outcome"] == "succeeded", answer
    assert answer["text"] == "5 files put back, 45.0 kB, 0 skipped"
    assert now_in(pair) == before
    assert (await pair.executor("kept"))["kept"] == []
    assert list(quarantine.iterdir()) == []


async def test_a_file_that_is_there_again_is_never_overwritten_and_the_others_come_back(
    pair, quarantine, as_agent
):
    await pair.start("executor")
    before = lay(pair)
    await remove(pair, as_agent)
    newer = pair.data / "cache" / "plain.tmp"
    newer.write_bytes(b"newer")
    waiting, answer = await restore(pair, as_agent, "op-t1.1.0.1")
    assert waiting["text"].startswith("4 files")
    assert answer["outcome"] == "succeeded", answer
    assert newer.read_bytes() == b"newer"
    after = now_in(pair)
    assert {name: after[name] for name in ODD[:-1]} == {name: before[name] for name in ODD[:-1]}
    (kept,) = (await pair.executor("kept"))["kept"]
    assert kept["files"] == 1
    newer.unlink()
    _waiting, answer = await restore(pair, as_agent, "op-t1.1.0.1", "t3.1.0.1")
    assert answer["outcome"] == "succeeded", answer
    assert now_in(pair) == before


async def test_a_link_planted_in_the_way_back_is_not_followed(pair, quarantine, as_agent):
    await pair.start("executor")
    before = lay(pair)
    await remove(pair, as_agent)
    elsewhere = pair.folder / "elsewhere"
    pair.make(elsewhere, pair.players.executor)
    (pair.data / "cache").rename(pair.data / "aside")
    (pair.data / "cache").symlink_to(elsewhere)
    result = await as_agent(pair, "fs:restore", "t2.1.0.1", operation="op-t1.1.0.1")
    assert (result["status"], result["reason"]) == ("succeeded", "nothing there to be done")
    assert list(elsewhere.iterdir()) == []
    (pair.data / "cache").unlink()
    (pair.data / "aside").rename(pair.data / "cache")
    await restore(pair, as_agent, "op-t1.1.0.1", "t3.1.0.1")
    assert now_in(pair) == before


async def test_what_cannot_be_undone_is_said_beforehand_with_the_reason(pair, as_agent):
    (pair.folder / "beside").mkdir(mode=0o733)
    (pair.folder / "beside").chmod(0o1733)
    configure(pair, pair.folder / "beside")
    await pair.start("executor")
    lay(pair)
    shown, answer = await remove(pair, as_agent)
    assert shown["impact"]["reversible"] is False
    assert shown["impact"]["undo"] == "same"
    assert "not reversible (the quarantine is on the same file system" in shown["text"]
    assert answer["outcome"] == "succeeded"
    assert now_in(pair) == {}
    assert list((pair.folder / "beside").iterdir()) == []
    result = await as_agent(pair, "fs:restore", "t2.1.0.1", operation="op-t1.1.0.1")
    assert [item["field"] for item in result["rejected"]] == ["operation"]


async def test_what_does_not_fit_into_the_quarantine_is_not_lost(pair, as_agent):
    with mounted(pair.folder / "quarantine", size="120k") as folder:
        configure(pair, folder)
        await pair.start("executor")
        before = lay(pair)
        asking = asyncio.create_task(as_agent(pair, "fs:cleanup", "t1.1.0.1", path=str(pair.data)))
        operation = await pair.pending()
        shown = await pair.executor("approve.show", id=operation["id"])
        assert shown["impact"]["reversible"] is True
        (folder / "somebody").write_bytes(bytes(90_000))  # the room goes after it was shown
        await pair.executor(
            "approve.redeem", id=operation["id"], token=shown["token"], second=shown["second_word"]
        )
        gain = (await asking)["gain"]
        assert gain["files_skipped"] > 0
        assert gain["files_removed"] == len(before) - len(now_in(pair))
        left = now_in(pair)
        assert left == {name: before[name] for name in left}
        files = (await pair.executor("removed", id="op-t1.1.0.1"))["files"]
        assert len([file for file in files if file["fate"] == "skipped"]) == len(left)
        assert len([file for file in files if file["fate"] == "removed"]) == gain["files_removed"]
        (folder / "somebody").unlink()
        await restore(pair, as_agent, "op-t1.1.0.1")
        assert now_in(pair) == before


async def test_what_somebody_laid_in_the_quarantine_stops_the_removal_and_stays(pair, quarantine, as_agent):
    await pair.start("executor")
    before = lay(pair)
    planted = quarantine / "op-t1.1.0.1"
    planted.mkdir(mode=0o777)
    (planted / "1").write_bytes(b"somebody's")
    _shown, answer = await remove(pair, as_agent)
    assert answer["outcome"] == "failed"
    assert "the quarantine cannot be written" in answer["text"]
    assert now_in(pair) == before
    assert (planted / "1").read_bytes() == b"somebody's"
    assert (await pair.executor("kept"))["kept"] == []


async def test_killed_in_the_middle_of_a_removal_nothing_is_lost_and_it_can_be_undone(pair, as_agent):
    with mounted(pair.folder / "quarantine", size="256m") as folder:
        configure(pair, folder)
        await pair.start("executor")
        before = lay(pair, names=[b"%d.tmp" % number for number in range(40)], size=3_000_000)
        asking = asyncio.create_task(as_agent(pair, "fs:cleanup", "t1.1.0.1", path=str(pair.data)))
        operation = await pair.pending()
        deciding = asyncio.create_task(pair.approve(operation["id"]))
        while not list(folder.glob("op-*/7")):
            await asyncio.sleep(0.001)
        await pair.kill("executor")
        for task in (asking, deciding):
            with contextlib.suppress(Unreachable, StopAsyncIteration, AskError):
                await task
        await pair.start("executor")
        again = await as_agent(pair, "fs:cleanup", "t1.1.0.1", path=str(pair.data))
        assert again["status"] == "unknown"
        (kept,) = (await pair.executor("kept"))["kept"]
        assert kept["files"] == len(before)
        await pair.until(lambda: quiet(folder))
        left = now_in(pair)
        assert left == {name: before[name] for name in left}
        asking = asyncio.create_task(as_agent(pair, "fs:restore", "t2.1.0.1", operation="op-t1.1.0.1"))
        if len(left) < len(before):
            await pair.approve((await waiting_or_ended(pair, asking))["id"])
        await asking
        assert now_in(pair) == before


async def quiet(folder):
    """Whether nothing is written any more: the container ends with its owner."""
    sizes = {path: path.stat().st_size for path in folder.rglob("*") if path.is_file()}
    await asyncio.sleep(0.3)
    return sizes == {path: path.stat().st_size for path in folder.rglob("*") if path.is_file()}


async def test_no_command_reaches_what_is_kept(pair, quarantine, as_agent):
    await pair.start("executor")
    lay(pair)
    await remove(pair, as_agent)
    refused = await as_agent(pair, "fs:list", "t2.1.0.1", path=str(quarantine))
    assert refused["status"] == "refused"
    listed = await as_agent(pair, "fs:largest", "t3.1.0.1", path=str(pair.folder), limit=50)
    assert listed["status"] == "succeeded"
    assert "op-t1.1.0.1" not in listed["output"]


async def test_what_was_kept_for_its_time_is_removed_and_what_is_kept_outlives_the_executor(
    pair, quarantine, as_agent
):
    await pair.start("executor")
    lay(pair)
    await remove(pair, as_agent)
    await pair.kill("executor")
    await pair.start("executor")
    assert [kept["files"] for kept in (await pair.executor("kept"))["kept"]] == [len(ODD)]
    assert len(list((quarantine / "op-t1.1.0.1").iterdir())) == len(ODD) + 1
    await pair.stop("executor")
    over(pair)
    await pair.start("executor")

    async def gone():
        return not (await pair.executor("kept"))["kept"]

    await pair.until(gone)
    assert list(quarantine.iterdir()) == []


def over(pair):
    """Let the time of all that is kept be over."""
    ledger = pair.folder / "executor" / "state" / "ledger.sqlite3"
    with contextlib.closing(sqlite3.connect(ledger)) as db, db:
        db.execute("UPDATE kept SET record = json_set(record, '$.until', '2001-01-01T00:00:00Z')")


async def hermesctl(pair, *arguments, expected=0):
    """Run the real hermesctl against the pair's sockets; what it printed."""
    sockets = ("--control-socket", f"{pair.folder}/agent/control.sock")
    sockets += ("--operator-socket", f"{pair.folder}/executor/operator.sock")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "hermesd.ctl", *sockets, *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output = (await process.communicate())[0].decode()
    assert process.returncode == expected, output
    return output


async def test_a_person_lists_what_can_be_undone_asks_for_it_and_confirms_it_like_any_change(
    pair, quarantine, as_agent
):
    await pair.start()
    assert "nothing can be undone" in await hermesctl(pair, "undo")
    before = lay(pair)
    await remove(pair, as_agent)
    listed = await hermesctl(pair, "undo")
    assert "op-t1.1.0.1  in 2 d 23 h" in listed
    assert str(pair.data) in listed
    assert "期限" in await hermesctl(pair, "--lang", "zh", "undo")
    started = json.loads(await hermesctl(pair, "--json", "undo", "op-t1.1.0.1", "--no-wait"))
    waiting = await pair.pending()
    assert (waiting["command"], waiting["task_id"]) == ("fs:restore", started["task_id"])
    assert now_in(pair) == {}
    answer = await pair.approve(waiting["id"])
    assert answer["outcome"] == "succeeded", answer
    assert now_in(pair) == before
    (run,) = await pair.ended_runs()
    assert (run["kind"], run["outcome"]) == ("person", "answered")
    told = await hermesctl(pair, "follow", started["task_id"])
    assert "5 files put back, 45.0 kB; 0 skipped, 0 still kept." in told
    again = await hermesctl(pair, "undo", "op-t1.1.0.1", expected=5)
    assert "nothing is kept of op-t1.1.0.1" in again


async def test_what_was_removed_is_listed_file_by_file_long_after_with_or_without_a_way_back(pair, as_agent):
    await pair.start("executor")
    before = lay(pair)
    await remove(pair, as_agent)
    listed = json.loads(await hermesctl(pair, "--json", "removed", "op-t1.1.0.1"))
    assert (listed["total"], listed["root"], listed["unnamed"]) == (len(ODD), str(pair.data), 0)
    for file in listed["files"]:
        path = bytes.fromhex(file["path_hex"]) if "path_hex" in file else None
        name = (path or file["path"].replace("\\n", "\n").encode()).removeprefix(b"cache/")
        content, mode, uid, gid, _mtime_ns = before.pop(name)
        assert file["fate"] == "removed"
        assert (file["size_bytes"], file["uid"], file["gid"]) == (len(content), uid, gid)
        assert (file["mode"], file["mtime"]) == (f"{mode & 0o7777:04o}", "2001-09-09T01:46:40+00:00")
    assert before == {}
    page = await hermesctl(pair, "removed", "op-t1.1.0.1", "--limit", "2")
    assert "go on with: hermesctl removed op-t1.1.0.1 --offset 2" in page
    assert "removed nothing" in await hermesctl(pair, "removed", "op-t9.9.9.9", expected=5)


async def test_a_sentence_that_asks_for_an_undo_gets_one_proposed(pair, quarantine, as_agent):
    await pair.start()
    before = lay(pair)
    await remove(pair, as_agent)
    await pair.agent("ask", text="请撤销 op-t1.1.0.1")
    await pair.approve((await pair.pending())["id"])
    await pair.ended_runs()
    assert now_in(pair) == before


async def test_no_more_is_kept_together_than_the_file_allows_and_what_is_put_back_makes_room(
    pair, quarantine, as_agent
):
    configure(pair, quarantine, "most_mb = 1\n")
    await pair.start("executor")
    lay(pair, size=100_000)  # 5 files, 525 kB
    shown, _answer = await remove(pair, as_agent)
    assert shown["impact"]["reversible"] is True
    before = lay(pair, [b"later%d.tmp" % number for number in range(6)], size=100_000)
    asking = asyncio.create_task(as_agent(pair, "fs:cleanup", "t2.1.0.1", path=str(pair.data)))
    operation = await waiting_or_ended(pair, asking)
    assert operation["text"].endswith("not reversible (the quarantine holds too much from before)")
    await pair.executor("deny", id=operation["id"])
    await asking
    assert now_in(pair) == before
    await restore(pair, as_agent, "op-t1.1.0.1", "t3.1.0.1")
    for path in (pair.data / "cache").iterdir():
        if not path.name.startswith("later"):
            path.unlink()
    shown, _answer = await remove(pair, as_agent, "t4.1.0.1")
    assert shown["impact"]["reversible"] is True
