"""The audit log: what is in it cannot be changed unseen, and what could not be written did not happen."""

import asyncio
import os
import random
import signal
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime

import pytest

from hermesd.audit import (
    Anchor,
    AuditError,
    open_log,
    parse_anchor,
    read_records,
    segments,
    verify,
)

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


def filled(folder, count=10, **options):
    """Return the anchors of a new log of ``count`` records, closed again."""
    log = open_log(folder, lambda: NOW, **options)
    anchors = [
        log.append("command.request", f"t{number % 3}", command="fs:largest", number=number).result()
        for number in range(count)
    ]
    log.close()
    return anchors


def lines(folder):
    return b"".join(file.read_bytes() for file in segments(folder)).splitlines(keepends=True)


def rewrite(folder, new):
    segments(folder)[0].write_bytes(b"".join(new))


def test_records_are_read_back_in_order_with_what_was_recorded(tmp_path):
    anchors = filled(tmp_path)
    records = list(read_records(tmp_path))
    assert [record["seq"] for record in records] == list(range(1, 11))
    assert records[3] == {
        "seq": 4,
        "kind": "command.request",
        "task_id": "t0",
        "time": "2026-03-01T12:00:00+00:00",
        "command": "fs:largest",
        "number": 3,
    }
    assert [anchor.seq for anchor in anchors] == list(range(1, 11))
    assert verify(tmp_path).head == anchors[-1]


def test_the_records_of_one_task_are_found_by_their_task_alone(tmp_path):
    log = open_log(tmp_path)
    log.append("a", "t1", note="t2").result()
    log.append("b", "t2").result()
    log.append("c", "t22").result()
    log.close()
    assert [record["kind"] for record in read_records(tmp_path, "t2")] == ["b"]


async def test_awaiting_a_record_means_it_is_on_disk(tmp_path):
    log = open_log(tmp_path)
    anchor = await log.record("run.created", "t1", goal="x")
    assert lines(tmp_path)[-1].startswith(anchor.hash.encode())
    assert log.head == anchor
    log.close()


def test_a_new_log_is_whole_and_empty(tmp_path):
    open_log(tmp_path / "deep" / "audit").close()
    found = verify(tmp_path / "deep" / "audit")
    assert (found.ok, found.records, found.head.seq) == (True, 0, 0)


def test_a_log_goes_on_where_it_ended(tmp_path):
    filled(tmp_path, 5)
    log = open_log(tmp_path)
    assert log.append("more").result().seq == 6
    log.close()
    assert verify(tmp_path).records == 6


