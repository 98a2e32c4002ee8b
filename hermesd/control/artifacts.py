"""The shelf of whole outputs: what a result had to cut can be read on, by digest.

What stands here is clean and without secrets already. A file's name is its SHA-256, so that nothing
can be put in another's place, and the shelf is bounded in number and in size: the oldest goes first.
Losing one costs a person a second look; so nothing here is synced, and nothing here may ever fail a
request. Containers see the shelf read-only, as the one exception of hermesd's own folders.
"""

from __future__ import annotations

import hashlib
import logging
import os
from pathlib import Path
from typing import Final

log = logging.getLogger("hermesd.artifacts")

FOLDER: Final = "artifacts"
"""The shelf's name beneath the executor's state folder."""


class Artifacts:
    """A folder of outputs, at most ``most`` of them and ``most_bytes`` together."""

    def __init__(self, folder: Path, *, most: int, most_bytes: int) -> None:
        self._folder = folder
        self._most = most
        self._most_bytes = most_bytes
        folder.mkdir(mode=0o755, parents=True, exist_ok=True)

    def keep(self, data: bytes) -> None:
        """Keep an output. One that is larger than the whole shelf, or cannot be written, is not kept."""
        if not data or len(data) > self._most_bytes:
            return
        path = self._folder / hashlib.sha256(data).hexdigest()
        try:
            if path.exists():
                os.utime(path)
                return
            beside = path.with_suffix(".new")
            beside.write_bytes(data)
            beside.chmod(0o644)
            beside.replace(path)
            self._make_room()
        except OSError as error:
            log.warning("an output was not kept: %s", error)

    def _make_room(self) -> None:
        """Remove the oldest until both bounds hold."""
        found = sorted(
            ((status.st_mtime_ns, status.st_size, path) for path, status in self._files()), reverse=True
        )
        count = size = 0
        for _age, length, path in found:
            count, size = count + 1, size + length
            if count > self._most or size > self._most_bytes:
                path.unlink(missing_ok=True)

    def _files(self) -> list[tuple[Path, os.stat_result]]:
        return [(path, path.lstat()) for path in self._folder.iterdir()]
