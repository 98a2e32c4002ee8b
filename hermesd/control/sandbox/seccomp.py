"""A seccomp filter for commands: what no command of a catalogue needs, and every escape tries.

The filter is assembled here, as the bytes of `struct sock_filter`, and installed by the stub in the
command's process alone. It answers with an error instead of killing, so that a program that merely
asks goes on. It stands behind the other walls (no capabilities, own namespaces) and closes what they
leave open: sockets of services that lie in a mounted folder, and the terminal's input. It must never
be the only wall.
"""

from __future__ import annotations

import platform
from typing import Final, NamedTuple

_ARCHITECTURES: Final = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_COLUMN: Final = {"x86_64": 0, "aarch64": 1}

_NEVER: Final = {
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "kcmp": (312, 272),
    "pidfd_getfd": (438, 438),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "unshare": (272, 97),
    "setns": (308, 268),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "keyctl": (250, 219),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "open_by_handle_at": (304, 265),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsmount": (432, 432),
    "mount_setattr": (442, 442),
}

_SOCKET: Final = (41, 198)
_SOCKETPAIR: Final = (53, 199)
_CLONE: Final = (56, 220)
_CLONE3: Final = (435, 435)
_IOCTL: Final = (16, 29)

_AF_UNIX: Final = 1
_CLONE_NEWUSER: Final = 0x10000000
_TERMINAL_INPUT: Final = (0x5412, 0x541C)  # TIOCSTI, TIOCLINUX
_X32: Final = 0x40000000

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCH, _ARGS = 0, 4, 16  # offsets in struct seccomp_data
_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
_EPERM, _ENOSYS = 1, 38


class _Step(NamedTuple):
    """One instruction: ``yes`` and ``no`` are how many of the following are skipped."""

    code: int
    value: int
    yes: int = 0
    no: int = 0


def build_filter(*, sockets: bool, machine: str = "") -> bytes:
    """Return the filter, b"" for an architecture that it is not written for.

    ``sockets``: the command talks to a service through a Unix socket that it was given.
    """
    machine = machine or platform.machine()
    if machine not in _ARCHITECTURES:
        return b""
    column = _COLUMN[machine]
    steps = [_Step(_LOAD, _ARCH), _Step(_EQUAL, _ARCHITECTURES[machine], yes=1), _Step(_RETURN, _KILL)]
    steps += [_Step(_LOAD, _NUMBER), _Step(_AT_LEAST, _X32, no=1), _deny()]
    for call in _NEVER.values():
        steps += [_Step(_EQUAL, call[column], no=1), _deny()]
    steps += [
        _Step(_EQUAL, _CLONE3[column], no=1),
        _deny(_ENOSYS),
    ]  # its flags lie in memory: clone is tried next
    steps += _on_argument(_CLONE[column], 0, [_Step(_ANY_BIT, _CLONE_NEWUSER, no=1), _deny()])
    steps += _on_argument(
        _IOCTL[column], 1, [step for code in _TERMINAL_INPUT for step in (_Step(_EQUAL, code, no=1), _deny())]
    )
    steps += _on_argument(_SOCKETPAIR[column], 0, [_Step(_EQUAL, _AF_UNIX, yes=1), _deny()])
    steps += _on_argument(
        _SOCKET[column], 0, [_Step(_EQUAL, _AF_UNIX, yes=1), _deny()] if sockets else [_deny()]
    )
    steps.append(_Step(_RETURN, _ALLOW))
    return b"".join(_bytes(step) for step in steps)


def _deny(error: int = _EPERM) -> _Step:
    return _Step(_RETURN, _ERRNO | error)


def _on_argument(call: int, index: int, body: list[_Step]) -> list[_Step]:
    """Return the steps that look at the low half of an argument of ``call``, and skip for other calls."""
    inner = [_Step(_LOAD, _ARGS + 8 * index), *body, _Step(_RETURN, _ALLOW)]
    return [_Step(_EQUAL, call, no=len(inner)), *inner]


def _bytes(step: _Step) -> bytes:
    code, value, yes, no = step
    return code.to_bytes(2, "little") + bytes((yes, no)) + value.to_bytes(4, "little")
