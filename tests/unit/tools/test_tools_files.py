"""The tools that look at files, list them and remove them, on real folders through descriptors."""

import io
import json
import os
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermesd.control.tools import fs_largest, fs_remove, fs_targets, log_stats, process_top, rows, walk
from hermesd.control.tools.manifest_file import BadManifestError, Record, read_record, write_record

OLD = 1_000_000_000
ALL = "caches,rotated_logs,temporary"


class Streams:
    """Stands for standard input and output of a tool, as text over bytes."""

    def __init__(self, stdin=b""):
        self.out, self.err = io.BytesIO(), io.StringIO()
        self.stdin = io.TextIOWrapper(io.BytesIO(stdin))
        self.stdout = io.TextIOWrapper(self.out, write_through=True)

    @contextmanager
    def used(self):
        before = sys.stdin, sys.stdout, sys.stderr
        sys.stdin, sys.stdout, sys.stderr = self.stdin, self.stdout, self.err
        try:
            yield
        finally:
            sys.stdin, sys.stdout, sys.stderr = before


def run(tool, folder, *arguments, stdin=b""):
    """Run a tool on a folder; its exit status, output and complaint."""
    fd = os.open(folder, os.O_RDONLY)
    streams = Streams(stdin)
    try:
        with streams.used():
            status = tool.main([str(fd), *arguments])
    finally:
        os.close(fd)
    return status, streams.out.getvalue(), streams.err.getvalue()


def rows_of(output):
    return [json.loads(line) for line in output.decode().splitlines()]


def write(path, content=b"x", age=OLD):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    os.utime(path, (age, age))


def descriptors():
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def targets(folder, kinds=ALL, older="3600"):
    status, output, complaint = run(fs_targets, folder, kinds, older)
    assert (status, complaint) == (0, "")
    return {read_record(record).path for record in output.split(b"\0")[:-1]}


def test_the_largest_files_come_first_by_what_they_take_on_disk(tmp_path):
    write(tmp_path / "a/small", b"x" * 10)
    write(tmp_path / "a/big", b"x" * 100_000)
    write(tmp_path / "b/middle", b"x" * 50_000)
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(1 << 30)
    status, output, _ = run(fs_largest, tmp_path, "2")
    *files, total = rows_of(output)

    assert status == 0
    assert [(row["path"], row["size_bytes"]) for row in files] == [("a/big", 100_000), ("b/middle", 50_000)]
    assert files[0]["mtime"] == "2001-09-09T01:46:40Z"
    assert total == {
        "total": True,
        "files": 4,
        "size_bytes": 150_010 + (1 << 30),
        "folders_skipped": 0,
        "disk_bytes": sum(
            (tmp_path / name).stat().st_blocks * 512 for name in ("a/small", "a/big", "b/middle", "sparse")
        ),
    }


def test_links_are_not_followed_and_two_names_of_a_file_count_once(tmp_path):
    write(tmp_path / "in/file", b"x" * 5000)
    write(tmp_path / "out/secret", b"x" * 9000)
    os.link(tmp_path / "in/file", tmp_path / "in/again")
    (tmp_path / "in/link").symlink_to(tmp_path / "out")
    (tmp_path / "in/file-link").symlink_to(tmp_path / "out/secret")
    *files, total = rows_of(run(fs_largest, tmp_path / "in", "10")[1])

    assert [row["path"] for row in files] == ["again"]
    assert (total["files"], total["size_bytes"]) == (1, 5000)


def test_nothing_is_said_about_a_folder_without_files(tmp_path):
    assert run(fs_largest, tmp_path, "5") == (0, b"", "")
    assert run(log_stats, tmp_path) == (0, b"", "")
    assert run(fs_targets, tmp_path, ALL, "0") == (0, b"", "")


def test_a_name_that_is_no_text_is_shown_with_escapes_and_given_exactly(tmp_path):
    name = b"bad\xff\n\x1b[2J"
    write(tmp_path / os.fsdecode(name))
    (row, _) = rows_of(run(fs_largest, tmp_path, "1")[1])

    assert row["path"] == "bad\\xff\n\x1b[2J"
    assert bytes.fromhex(row["path_hex"]) == name
    assert b"\x1b" not in run(fs_largest, tmp_path, "1")[1]


