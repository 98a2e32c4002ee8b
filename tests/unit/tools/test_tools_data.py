"""The tools over data: one SELECT on a real SQLite file, and charts of rows."""

import io
import json
import os
import sqlite3
import sys
import xml.etree.ElementTree as ET
from contextlib import contextmanager

import pytest

from hermesd.control.tools import artifact_read, chart, sqlite_query


@contextmanager
def streams():
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = io.StringIO(), io.StringIO()
    try:
        yield sys.stdout, sys.stderr
    finally:
        sys.stdout, sys.stderr = before


def run(tool, path, *arguments, **more):
    fd = os.open(path, os.O_RDONLY)
    try:
        with streams() as (out, err):
            status = tool.main([str(fd), *arguments], **more)
    finally:
        os.close(fd)
    return status, out.getvalue(), err.getvalue()


def query(path, statement, limit=50, **more):
    status, out, err = run(sqlite_query, path, str(limit), statement, **more)
    return status, [json.loads(line) for line in out.splitlines()], err


@pytest.fixture
def shop(tmp_path):
    path = tmp_path / "shop.db"
    connection = sqlite3.connect(path)
    connection.executescript(
        "CREATE TABLE orders (id INTEGER PRIMARY KEY, customer TEXT, total REAL, note BLOB);"
        "INSERT INTO orders VALUES (1, '王小明', 12.5, x'00ff'), (2, 'Ada', 1e999, NULL), (3, 'Eve', 7, 'x');"
    )
    connection.close()
    return path


def test_a_select_answers_its_rows(shop):
    status, rows, err = query(shop, "SELECT id, customer, total, note FROM orders ORDER BY id")

    assert (status, err) == (0, "")
    assert rows[0] == {"id": 1, "customer": "王小明", "total": 12.5, "note": "x'00ff'"}
    assert rows[1] == {"id": 2, "customer": "Ada", "total": "inf", "note": None}


def test_columns_of_one_name_are_all_shown(shop):
    assert query(shop, "SELECT 1 AS a, 2 AS a")[1] == [{"a": 1, "a_2": 2}]


def test_more_rows_than_asked_for_are_said_and_not_shown(shop):
    _, rows, _ = query(shop, "SELECT id FROM orders ORDER BY id", limit=2)

    assert rows == [{"id": 1}, {"id": 2}, {"note": "there are more rows than 2"}]


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM orders",
        "INSERT INTO orders(customer) VALUES ('x')",
        "CREATE TABLE t (a)",
        "CREATE TEMP TABLE t (a)",
        "DROP TABLE orders",
        "PRAGMA writable_schema = 1",
        "PRAGMA query_only = 0",
        "ATTACH '/etc/passwd' AS other",
        "VACUUM INTO '/tmp/copy'",
        "SELECT load_extension('/tmp/evil.so')",
        "BEGIN IMMEDIATE",
        "SELECT 1; DELETE FROM orders",
        "WITH x AS (SELECT 1) UPDATE orders SET total = 0",
        "not a statement",
    ],
)
def test_nothing_but_one_select_passes(shop, statement):
    before = shop.read_bytes()
    status, rows, err = query(shop, statement)

    assert (status, rows) == (1, [])
    assert err.startswith("no answer: ")
    assert shop.read_bytes() == before
    assert [path.name for path in shop.parent.iterdir()] == ["shop.db"]


def test_a_trigger_or_view_of_the_file_gets_no_more_than_its_reader(shop):
    connection = sqlite3.connect(shop)
    connection.execute("CREATE VIEW trap AS SELECT load_extension('/tmp/evil.so')")
    connection.close()

    assert query(shop, "SELECT * FROM trap")[0] == 1


def test_the_tables_describe_themselves(shop):
    _, rows, _ = query(shop, "PRAGMA table_info(orders)")

    assert [row["name"] for row in rows] == ["id", "customer", "total", "note"]


def test_a_statement_that_takes_too_long_is_ended_with_the_reason(shop):
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n"
    status, _, err = query(shop, endless, seconds=0.05)

    assert status == 1
    assert "longer than" in err


