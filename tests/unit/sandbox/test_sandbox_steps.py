"""Opening a path name by name, where openat2 is forbidden: as narrow as openat2, on both sides."""

import os
import subprocess
from pathlib import Path

import pytest

from hermesd.control import host
from hermesd.control.sandbox import stub

FLAGS = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
SIDES = {
    "container": lambda fd, path: stub.open_by_steps(fd, path, FLAGS),
    "executor": host._open_by_steps,
}


@pytest.fixture(params=SIDES)
def opened(request, tmp_path):
    """Open a path beneath the test's folder; the object's inode."""
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "file").write_bytes(b"x")
    (tmp_path / "a" / "link").symlink_to(tmp_path / "a" / "b")
    (tmp_path / "a" / "last").symlink_to("b/file")
    root = os.open(tmp_path, os.O_PATH)

    def open_beneath(path):
        fd = SIDES[request.param](root, path)
        try:
            return os.fstat(fd).st_ino
        finally:
            os.close(fd)

    yield open_beneath
    os.close(root)


def held():
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def test_what_lies_beneath_is_opened(opened, tmp_path):
    assert opened(b"a/b/file") == (tmp_path / "a" / "b" / "file").stat().st_ino
    assert opened(b"a") == (tmp_path / "a").stat().st_ino


@pytest.mark.parametrize(
    "path", [b"a/link/file", b"a/last", b"a/../a", b"..", b"a//b", b"a/./b", b"", b"none"]
)
def test_what_leads_elsewhere_is_not(opened, path):
    before = held()
    with pytest.raises(OSError):
        opened(path)
    assert held() == before


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount")
def test_another_file_system_is_not_entered(opened, tmp_path):
    subprocess.run(["mount", "-t", "tmpfs", "hermesd-test", tmp_path / "a" / "b"], check=True)
    try:
        with pytest.raises(OSError):
            opened(b"a/b")
    finally:
        subprocess.run(["umount", "--lazy", tmp_path / "a" / "b"], check=True)
