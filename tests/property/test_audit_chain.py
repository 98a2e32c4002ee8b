"""No change of any byte, at any place, passes unseen; any text is recorded."""

import tempfile
from datetime import UTC, datetime
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from hermesd.audit import AuditError, open_log, read_records, segments, verify

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(st.characters()), inner, max_size=3),
    max_leaves=5,
)


def fresh(folder: Path, count: int) -> Path:
    log = open_log(folder, lambda: NOW)
    futures = [log.append("x", f"t{number}", number=number) for number in range(count)]
    log.close()
    assert all(future.done() for future in futures)
    return segments(folder)[0]


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_one_changed_byte_anywhere_is_found_and_the_log_does_not_open_as_whole(data):
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        file = fresh(folder, data.draw(st.integers(1, 6)))
        text = bytearray(file.read_bytes())
        place = data.draw(st.integers(0, len(text) - 1))
        text[place] ^= data.draw(st.integers(1, 255))
        file.write_bytes(text)
        found = verify(folder)
        assert not found.ok
        assert found.first_bad is not None
        assert found.first_bad <= bytes(text[:place]).count(b"\n") + 1


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 8), st.data())
def test_any_other_order_or_selection_of_records_is_found_given_the_head(count, data):
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        file = fresh(folder, count)
        head = verify(folder).head
        kept = file.read_bytes().splitlines(keepends=True)
        chosen = data.draw(st.lists(st.integers(0, count - 1), max_size=count + 2))
        file.write_bytes(b"".join(kept[index] for index in chosen))
        assert verify(folder, head).ok == (chosen == list(range(count)))


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 5), st.data())
def test_wherever_a_crash_cut_the_file_it_opens_and_keeps_every_whole_record(count, data):
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        file = fresh(folder, count)
        text = file.read_bytes()
        cut = text[: data.draw(st.integers(0, len(text)))]
        file.write_bytes(cut)
        open_log(folder).close()
        whole, torn = cut.count(b"\n"), not cut.endswith(b"\n") and bool(cut)
        assert verify(folder).ok
        assert verify(folder).records == whole + torn


@settings(max_examples=60, deadline=None)
@given(st.dictionaries(st.from_regex(r"[a-z]{1,6}", fullmatch=True), values, max_size=4))
def test_whatever_is_recorded_is_one_line_that_reads_back(fields):
    fields = {f"f_{key}": value for key, value in fields.items()}
    with tempfile.TemporaryDirectory() as name:
        log = open_log(Path(name))
        try:
            log.append("kind", "task", **fields).result(timeout=5)
        except AuditError:
            raise AssertionError("a value stopped the log") from None
        finally:
            log.close()
        (record,) = read_records(Path(name), "task")
        assert set(record) == {"seq", "kind", "task_id", "time", *fields}
        assert verify(Path(name)).ok