def test_a_very_deep_tree_is_walked_to_its_bound_and_the_rest_is_counted(tmp_path):
    fd = os.open(tmp_path, os.O_RDONLY)
    inner = os.dup(fd)
    for _ in range(walk.MAX_DEPTH + 20):
        os.mkdir("d", dir_fd=inner)
        below = os.open("d", os.O_RDONLY, dir_fd=inner)
        os.close(inner)
        inner = below
    os.close(inner)
    skipped = walk.Skipped()
    depth = sum(1 for _ in walk.walk(fd, skipped))
    before = descriptors()
    list(walk.walk(fd, walk.Skipped()))
    os.close(fd)

    assert (depth, skipped.too_deep) == (walk.MAX_DEPTH, 1)
    assert descriptors() == before - 1


def test_a_folder_that_became_a_link_meanwhile_is_not_entered(tmp_path):
    (tmp_path / "link").symlink_to("/etc")
    fd = os.open(tmp_path, os.O_RDONLY)
    skipped = walk.Skipped()
    found = walk._next(walk.Folder(fd, b"", [], [b"link"]), os.fstat(fd).st_dev, 1, skipped)
    os.close(fd)

    assert found is None
    assert skipped.unreadable == 1


def test_a_cleanup_lists_rubbish_of_the_kinds_that_were_asked_for(tmp_path):
    for name in ("app/cache/a", "app/.cache/b", "log/app.log.1", "log/app.log.2.gz", "x/y.tmp", "x/core.17"):
        write(tmp_path / name)

    assert targets(tmp_path, "caches") == {b"app/cache/a", b"app/.cache/b"}
    assert targets(tmp_path, "rotated_logs") == {b"log/app.log.1", b"log/app.log.2.gz"}
    assert targets(tmp_path, "temporary") == {b"x/y.tmp", b"x/core.17"}
    assert len(targets(tmp_path)) == 6


def test_a_cleanup_never_lists_what_may_be_needed(tmp_path):
    for name in (
        "cache/live.log",
        "cache/index.db",
        "cache/x.sqlite-wal",
        "cache/.hidden",
        "cache/a.lock",
        "log/app.log",
    ):
        write(tmp_path / name)
    write(tmp_path / ".git/cache/object")
    write(tmp_path / "mysql/cache/table")
    write(tmp_path / "cache/odd", b"SQLite format 3\0rest")
    write(tmp_path / "cache/linked")
    os.link(tmp_path / "cache/linked", tmp_path / "elsewhere")
    (tmp_path / "cache/link").symlink_to("/etc/passwd")
    os.mkfifo(tmp_path / "cache/pipe")
    write(tmp_path / "cache/young", age=time.time())
    write(tmp_path / "report.1")
    write(tmp_path / "report")

    assert targets(tmp_path) == set()


def test_a_root_in_a_temporary_folder_is_not_rubbish_for_that(tmp_path):
    write(tmp_path / "tmp/app/data")
    write(tmp_path / "tmp/app/tmp/left")

    assert targets(tmp_path / "tmp") == {b"app/tmp/left"}
    write(tmp_path / "cache/made-again")
    assert targets(tmp_path / "cache") == {b"made-again"}


def test_an_unknown_kind_is_refused(tmp_path):
    status, output, complaint = run(fs_targets, tmp_path, "caches,everything", "0")

    assert (status, output) == (os.EX_USAGE, b"")
    assert "caches, rotated_logs, temporary" in complaint


numbers = st.integers(min_value=0, max_value=1 << 63)


@given(st.tuples(*[numbers] * 9), st.binary(min_size=1).filter(lambda data: b"\0" not in data))
def test_a_record_of_a_manifest_reads_as_it_was_written(figures, path):
    record = write_record(Record(figures, path))
    again = read_record(record[:-1])

    assert record.endswith(b"\0")
    assert (again.numbers, again.path) == (figures, path)


@given(st.binary(max_size=80))
def test_any_bytes_are_a_record_or_refused(data):
    try:
        record = read_record(data)
    except BadManifestError:
        return
    assert record.path


def cleaned(folder, stdin):
    return run(fs_remove, folder, ALL, "3600", stdin=stdin)


def manifest_of(folder):
    return run(fs_targets, folder, ALL, "3600")[1]


