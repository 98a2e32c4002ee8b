"""What an owner and the stub in a container say to each other: frames, and nothing that parses text.

Owner to stub: one request (a length, then fields that each have a length), one byte to go, then the
command's standard input as the request announced it. Stub to owner: frames of one tag byte, four
bytes of length, and the payload. The stub is ours but what it relays is not, so lengths are checked
against what the job allows before anything is read. This module must do no I/O.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from hermesd.control.sandbox.base import Job, PathRefused, Resolved, SandboxError

GO: Final = b"G"
HELLO: Final = b"H"
PATHS: Final = b"P"
REFUSED: Final = b"R"
STDOUT: Final = b"O"
STDERR: Final = b"E"
END: Final = b"X"

HEADER_BYTES: Final = 5
NONCE_BYTES: Final = 16
MAX_FRAME_BYTES: Final = 1 << 17
"""The stub relays in pieces of 64 KiB; a longer frame is not its."""


@dataclass(frozen=True, slots=True)
class End:
    """The last frame: how the command ended. ``how`` is `exited`, `timeout` or `truncated`."""

    how: str
    status: int
    ms: float


def encode_request(job: Job, nonce: bytes, limits: Mapping[str, int], seccomp: bytes = b"") -> bytes:
    """Return the request for a job. ``limits`` are rlimits by the stub's names, in bytes or counts."""
    numbers = (job.timeout_ms, job.output_bytes, len(job.stdin), len(limits), len(job.paths))
    fields = [nonce, job.tool.encode("ascii"), seccomp, *(b"%d" % number for number in numbers)]
    for name, value in limits.items():
        fields += [name.encode("ascii"), b"%d" % value]
    for path in job.paths:
        fields += [path.root.encode("utf-8", "surrogateescape"), path.beneath]
    fields += [_argument(element, tool=bool(job.tool)) for element in job.argv]
    block = b"".join(len(field).to_bytes(4, "big") + field for field in fields)
    return len(block).to_bytes(4, "big") + block


def _argument(element: bytes | int, *, tool: bool) -> bytes:
    """Return an argv element; a path becomes the descriptor that the stub gives it (3, 4, ...)."""
    if isinstance(element, bytes):
        return element
    return b"%d" % (element + 3) if tool else b"/proc/self/fd/%d" % (element + 3)


def check_job(job: Job) -> None:
    """Raise SandboxError for a job that no stub could run as it is meant."""
    if not job.tool and not (job.argv and isinstance(job.argv[0], bytes) and job.argv[0].startswith(b"/")):
        raise SandboxError("a job names its program by an absolute path")
    indexes = [element for element in job.argv if isinstance(element, int)]
    if any(not 0 <= index < len(job.paths) for index in indexes):
        raise SandboxError("a job's argument points at a path that the job does not have")
    if any(b"\0" in element for element in job.argv if isinstance(element, bytes)):
        raise SandboxError("a job's argument holds a NUL")
    if any(b"\0" in path.beneath or path.beneath.startswith(b"/") for path in job.paths):
        raise SandboxError("a job's path is not relative to its root")


def read_header(header: bytes) -> tuple[bytes, int]:
    """Return tag and length of a frame. Raise SandboxError when it cannot be the stub's."""
    tag, length = header[:1], int.from_bytes(header[1:], "big")
    if tag not in (HELLO, PATHS, REFUSED, STDOUT, STDERR, END) or length > MAX_FRAME_BYTES:
        raise SandboxError("the container sent something that is not of the protocol")
    return tag, length


def read_paths(tag: bytes, payload: bytes, count: int) -> tuple[Resolved, ...]:
    """Return what the paths are. Raise PathRefused, or SandboxError for anything unexpected."""
    if tag == REFUSED:
        index, _, reason = payload.partition(b" ")
        raise PathRefused(int(index), reason.decode("utf-8", "replace"))
    lines = payload.split(b"\n") if payload else []
    if tag != PATHS or len(lines) != count:
        raise SandboxError("the container did not say what the paths are")
    return tuple(Resolved(*(int(number) for number in line.split(b" "))) for line in lines)


def read_end(payload: bytes, nonce: bytes) -> End:
    """Return how the command ended. Raise SandboxError when the nonce is not this job's."""
    if payload[:NONCE_BYTES] != nonce:
        raise SandboxError("the container's last word does not carry this job's nonce")
    how, status, spent = payload[NONCE_BYTES:].decode("ascii").split(" ")
    return End(how, int(status), float(spent))
