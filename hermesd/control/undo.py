"""Whether a removal can be undone, and what is kept for that: pure, and the words for people.

A removed file is kept on another file system, for a while and up to a size, where the administrator named
a folder for it; else a removal is not reversible, and it is said so before anybody confirms. This module
must never look at a disk: what it judges by is passed in.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final

from pydantic import BaseModel, ConfigDict, Field

from hermesd.control.host import Room
from hermesd.protocol import Impact

_FILE_SPARE_BYTES: Final = 8192
"""What a file takes beside its content: the end of its last block, its entry in the record, its inode."""

WHY_NOT: Final = {
    "none": "",
    "helper": "it is removed as root, which keeps no copy",
    "denied": "its way back is not permitted here",
    "missing": "the quarantine's folder cannot be used",
    "same": "the quarantine is on the same file system, so nothing would be freed",
    "too_large": "it is more than the quarantine may hold",
    "full": "the quarantine holds too much from before",
    "no_room": "the quarantine's file system has too little room",
}


class QuarantineSettings(BaseModel):
    """`[quarantine]` of permissions.toml: where removed files are kept, how long, and how much of them.

    Without ``folder`` nothing is kept. ``keep_h`` are hours; ``most_mb`` bounds all that is kept together.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    folder: str = ""
    keep_h: int = Field(default=72, ge=1, le=8760)
    most_mb: int = Field(default=1024, ge=1, le=100_000_000)

    @property
    def most_bytes(self) -> int:
        """The bound in bytes."""
        return self.most_mb << 20


class Kept(BaseModel):
    """What one operation removed and the quarantine ``folder`` holds, in a folder of the operation's name.

    ``root`` is where it was removed; ``until`` is when it is let go of. Before the removal's end has been
    seen, ``files`` and ``size_bytes`` are what was to be removed.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    operation: str
    folder: str
    root: str
    files: int
    size_bytes: int
    set_aside_at: datetime
    until: datetime


def why_not(
    settings: QuarantineSettings, here: Room | None, there: Room | None, impact: Impact, held_bytes: int
) -> str:
    """Return why a removal could not be undone, as a key of WHY_NOT; "" when it can.

    ``here`` is where is removed, ``there`` the quarantine, ``held_bytes`` what it holds from before.
    """
    if not settings.folder:
        return "none"
    if here is None or there is None or there.fault:
        return "missing"
    if here.shares_space_with(there):
        return "same"
    if impact.size_bytes > settings.most_bytes:
        return "too_large"
    if impact.size_bytes + held_bytes > settings.most_bytes:
        return "full"
    needed = impact.size_bytes + (impact.files + 1) * _FILE_SPARE_BYTES
    return "no_room" if needed > there.free_bytes else ""


def with_undo(impact: Impact, why: str, keep_h: int) -> Impact:
    """Return the impact with whether it can be undone, in words too."""
    if not why:
        text = f"{impact.text}, can be undone for {keep_h} h"
        return impact.model_copy(update={"reversible": True, "undo_h": keep_h, "text": text})
    reason = WHY_NOT[why]
    text = f"{impact.text}, not reversible{reason and f' ({reason})'}"
    return impact.model_copy(update={"undo": why, "text": text})


def put_back(impact: Impact) -> Impact:
    """Return the impact of a restoration: what is put back may be removed again."""
    return impact.model_copy(update={"reversible": True, "text": f"{impact.text}, put back"})
