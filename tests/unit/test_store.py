"""The store as its callers see it: written means on disk, and one failure is nobody else's."""

import asyncio
import sqlite3
import stat
import threading

import pytest

from hermesd.state.schema import MIGRATIONS
from hermesd.state.settings import read_setting, write_setting
from hermesd.state.store import StoreError, open_store


@pytest.fixture
def store(tmp_path):
    opened = open_store(tmp_path / "state.db")
    yield opened
    opened.close()


def put(name, value):
    return lambda connection: write_setting(connection, name, value)


def get(name):
    return lambda connection: read_setting(connection, name)


class Held:
    """Keeps the writer thread busy with one write, so that what comes next waits together."""

    def __init__(self, store):
        self._store, self._started, self._gate = store, threading.Event(), threading.Event()

    async def __aenter__(self):
        self._task = asyncio.create_task(self._store.write(self._hold))
        await asyncio.to_thread(self._started.wait, 10)

    async def __aexit__(self, *_exc):
        self._gate.set()
        await self._task

    def _hold(self, _connection):
        self._started.set()
        self._gate.wait(10)


async def test_a_write_returns_the_works_value_and_another_connection_sees_it_at_once(store, tmp_path):
    def work(connection):
        write_setting(connection, "a", [1, "二"])
        return "value"

    assert await store.write(work) == "value"
    other = sqlite3.connect(tmp_path / "state.db")
    assert read_setting(other, "a") == [1, "二"]
    other.close()


async def test_work_runs_in_the_one_writer_thread_and_never_on_the_loop(store):
    names = await asyncio.gather(
        *(store.write(lambda _connection: threading.current_thread().name) for _ in range(20))
    )
    assert set(names) == {"store-writer"}


async def test_work_that_fails_is_undone_and_takes_no_other_of_its_group_with_it(store):
    def fail(connection):
        write_setting(connection, "bad", 1)
        raise LookupError("mine")

    async with Held(store):
        group = [asyncio.create_task(store.write(work)) for work in (put("a", 1), fail, put("b", 2))]
        await asyncio.sleep(0)
    first, failed, last = await asyncio.gather(*group, return_exceptions=True)
    assert (first, last) == (None, None)
    assert isinstance(failed, LookupError)
    assert [await store.read(get(name)) for name in ("a", "bad", "b")] == [1, None, 2]


async def test_writes_that_arrive_together_share_commits(store):
    commits: list[str] = []
    store._writer.set_trace_callback(lambda sql: commits.append(sql) if sql == "COMMIT" else None)
    async with Held(store):
        tasks = [asyncio.create_task(store.write(lambda c: c.total_changes)) for _ in range(100)]
        await asyncio.sleep(0)
    await asyncio.gather(*tasks)
    assert len(commits) == 2  # the one that held the door, and one for the hundred


async def test_a_broken_constraint_is_the_callers_error_and_nothing_else(store):
    def twice(connection):
        for _ in range(2):
            connection.execute("INSERT INTO settings (name, value) VALUES ('x', '1')")

    with pytest.raises(sqlite3.IntegrityError):
        await store.write(twice)
    assert await store.read(get("x")) is None


async def test_a_reader_cannot_write(store):
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        await store.read(put("a", 1))


async def test_a_reader_sees_one_moment_while_others_write(store):
    await store.write(put("n", 1))
    started, go_on = threading.Event(), threading.Event()

    def look_twice(connection):
        first = read_setting(connection, "n")
        started.set()
        go_on.wait(5)
        return first, read_setting(connection, "n")

    looking = asyncio.create_task(store.read(look_twice))
    await asyncio.to_thread(started.wait, 5)
    await store.write(put("n", 2))
    go_on.set()
    assert await looking == (1, 1)
    assert await store.read(get("n")) == 2


async def test_a_writer_that_gives_up_before_its_turn_is_not_written(store):
    async with Held(store):
        waiting = asyncio.create_task(store.write(put("late", 1)))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
    assert await store.read(get("late")) is None


async def test_closing_commits_what_was_handed_in_and_refuses_what_comes_after(tmp_path):
    store = open_store(tmp_path / "state.db")
    tasks = [asyncio.create_task(store.write(put(f"n{n}", n))) for n in range(50)]
    await asyncio.sleep(0)
    await asyncio.to_thread(store.close)
    await asyncio.gather(*tasks)
    store.close()
    with pytest.raises(StoreError, match="closed"):
        await store.write(put("x", 1))
    with pytest.raises(StoreError, match="closed"):
        await store.read(get("x"))
    again = open_store(tmp_path / "state.db")
    assert await again.read(get("n49")) == 49
    again.close()


async def test_work_that_commits_by_itself_is_reported_and_the_store_goes_on(store):
    with pytest.raises(StoreError):
        await store.write(lambda connection: connection.execute("COMMIT"))
    await store.write(put("a", 1))
    assert await store.read(get("a")) == 1


async def test_the_file_is_synced_at_every_commit_and_checks_its_references(store):
    pragmas = await store.write(
        lambda c: [c.execute(f"PRAGMA {name}").fetchone()[0] for name in ("synchronous", "foreign_keys")]
    )
    assert pragmas == [2, 1]
    assert await store.read(lambda c: c.execute("PRAGMA journal_mode").fetchone()[0]) == "wal"


async def test_nobody_else_may_read_the_store_or_the_files_beside_it(store, tmp_path):
    await store.write(put("a", 1))
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert modes == {"state.db": 0o640, "state.db-wal": 0o640, "state.db-shm": 0o640}


def test_a_link_where_the_store_should_be_is_refused(tmp_path):
    (tmp_path / "elsewhere").write_bytes(b"")
    (tmp_path / "state.db").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StoreError):
        open_store(tmp_path / "state.db")


def test_a_file_that_is_no_store_is_refused_and_left_alone(tmp_path):
    path = tmp_path / "state.db"
    path.write_bytes(b"precious text, not a database" * 100)
    with pytest.raises(StoreError, match="not a database"):
        open_store(path)
    assert path.read_bytes().startswith(b"precious")


def test_a_store_of_a_later_version_is_refused(tmp_path):
    path = tmp_path / "state.db"
    open_store(path).close()
    later = sqlite3.connect(path)
    later.execute(f"PRAGMA user_version = {len(MIGRATIONS) + 1}")
    later.close()
    with pytest.raises(StoreError, match="version"):
        open_store(path)


def test_opening_again_changes_no_table(tmp_path):
    path = tmp_path / "state.db"

    def tables():
        open_store(path).close()
        found = sqlite3.connect(path)
        try:
            return found.execute("SELECT name, sql FROM sqlite_master ORDER BY name").fetchall()
        finally:
            found.close()

    assert tables() == tables()


def test_a_migration_that_fails_leaves_nothing_of_itself(tmp_path):
    path = tmp_path / "state.db"
    foreign = sqlite3.connect(path)
    foreign.execute("CREATE TABLE runs (mine)")
    foreign.close()
    with pytest.raises(StoreError, match="already exists"):
        open_store(path)
    found = sqlite3.connect(path)
    assert found.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall() == [("runs",)]
    assert found.execute("PRAGMA user_version").fetchone() == (0,)
    found.close()