def test_changes_that_wait_in_the_write_ahead_log_are_mentioned(shop):
    writer = sqlite3.connect(shop)
    writer.execute("PRAGMA journal_mode = WAL")
    writer.execute("INSERT INTO orders(customer) VALUES ('new')")
    writer.commit()
    try:
        status, rows, _ = query(shop, "SELECT count(*) AS orders FROM orders")
    finally:
        writer.close()

    assert status == 0
    assert rows[0] == {"orders": 3}
    assert "write-ahead log" in rows[1]["note"]


def test_what_is_no_database_is_said(tmp_path):
    (tmp_path / "text").write_text("no database at all, only words\n" * 100)

    assert "not a database" in query(tmp_path / "text", "SELECT * FROM sqlite_schema")[2]
    assert "folder" in query(tmp_path, "SELECT 1")[2]


def rows_file(folder, *rows):
    path = folder / "rows"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows) + "not a row\n")
    return path


def test_bars_are_as_long_as_their_values(tmp_path):
    path = rows_file(tmp_path, {"path": "/a", "size": 80}, {"path": "/bb", "size": 40}, {"path": "/c"})
    status, out, _ = run(chart, path, "text", "path", "size")
    title, blocks, first, second = out.splitlines()

    assert (status, title, blocks) == (0, "size by path", "█▅")
    assert (first.count("█"), second.count("█")) == (40, 20)
    assert (first.split()[-1], second.split()[-1]) == ("80", "40")


def test_a_picture_is_well_formed_whatever_the_labels_are(tmp_path):
    path = rows_file(
        tmp_path,
        {"n": "<script>alert(1)</script>&", "v": 3},
        {"n": "\x00\u202e", "v": 6},
        {"n": "x", "v": -1},
    )
    _, out, _ = run(chart, path, "svg", "n", "v")
    picture = ET.fromstring(out)
    bars = [shape.get("width") for shape in picture.iter("{http://www.w3.org/2000/svg}rect")][1:]

    assert {shape.tag.rpartition("}")[2] for shape in picture.iter()} == {"svg", "rect", "g", "text"}
    assert bars == ["240.0", "480.0"]


def test_rows_beyond_what_can_be_drawn_are_counted(tmp_path):
    path = rows_file(tmp_path, *({"n": number, "v": number} for number in range(100)))

    assert "(40 more rows are not drawn)" in run(chart, path, "text", "n", "v")[1]
    assert "40 more rows are not drawn" in run(chart, path, "svg", "n", "v")[1]


def test_values_of_zero_and_no_values_are_no_fault(tmp_path):
    path = rows_file(tmp_path, {"n": "a", "v": 0})

    assert run(chart, path, "text", "n", "v")[0] == 0
    status, out, err = run(chart, path, "text", "n", "missing")
    assert (status, out) == (1, "")
    assert "no row" in err


def read_range(path, offset, length):
    """Run the tool with real descriptors, since it writes bytes."""
    fd = os.open(path, os.O_RDONLY)
    before = sys.stdout
    sys.stdout = io.TextIOWrapper(io.BytesIO())
    try:
        status = artifact_read.main([str(fd), str(offset), str(length)])
        return status, sys.stdout.buffer.getvalue().decode()
    finally:
        sys.stdout = before
        os.close(fd)


def test_a_range_has_two_hundred_lines_at_most_and_the_ranges_together_are_the_whole(tmp_path):
    path = tmp_path / "kept"
    whole = "".join(f"line {number} 磁盘\n" for number in range(1000)) + "the end"
    path.write_text(whole)
    found, offset = "", 0
    while True:
        status, text = read_range(path, offset, 32_768)
        assert status == 0
        assert len(text.splitlines()) <= 200
        body, mark, rest = text.partition("[")
        found += body
        if not mark:
            break
        offset = int(rest.partition("offset=")[2].rstrip("]\n"))
        assert offset == len(found.encode())
    assert found == whole


def test_a_range_that_ends_within_a_line_says_where_it_goes_on(tmp_path):
    path = tmp_path / "kept"
    path.write_text("磁盘满了")
    assert read_range(path, 0, 4) == (0, "磁\n[9 more bytes, read on with offset=3]\n")
