"""What several tools read of `/proc`: small texts, whole, and numbers out of them.

`pathlib` costs as much at import as the rest of a tool. Where the host's processes are shown, `/proc` is
the host's; an unprivileged reader sees of other users' processes what any user of the host sees.
"""

from __future__ import annotations

import os

_MOST = 4 << 20
_NOBODY = 65534


def read(path: str) -> str:
    """Return a text of the kernel's. Raise OSError."""
    with open(path, encoding="utf-8", errors="backslashreplace") as file:  # noqa: PTH123 - see above
        return file.read(_MOST)


def read_or(path: str, otherwise: str = "") -> str:
    """Return a text of the kernel's, ``otherwise`` where it cannot be read."""
    try:
        return read(path)
    except OSError:
        return otherwise


def fields(text: str) -> dict[str, str]:
    """Return `Name: value` lines by name."""
    pairs = (line.partition(":") for line in text.splitlines())
    return {name.strip(): value.strip() for name, _, value in pairs}


def pids() -> list[int]:
    """Return the numbers of the processes in sight, in their order."""
    return sorted(int(name) for name in os.listdir("/proc") if name.isdigit())  # noqa: PTH208 - see above


def unescape(word: str) -> str:
    """Undo the kernel's octal escapes in a mount table."""
    for code, char in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        word = word.replace(code, char)
    return word


def whose(uid: int) -> int | None:
    """Return a uid, None where this container's user namespace does not know the host's number for it."""
    mapped = read_or("/proc/self/uid_map").split()
    whole = len(mapped) == 3 and int(mapped[2]) > _NOBODY  # noqa: PLR2004 - inside, outside, how many
    return uid if whole or uid != _NOBODY else None
