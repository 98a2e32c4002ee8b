from pathlib import PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermesd.control.manifest import ManifestError, impact_of, read_manifest
from hermesd.control.roots import beneath, covering, intersect, nearest, normal_path_fault

names = st.text("ab.-_", min_size=1, max_size=4).filter(lambda name: name not in (".", ".."))
paths = st.lists(names, min_size=1, max_size=5).map(lambda parts: "/" + "/".join(parts))


@given(paths, paths)
def test_beneath_agrees_with_the_standard_library_by_whole_components(path, root):
    inside = PurePosixPath(path).is_relative_to(root)
    assert (beneath(path, root) is not None) == inside
    if inside:
        assert PurePosixPath(root, beneath(path, root)) == PurePosixPath(path)


@pytest.mark.parametrize(
    "path",
    ["", "var", "./var", "/var/../etc", "/var//log", "/var/./log", "/var/", "/a\0b", "//", "/" + "a" * 5000],
)
def test_a_path_that_is_not_in_normal_form_is_refused(path):
    assert normal_path_fault(path)


@given(paths)
def test_a_path_in_normal_form_is_accepted(path):
    assert normal_path_fault(path) == ""


@given(st.lists(paths, max_size=4), st.lists(paths, max_size=4), paths)
def test_an_intersection_opens_what_both_sides_open_and_nothing_else(ours, theirs, path):
    both = covering(path, ours) is not None and covering(path, theirs) is not None
    assert (covering(path, intersect(ours, theirs)) is not None) == both


def test_a_neighbour_with_the_same_beginning_is_outside():
    assert beneath("/var/log2/x", "/var/log") is None


RECORD = b"64769 12 4096 8 1700000000000000000 33188 1000 1000 1 "


def test_a_manifest_keeps_names_as_bytes_whatever_they_hold():
    data = RECORD + b"cache/a b\nc\xff\x1b[2J\0" + RECORD + b"-rf\0"
    assert [entry.path for entry in read_manifest(data)] == [b"cache/a b\nc\xff\x1b[2J", b"-rf"]
    impact = impact_of(data, "/srv")
    assert (impact.files, impact.size_bytes) == (2, 8192)
    assert all(line.isprintable() for line in impact.sample)


@pytest.mark.parametrize(
    "data", [b"x", b"\0", b"1 2 3\0", RECORD + b"a", RECORD + b"\0", b"-" + RECORD + b"a\0"]
)
def test_a_manifest_that_cannot_be_read_whole_is_no_manifest(data):
    with pytest.raises(ManifestError):
        read_manifest(data)


def test_an_empty_manifest_is_about_no_files():
    assert impact_of(b"", "/srv").files == 0


def test_the_nearest_root_is_the_deepest_by_whole_components():
    roots = ("/srv", "/srv/app", "/srv/app2", "/var")
    assert nearest("/srv/app/cache", roots) == "/srv/app"
    assert nearest("/srv/apple", roots) == "/srv"
    assert nearest("/srv/app", roots) == "/srv/app"
    assert nearest("/etc", roots) is None
