"""A removal by an ordinary owner: what the way to a file must allow, and what it need not."""

import os

from hermesd.control.tools.fs_remove import remove
from hermesd.control.tools.manifest_file import record_of, write_record

OWNER = 65534


def test_a_file_is_removed_through_a_folder_that_its_owner_may_enter_and_not_read(tmp_path, needs):
    needs(os.geteuid() == 0, "root")
    inner = tmp_path / "outer" / "cache"
    inner.mkdir(parents=True)
    target = inner / "old.tmp"
    target.write_bytes(b"rubbish")
    os.chown(inner, OWNER, OWNER)
    (tmp_path / "outer").chmod(0o711)
    tmp_path.chmod(0o711)
    manifest = write_record(record_of(b"outer/cache/old.tmp", target.lstat()))
    root = os.open(tmp_path, os.O_PATH | os.O_DIRECTORY)
    os.seteuid(OWNER)
    try:
        status = remove(root, manifest)
    finally:
        os.seteuid(0)
        os.close(root)
    assert status == os.EX_OK
    assert not target.exists()