def test_writers_of_many_threads_lose_nothing_and_each_keeps_its_order(tmp_path):
    log = open_log(tmp_path)

    def write(writer):
        for number in range(200):
            log.append("x", f"w{writer}", number=number)

    threads = [threading.Thread(target=write, args=(writer,)) for writer in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    log.close()
    assert verify(tmp_path).records == 1000
    for writer in range(5):
        assert [record["number"] for record in read_records(tmp_path, f"w{writer}")] == list(range(200))


@pytest.mark.parametrize(
    ("what", "change"),
    [
        (
            "a changed value",
            lambda kept: [*kept[:4], kept[4].replace(b'"number":4', b'"number":5'), *kept[5:]],
        ),
        ("a deleted record", lambda kept: kept[:4] + kept[5:]),
        ("an inserted record", lambda kept: [*kept[:4], kept[2], *kept[4:]]),
        ("two swapped records", lambda kept: [*kept[:4], kept[5], kept[4], *kept[6:]]),
        ("a line that is no record", lambda kept: [*kept[:4], b"\n", *kept[4:]]),
        ("a cut separator", lambda kept: [*kept[:4], kept[4].replace(b" ", b"", 1), *kept[5:]]),
    ],
)
def test_tampering_is_named_at_its_place_and_the_log_is_not_opened(tmp_path, what, change):
    filled(tmp_path)
    rewrite(tmp_path, change(lines(tmp_path)))
    found = verify(tmp_path)
    assert (found.ok, found.first_bad, found.records) == (False, 5, 4), what
    assert "does not follow" in found.reason
    with pytest.raises(AuditError, match="record 5"):
        open_log(tmp_path)
    with pytest.raises(AuditError, match="record 5"):  # and the folder was let go of
        open_log(tmp_path)


def test_a_cut_tail_passes_alone_and_fails_against_an_anchor_that_names_what_is_missing(tmp_path):
    anchors = filled(tmp_path)
    rewrite(tmp_path, lines(tmp_path)[:7])
    assert verify(tmp_path).ok
    found = verify(tmp_path, anchors[-1])
    assert (found.ok, found.first_bad) == (False, 8)
    assert "record 10" in found.reason
    assert verify(tmp_path, anchors[6]).ok


def test_a_whole_rewritten_log_fails_against_an_anchor(tmp_path):
    anchors = filled(tmp_path / "true")
    log = open_log(tmp_path / "false")
    for number in range(12):
        log.append("forged", number=number)
    log.close()
    assert verify(tmp_path / "false").ok
    found = verify(tmp_path / "false", anchors[4])
    assert (found.ok, found.first_bad) == (False, 5)


def test_a_deleted_log_fails_against_an_anchor(tmp_path):
    anchors = filled(tmp_path)
    segments(tmp_path)[0].unlink()
    assert verify(tmp_path, anchors[0]).first_bad == 1


def test_every_anchor_that_was_ever_given_out_is_found_again(tmp_path):
    for anchor in filled(tmp_path):
        assert verify(tmp_path, anchor).ok
        assert parse_anchor(str(anchor)) == anchor
    assert verify(tmp_path, Anchor(0, "0" * 64)).ok


@pytest.mark.parametrize("text", ["", "5", ":" + "a" * 64, "x:" + "a" * 64, "5:abc", "²:" + "a" * 64])
def test_what_is_no_anchor_is_none(text):
    assert parse_anchor(text) is None


def test_a_torn_tail_is_kept_aside_recorded_and_the_chain_goes_on(tmp_path):
    filled(tmp_path, 3)
    torn = b"0123456789abcdef half a rec"
    with segments(tmp_path)[0].open("ab") as file:
        file.write(torn)
    assert verify(tmp_path).reason == "torn record"
    open_log(tmp_path).close()
    found = verify(tmp_path)
    assert (found.ok, found.records) == (True, 4)
    last = list(read_records(tmp_path))[-1]
    assert (last["kind"], last["bytes"]) == ("audit.torn_tail", len(torn))
    assert [file.read_bytes() for file in tmp_path.glob("torn-*")] == [torn]


def test_a_log_torn_in_its_very_first_record_begins_anew(tmp_path):
    (tmp_path / "audit-00000001.log").write_bytes(b"half")
    open_log(tmp_path).close()
    assert verify(tmp_path).records == 1


def test_a_second_writer_is_refused_in_this_process_and_in_another(tmp_path):
    log = open_log(tmp_path)
    with pytest.raises(AuditError, match="another process"):
        open_log(tmp_path)
    code = f"from pathlib import Path; from hermesd.audit import open_log; open_log(Path({str(tmp_path)!r}))"
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "another process is writing here" in other.stderr
    log.close()
    open_log(tmp_path).close()


def test_a_closed_log_answers_with_an_error_and_never_with_silence(tmp_path):
    log = open_log(tmp_path)
    waiting = [log.append("x") for _ in range(100)]
    log.close()
    log.close()
    assert [future.result(timeout=5).seq for future in waiting][-1] == 100
    with pytest.raises(AuditError, match="closed"):
        log.append("late").result(timeout=5)


def test_a_large_log_is_kept_in_segments_that_form_one_chain(tmp_path):
    anchors = filled(tmp_path, 100, segment_bytes=2000)
    assert len(segments(tmp_path)) > 5
    assert verify(tmp_path, anchors[50]).records == 100
    log = open_log(tmp_path, segment_bytes=2000)
    assert log.append("more").result().seq == 101
    log.close()
    assert verify(tmp_path).ok


def test_opening_verifies_the_last_segment_alone_and_verify_them_all(tmp_path):
    filled(tmp_path, 100, segment_bytes=2000)
    first, *_, last = segments(tmp_path)
    good = first.read_bytes()
    first.write_bytes(good.replace(b'"number":1,', b'"number":9,'))
    open_log(tmp_path).close()
    assert verify(tmp_path).first_bad == 2
    first.write_bytes(good)
    last.write_bytes(last.read_bytes().replace(b"fs:largest", b"fs:cleanup"))
    with pytest.raises(AuditError, match="does not follow"):
        open_log(tmp_path)


def test_a_missing_segment_is_found(tmp_path):
    filled(tmp_path, 100, segment_bytes=2000)
    files = segments(tmp_path)
    in_first = files[0].read_bytes().count(b"\n")
    files[1].unlink()
    assert verify(tmp_path).first_bad == in_first + 1
    files[-2].unlink()
    with pytest.raises(AuditError, match="does not follow"):
        open_log(tmp_path)


def test_a_crash_between_two_segments_leaves_a_log_that_opens(tmp_path):
    filled(tmp_path, 20, segment_bytes=2000)
    number = len(segments(tmp_path)) + 1
    (tmp_path / f"audit-{number:08d}.log").write_bytes(b"")
    log = open_log(tmp_path)
    assert log.append("more").result().seq == 21
    log.close()
    assert verify(tmp_path).ok


@pytest.mark.parametrize(
    "value", ["name\udcff", 1 << 80, {"deep\ud800": [b"bytes", {1: NOW}]}, float("nan"), object(), {1, 2}]
)
def test_a_value_that_json_cannot_hold_is_written_in_escapes_and_stops_nothing(tmp_path, value):
    log = open_log(tmp_path)
    log.append("x", "t", path=value).result(timeout=5)
    log.append("y", "t").result(timeout=5)
    log.close()
    assert verify(tmp_path).records == 2
    assert [record["kind"] for record in read_records(tmp_path, "t")] == ["x", "y"]


def test_a_record_that_cannot_be_written_fails_alone(tmp_path):
    endless: list[object] = []
    endless.append(endless)
    log = open_log(tmp_path)
    with pytest.raises(AuditError, match="JSON"):
        log.append("x", value=endless).result(timeout=5)
    assert log.append("y").result(timeout=5).seq == 1
    log.close()


@pytest.mark.parametrize("field", ["seq", "time"])
def test_a_record_cannot_pose_as_another_place_or_moment(tmp_path, field):
    log = open_log(tmp_path)
    with pytest.raises(ValueError, match="own"):
        log.append("x", **{field: 5})
    log.close()


def test_a_withdrawn_record_leaves_no_gap(tmp_path):
    log = open_log(tmp_path)
    futures = [log.append("x", number=number) for number in range(500)]
    withdrawn = sum(future.cancel() for future in reversed(futures))
    log.close()
    found = verify(tmp_path)
    assert (found.ok, found.records) == (True, 500 - withdrawn)


def test_a_log_is_verified_while_it_is_being_written(tmp_path):
    log = open_log(tmp_path, segment_bytes=20_000)
    stop = threading.Event()

    def write():
        while not stop.is_set():
            log.append("x", text="y" * 3000).result()

    writer = threading.Thread(target=write)
    writer.start()
    found = [verify(tmp_path, log.head) for _ in range(100)]
    stop.set()
    writer.join()
    log.close()
    assert all(result.ok for result in found)


def test_a_half_line_is_being_written_while_a_writer_lives_and_torn_once_it_is_gone(tmp_path):
    log = open_log(tmp_path)
    log.append("x").result()
    with segments(tmp_path)[0].open("ab") as file:
        file.write(b"half a li")
    assert verify(tmp_path, log.head).ok
    assert [record["kind"] for record in read_records(tmp_path)] == ["x"]
    log.close()
    assert verify(tmp_path).reason == "torn record"


def test_a_folder_that_cannot_be_used_is_an_audit_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(AuditError):
        open_log(tmp_path / "file" / "audit")


WRITER = """
import sys
from pathlib import Path
from hermesd.audit import open_log
log = open_log(Path(sys.argv[1]), segment_bytes=100_000)
number = 0
while True:
    task = f"t{sys.argv[2]}"
    group = [log.append("x", task, text="y" * (k * 37)) for k in range(1 + number % 9)]
    for done in group:
        sys.stdout.write(str(done.result()) + "\\n")
    sys.stdout.flush()
    number += 9
"""


@pytest.mark.slow
def test_every_record_that_was_confirmed_is_in_the_chain_after_kill_9(tmp_path):
    chance, last = random.Random(11), ""
    for generation in range(10):
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path), str(generation)], stdout=subprocess.PIPE, text=True
        )
        assert writer.stdout is not None
        first = writer.stdout.readline()
        time.sleep(chance.uniform(0.0, 0.3))
        writer.send_signal(signal.SIGKILL)
        rest = writer.stdout.read()
        writer.wait()
        writer.stdout.close()
        last = [line for line in (first + rest).split("\n")[:-1] if parse_anchor(line)][-1]
        open_log(tmp_path).close()
        found = verify(tmp_path, parse_anchor(last))
        assert found.ok, found.reason
    assert len(segments(tmp_path)) > 1


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 256 KB."""
    folder = tmp_path / "small"
    folder.mkdir()
    options = ["-t", "tmpfs", "-o", "size=256k,mode=0755", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(["mount", *options], check=False).returncode != 0:
        if os.environ.get("CI") == "true":
            pytest.fail("a small tmpfs cannot be mounted here")
        pytest.skip("a small tmpfs cannot be mounted here: it needs root")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


async def fill(log):
    """Write until the disk is full, and return the last record that was confirmed."""
    kept = log.head
    for _ in range(1000):
        try:
            kept = await log.record("x", text="y" * 1000)
        except AuditError as error:
            assert "No space left" in str(error)  # noqa: PT017 - the last confirmed one is the point
            return kept
    raise AssertionError("the disk never became full")


async def test_once_the_disk_was_full_every_record_is_refused_for_ever(small_disk):
    log = open_log(small_disk / "audit")
    kept = await fill(log)
    assert log.head == kept
    assert kept.seq > 0
    for file in small_disk.glob("audit/*.log"):
        os.truncate(file, 0)  # there is room again, and it changes nothing
    for _ in range(3):
        with pytest.raises(AuditError, match="No space left"):
            await asyncio.wait_for(log.record("y"), 5)
    log.close()


async def test_a_log_whose_disk_was_full_opens_again_once_there_is_room(small_disk):
    ballast = small_disk / "ballast"
    ballast.write_bytes(b"\0" * 100_000)
    log = open_log(small_disk / "audit")
    anchor = await fill(log)
    log.close()
    ballast.unlink()
    open_log(small_disk / "audit").close()
    assert verify(small_disk / "audit", anchor).ok
