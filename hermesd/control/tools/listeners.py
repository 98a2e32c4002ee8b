"""Lists what listens on the host's TCP and UDP ports, from the kernel's own tables.

Called as ``LIMIT`` where the host's processes can be seen: the tables are those of the network in
which the host's first process lives. They name the owner's uid; which process it is, only the owner and
root can see.
"""

from __future__ import annotations

import os
import sys

from .kernel import read_or, whose
from .rows import write_row

TYPE_CHECKING = False  # `typing` costs 5 ms; checkers know this name
if TYPE_CHECKING:
    from .rows import Value

_TABLES = (("tcp", "0A"), ("tcp6", "0A"), ("udp", "07"), ("udp6", "07"))
"""The tables, and the state in which a socket waits for strangers."""
_COLUMNS = 10
_V4_BYTES = 4
_ANY = ("0.0.0.0", "::")  # noqa: S104 - what is looked for, nothing is bound


def main(argv: list[str]) -> int:
    """Print one row a listening socket, by port."""
    texts = [(table, state, read_or(f"/proc/1/net/{table}")) for table, state in _TABLES]
    if not any(text for _table, _state, text in texts):
        sys.stderr.write("the host's tables of sockets cannot be read\n")
        return 1
    rows = [row for table, state, text in texts for row in parse(table, state, text)]
    rows.sort(key=lambda row: (_number(row["port"]), str(row["protocol"]), str(row["address"])))
    for row in rows[: int(argv[0])]:
        write_row(row)
    return os.EX_OK


def parse(table: str, state: str, text: str) -> list[dict[str, Value]]:
    """Return the rows of one table's text."""
    rows: list[dict[str, Value]] = []
    for line in text.splitlines()[1:]:
        parts = line.split()
        if len(parts) < _COLUMNS or parts[3] != state:
            continue
        digits, _, port = parts[1].partition(":")
        address = address_of(digits)
        rows.append(
            {
                "protocol": table,
                "address": address,
                "port": int(port, 16),
                "everywhere": address in _ANY,
                "uid": whose(int(parts[7])),
                "inode": int(parts[9]),
            }
        )
    return rows


def address_of(digits: str) -> str:
    """Return an address from the kernel's hexadecimal words, each in the machine's byte order."""
    words = [bytes.fromhex(digits[at : at + 8]) for at in range(0, len(digits), 8)]
    data = b"".join(word[::-1] if sys.byteorder == "little" else word for word in words)
    if len(data) == _V4_BYTES:
        return ".".join(str(byte) for byte in data)
    return _shortest([int.from_bytes(data[at : at + 2], "big") for at in range(0, 16, 2)])


def _shortest(groups: list[int]) -> str:
    """Return an IPv6 address with its longest run of zeros left out."""
    best_at, best = 0, 0
    for at in range(8):
        length = next((n for n, group in enumerate(groups[at:]) if group), 8 - at)
        if length > best:
            best_at, best = at, length
    shown = [f"{group:x}" for group in groups]
    if best <= 1:
        return ":".join(shown)
    return ":".join(shown[:best_at]) + "::" + ":".join(shown[best_at + best :])


def _number(value: Value) -> float:
    return value if isinstance(value, int | float) else 0
