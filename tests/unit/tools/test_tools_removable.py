"""What a cleanup may ever name, judged by names alone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermesd.control.tools.removable import KINDS, is_removable, siblings_of

names = st.binary(min_size=1, max_size=20).filter(lambda name: b"/" not in name and b"\0" not in name)


def removable(name, *beside, folders=(b"app",), kinds=KINDS):
    return is_removable(name, folders, siblings_of((name, *beside)), kinds)


@pytest.mark.parametrize(
    "name",
    [
        *(
            b"app.log.1",
            b"app.log.12",
            b"app.log.2.gz",
            b"APP.LOG.3.XZ",
            b"syslog.1",
            b"syslog.2.gz",
            b"messages-20240131",
        ),
        *(b"app.log-20240131", b"app.log-20240131.gz", b"app.log.2024-01-31", b"app.err.1"),
    ],
)
def test_logs_that_were_rotated_away_are_known_by_their_names(name):
    live = name.split(b".log")[0].split(b"-2")[0]
    assert removable(name, live + b".log", live, b"app.log", b"messages", kinds=("rotated_logs",))


@pytest.mark.parametrize(
    "name",
    [
        *(
            b"app.log",
            b"syslog",
            b"app.out",
            b"report.1",
            b"photo.1",
            b"data-20240131",
            b"backup.gz",
            b"app.log.1234",
        )
    ],
)
def test_nothing_else_is_a_rotated_log(name):
    assert not removable(name, kinds=("rotated_logs",))


def test_a_packed_log_counts_only_beside_the_live_one():
    assert removable(b"app.log.gz", b"app.log", kinds=("rotated_logs",))
    assert not removable(b"app.log.gz", kinds=("rotated_logs",))


def test_in_a_folder_of_logs_a_numbered_file_beside_its_live_one_counts():
    assert removable(b"access_log.1", b"access_log", folders=(b"log", b"httpd"), kinds=("rotated_logs",))
    assert not removable(b"access_log.1", b"access_log", folders=(b"srv",), kinds=("rotated_logs",))


def test_the_newest_of_a_dated_series_is_the_live_one():
    series = (b"catalina.2024-01-30.log", b"catalina.2024-01-31.log")

    assert removable(series[0], series[1], kinds=("rotated_logs",))
    assert not removable(series[1], series[0], kinds=("rotated_logs",))
    assert removable(series[1], series[0], b"catalina.log", kinds=("rotated_logs",))


@given(names, st.lists(names, max_size=3), st.lists(names, max_size=3))
def test_what_was_not_asked_for_is_never_named(name, folders, beside):
    assert not is_removable(name, folders, siblings_of((name, *beside)), ())


@given(names, st.lists(names, max_size=3))
def test_no_dotfile_is_ever_named(name, folders):
    assert not is_removable(b"." + name, [*folders, b"cache"], siblings_of(()), KINDS)


@given(
    names, st.sampled_from([b".db", b".sqlite3", b"-wal", b".log", b".journal", b".lock", b".pid", b".ibd"])
)
def test_no_live_log_database_or_lock_is_ever_named(name, ending):
    assert not is_removable(name + ending, [b"cache", b"tmp"], siblings_of((name,)), ("caches", "temporary"))
