"""The empty image: folders, links, and our own few files. No program is in it; `/usr` is the host's.

It is made here, byte for byte the same each time, and given to the engine as a tar: nothing is ever
pulled. Its tag names its content, and containers refer to it by the id that the engine gave it.
"""

from __future__ import annotations

import hashlib
import io
import tarfile
from functools import cache
from typing import Final

from hermesd.control.sandbox import supply

REPOSITORY: Final = "hermesd-empty"
_FOLDERS: Final = ("usr", "etc", "tmp", "proc", "sys", "dev", "run", "var", "hermes", "hermes/tools")
_RUNS: Final = ("run/systemd", supply.SYSTEMD_RUNS)
_LINKS: Final = {"bin": "usr/bin", "sbin": "usr/sbin", "lib": "usr/lib", "lib64": "usr/lib64"}


@cache
def image_tar(uid: int, gid: int) -> bytes:
    """Return the image's one layer. ``uid`` and ``gid`` get a name in it."""
    files = {**supply.etc_files(uid, gid), **supply.programs()}
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as tar:
        for name in (*_FOLDERS, *_RUNS):
            tar.addfile(_entry(name, tarfile.DIRTYPE, 0o1777 if name == "tmp" else 0o755))
        for name, target in _LINKS.items():
            link = _entry(name, tarfile.SYMTYPE, 0o777)
            link.linkname = target
            tar.addfile(link)
        for name, data in files.items():
            file = _entry(name, tarfile.REGTYPE, 0o444)
            file.size = len(data)
            tar.addfile(file, io.BytesIO(data))
    return layer.getvalue()


def image_tag(layer: bytes) -> str:
    """Return the tag of a layer: it changes with every byte of it."""
    return f"{REPOSITORY}:{hashlib.sha256(layer).hexdigest()[:16]}"


def _entry(name: str, kind: bytes, mode: int) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.type, entry.mode, entry.mtime = kind, mode, 0
    return entry