def test_a_removal_removes_exactly_the_manifest_and_says_what_it_gained(tmp_path):
    for name in ("cache/a", "cache/sub/b", "cache/new\nline", "cache/-rf"):
        write(tmp_path / name, b"x" * 10_000)
    write(tmp_path / "keep", b"keep")
    manifest = manifest_of(tmp_path)
    write(tmp_path / "cache/later", b"x")
    status, output, _ = cleaned(tmp_path, manifest)
    (gain,) = rows_of(output)

    assert status == 0
    assert (gain["files_removed"], gain["files_skipped"], gain["size_bytes"]) == (4, 0, 40_000)
    assert {path.name for path in tmp_path.rglob("*") if path.is_file()} == {"keep", "later"}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda path: path.write_bytes(b"longer than it was"), "had 4 bytes and has 18"),
        (lambda path: os.utime(path, (OLD + 1, OLD + 1)), "was written since"),
        (lambda path: (path.unlink(), write(path, b"data")), "is another file now"),
        (lambda path: path.unlink(), "no such file"),
        (lambda path: os.link(path, path.with_name("other")), "has other names"),
        (
            lambda path: (path.rename(path.with_name("moved")), path.symlink_to("moved")),
            "is another file now",
        ),
        (
            lambda path: (path.parent.rename(path.parent.with_name("real")), path.parent.symlink_to("real")),
            "symbolic links",
        ),
    ],
)
def test_nothing_is_removed_when_one_file_is_not_what_it_was(tmp_path, change, words):
    write(tmp_path / "cache/first", b"data")
    write(tmp_path / "cache/in/second", b"data")
    held = os.open(tmp_path / "cache/in/second", os.O_RDONLY)  # its inode is not given away meanwhile
    manifest = manifest_of(tmp_path)
    change(tmp_path / "cache/in/second")
    status, output, complaint = cleaned(tmp_path, manifest)
    os.close(held)

    assert (status, output) == (3, b"")
    assert words in complaint.lower() or "not a directory" in complaint.lower()
    assert (tmp_path / "cache/first").exists()


@pytest.mark.parametrize(
    "path", [b"../outside", b"/etc/passwd", b"a/../../outside", b"./a", b"a//b", b"cache/"]
)
def test_a_manifest_cannot_lead_out_of_its_folder(tmp_path, path):
    write(tmp_path / "outside", b"data")
    write(tmp_path / "root/a", b"data")
    status = (tmp_path / "outside").stat()
    numbers = (status.st_dev, status.st_ino, 4, 8, status.st_mtime_ns, status.st_mode, 0, 0, 1)

    assert cleaned(tmp_path / "root", write_record(Record(numbers, path)))[0] == 3
    assert (tmp_path / "outside").exists()


@pytest.mark.parametrize("data", [b"garbage\0", b"1 2 3\0", b"no end", b"1 2 3 4 5 6 7 8 9 \0"])
def test_what_is_no_manifest_removes_nothing(tmp_path, data):
    write(tmp_path / "cache/a", b"data")
    good = manifest_of(tmp_path)

    assert cleaned(tmp_path, good + data)[0] == os.EX_USAGE
    assert cleaned(tmp_path, data)[0] == os.EX_USAGE
    assert (tmp_path / "cache/a").exists()


def test_a_removal_that_removes_nothing_is_no_success(tmp_path):
    write(tmp_path / "cache/a", b"data")
    manifest = manifest_of(tmp_path)
    streams = Streams()
    fd = os.open(tmp_path, os.O_RDONLY)
    (tmp_path / "cache/a").unlink()
    with streams.used():
        status = fs_remove.remove(fd, manifest)  # it was there when it was verified, and is not any more
    os.close(fd)
    gain, skipped = rows_of(streams.out.getvalue())

    assert status == 1
    assert (gain["files_removed"], gain["files_skipped"]) == (0, 1)
    assert skipped == {"path": "cache/a", "reason": "no such file or directory"}
    assert "no such file" in streams.err.getvalue()


def test_a_file_that_changes_after_it_was_verified_is_left_alone(tmp_path):
    write(tmp_path / "cache/a", b"data")
    write(tmp_path / "cache/b", b"data")
    manifest = manifest_of(tmp_path)
    (tmp_path / "cache/b").write_bytes(b"written to again")
    fd = os.open(tmp_path, os.O_RDONLY)
    streams = Streams()
    with streams.used():
        assert fs_remove.remove(fd, manifest) == 0
    os.close(fd)
    gain, skipped = rows_of(streams.out.getvalue())

    assert (gain["files_removed"], gain["files_skipped"]) == (1, 1)
    assert (skipped["path"], skipped["reason"]) == ("cache/b", "had 4 bytes and has 16")
    assert (tmp_path / "cache/b").exists()


def test_an_empty_manifest_is_a_removal_of_nothing(tmp_path):
    (gain,) = rows_of(cleaned(tmp_path, b"")[1])
    assert (gain["files_removed"], gain["freed_bytes"]) == (0, 0)


