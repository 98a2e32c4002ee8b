"""The shelf of whole outputs is bounded, and what is cut says how to read on."""

import hashlib
import os

from hermesd.control.artifacts import Artifacts
from hermesd.control.catalogue import Output
from hermesd.control.output import MAX_TEXT, read_output
from hermesd.control.redaction import Redactor
from hermesd.control.sandbox.base import Ended


def shelf(folder, most=3, most_bytes=1000):
    return Artifacts(folder / "shelf", most=most, most_bytes=most_bytes)


def kept(folder):
    return {path.read_bytes() for path in (folder / "shelf").iterdir()}


def aged(folder, data, age):
    os.utime(folder / "shelf" / hashlib.sha256(data).hexdigest(), (age, age))


def test_an_output_stands_under_its_digest_for_containers_to_read(tmp_path):
    shelf(tmp_path).keep(b"abc")
    path = tmp_path / "shelf" / hashlib.sha256(b"abc").hexdigest()
    assert path.read_bytes() == b"abc"
    assert path.stat().st_mode & 0o777 == 0o644


def test_the_oldest_goes_when_there_are_too_many(tmp_path):
    held = shelf(tmp_path, most=2)
    for age, data in enumerate((b"one", b"two")):
        held.keep(data)
        aged(tmp_path, data, 1000 + age)
    held.keep(b"three")
    assert kept(tmp_path) == {b"two", b"three"}


def test_the_oldest_go_when_they_are_too_large_together(tmp_path):
    held = shelf(tmp_path, most=100, most_bytes=100)
    for age, data in enumerate((b"a" * 40, b"b" * 40)):
        held.keep(data)
        aged(tmp_path, data, 1000 + age)
    held.keep(b"c" * 60)
    assert kept(tmp_path) == {b"b" * 40, b"c" * 60}


def test_an_output_that_is_seen_again_is_young_again(tmp_path):
    held = shelf(tmp_path, most=2)
    for age, data in enumerate((b"one", b"two")):
        held.keep(data)
        aged(tmp_path, data, 1000 + age)
    held.keep(b"one")
    held.keep(b"three")
    assert kept(tmp_path) == {b"one", b"three"}


def test_what_is_empty_or_larger_than_the_shelf_is_not_kept(tmp_path):
    held = shelf(tmp_path, most_bytes=10)
    held.keep(b"")
    held.keep(b"x" * 11)
    assert kept(tmp_path) == set()


def test_a_shelf_that_cannot_be_written_fails_nobody(tmp_path):
    held = shelf(tmp_path)
    (tmp_path / "shelf").rmdir()
    held.keep(b"abc")


def read(text, *, lines=200, is_kept=True):
    return read_output(Output(max_lines=lines), Ended(0, text, b"", 1.0), {}, Redactor(), kept=is_kept)


def test_a_cut_text_names_the_digest_and_the_offset_at_which_the_rest_begins():
    found = read(b"".join(b"line %d \xc3\xa4\n" % n for n in range(300)), lines=3)
    shown, _, mark = found.text.rpartition("\n")
    size = len(found.whole)
    assert mark == (
        f"[cut, {size - len(shown.encode())} more bytes, read on with artifact:read "
        f"digest={found.digest} offset={len(shown.encode())}]"
    )
    assert found.whole.startswith(shown.encode())
    assert found.digest == hashlib.sha256(found.whole).hexdigest()


def test_one_endless_line_is_cut_too():
    found = read(b"x" * (MAX_TEXT + 5))
    assert found.truncated
    assert "[cut, 5 more bytes" in found.text


def test_what_nobody_keeps_promises_no_reading_on():
    assert read(b"a\nb\n", lines=1, is_kept=False).text == "a\n[cut, 2 more bytes]"


def test_what_fits_has_no_mark():
    found = read(b"a\nb\n")
    assert (found.text, found.truncated) == ("a\nb", False)