LINES = """\
2024-01-31T12:00:00Z [error] upstream 10.0.0.1 timed out after 31 ms
2024-01-31T12:00:01Z [error] upstream 10.0.0.2 timed out after 7 ms
2024-01-31T12:00:02Z [warn] slow request 5f3a9c0d1e2b4a6f
2024-01-31T12:00:03Z INFO all is well
2024-01-31T12:00:04Z nothing to say
"""


def test_a_log_is_counted_by_level_and_by_message(tmp_path):
    write(tmp_path / "app.log", LINES.encode())
    (row,) = rows_of(run(log_stats, tmp_path)[1])

    assert (row["path"], row["lines"], row["size_bytes"], row["partial"]) == ("app.log", 5, len(LINES), False)
    assert (row["errors"], row["warnings"], row["info"], row["debug"]) == (2, 1, 1, 0)
    assert (row["first"], row["last"]) == ("2024-01-31T12:00:00", "2024-01-31T12:00:04")
    assert row["top"][0]["count"] == 2
    assert "timed out after" in row["top"][0]["message"]
    assert not any(char.isdigit() for item in row["top"] for char in item["message"])


def test_logs_of_a_folder_come_largest_first_with_a_total(tmp_path):
    write(tmp_path / "small.log", b"error\n")
    write(tmp_path / "in/big.log", b"error\nwarning\n" * 100)
    write(tmp_path / "in/big.log.1", b"error\n")
    write(tmp_path / "in/big.log.2.gz", b"packed")
    write(tmp_path / "in/data.bin", b"error\n")
    *files, total = rows_of(run(log_stats, tmp_path)[1])

    assert [row["path"] for row in files] == ["in/big.log", "in/big.log.1", "small.log"]
    assert (total["files"], total["lines"], total["errors"], total["warnings"]) == (3, 202, 102, 100)


def test_one_log_can_be_the_root_itself(tmp_path):
    write(tmp_path / "odd-name", LINES.encode())
    (row,) = rows_of(run(log_stats, tmp_path / "odd-name")[1])

    assert (row["path"], row["lines"]) == ("", 5)


def test_a_log_without_line_ends_and_with_a_million_messages_stays_bounded(tmp_path):
    write(tmp_path / "one.log", b"x" * 3_000_000)
    names = (f"{n:08d}".translate(str.maketrans("0123456789", "abcdefghij")) for n in range(30_000))
    write(tmp_path / "many.log", "\n".join(names).encode())
    rows = {row.get("path"): row for row in rows_of(run(log_stats, tmp_path)[1])}

    assert rows["one.log"]["lines"] == 1
    assert rows["many.log"]["lines"] == 30_000
    assert all(len(item["message"]) <= 300 for item in rows["one.log"]["top"])


@pytest.mark.parametrize(
    ("line", "seen"),
    [
        (b"2024-01-31 12:00:00,123 x", "2024-01-31T12:00:00"),
        (b"2024/01/31 12:00:00 [error] 7#7: x", "2024-01-31T12:00:00"),
        (b'10.0.0.1 - - [31/Jan/2024:12:00:00 +0000] "GET / HTTP/1.1" 200', "2024-01-31T12:00:00"),
        (b"Jan  3 12:00:00 host sshd[1]: x", "Jan  3 12:00:00"),
        (b"no time here", ""),
        (b"", ""),
    ],
)
def test_times_of_common_logs_are_recognised(line, seen):
    assert log_stats.timestamp(line) == seen


@given(st.binary(max_size=400))
def test_no_line_breaks_the_statistics(line):
    stats = log_stats.Stats(b"x", len(line))
    log_stats._count(line, stats)
    assert json.loads(rows.render(stats.row()))["lines"] == 1


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@given(json_values)
def test_rows_are_json_that_others_read(value):
    text = rows.render(value)
    assert json.loads(text) == value
    assert text.isascii()
    assert "\n" not in text


def test_processes_are_listed_without_their_arguments():
    streams = Streams()
    with streams.used():
        assert process_top.main(["500", "memory"]) == 0
    found = rows_of(streams.out.getvalue())

    assert all(set(row) == {"pid", "name", "rss_bytes", "cpu_seconds", "state", "age_s"} for row in found)
    assert [row["rss_bytes"] for row in found] == sorted((row["rss_bytes"] for row in found), reverse=True)
    assert os.getppid() in {row["pid"] for row in found}


def test_a_process_whose_name_looks_like_the_rest_of_its_line_is_read_right():
    fields = " ".join(str(number) for number in range(4, 53))
    row = process_top.parse_stat(f"17 (a) R 1 (b) S {fields}", 1000.0)

    assert (row["pid"], row["name"], row["state"]) == (17, "a) R 1 (b", "S")
