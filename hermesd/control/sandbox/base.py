"""What a sandbox is, whichever engine stands behind it.

A `Sandbox` starts `Container`s. A container runs one job and is gone: the host's `/usr` read-only,
an otherwise empty root, only the profile's roots mounted at their own paths, no network, nobody's
uid, no capabilities, no new privileges, and a stub as its first process that takes one request,
resolves every path beneath its mounted root without following links, shows what it found, waits for
the word to go, runs the command, keeps the deadline and reports how it ended.

Every implementation passes the same contract tests. No implementation may ever pull an image, run
as uid 0, or mount anything that the profile does not name.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Protocol

GRACE_SECONDS: Final = 2.0
"""A container is gone by its deadline plus this."""

DEFAULT_OUTPUT_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Mount:
    """A root of the catalogue, given to a container at its own path. ``mode`` is `ro` or `rw`."""

    root: str
    mode: str = "ro"


@dataclass(frozen=True, slots=True)
class Profile:
    """What a container is built of: everything that must be known before a request is.

    Containers of equal profiles are interchangeable, so one may be started beforehand. ``files`` are
    single files or sockets mounted read-only (the bus's socket for commands marked `dbus`).
    ``host_pid`` shows the host's processes, which can be looked at and not touched.
    ``masks`` are folders beneath the mounts that the container finds empty: hermesd's own state.
    ``groups`` are extra numeric groups that the command needs to read what it looks at.
    ``file_mb`` bounds each file that it writes beneath a writable mount.
    """

    mounts: tuple[Mount, ...] = ()
    files: tuple[str, ...] = ()
    masks: tuple[str, ...] = ()
    host_pid: bool = False
    groups: tuple[int, ...] = ()
    memory_mb: int = 64
    pids: int = 32
    tmp_mb: int = 8
    file_mb: int = 1024


@dataclass(frozen=True, slots=True)
class PathUse:
    """A path argument: a mounted root and what lies beneath it, as bytes (empty means the root)."""

    root: str
    beneath: bytes = b""


@dataclass(frozen=True, slots=True)
class Job:
    """What a container is to run.

    ``argv`` elements are bytes, or the index of a path in ``paths``: such an element becomes
    ``/proc/self/fd/N`` of the object that was resolved, never a name that could be swapped.
    ``tool`` names a Python file of `control/tools` that the stub runs in place of an executable:
    then ``argv`` is what follows its name, and path elements are ``N`` alone (a descriptor number).
    ``stdin`` is given to the command. ``output_bytes`` bounds standard output and error together.
    """

    argv: tuple[bytes | int, ...]
    paths: tuple[PathUse, ...] = ()
    tool: str = ""
    stdin: bytes = b""
    timeout_ms: int = 10_000
    output_bytes: int = DEFAULT_OUTPUT_BYTES


@dataclass(frozen=True, slots=True)
class Resolved:
    """A path argument as the container found it: the object's device, inode and st_mode."""

    dev: int
    ino: int
    mode: int


@dataclass(frozen=True, slots=True)
class Ended:
    """How a job ended. ``exit_status`` is the command's, or 128 + signal; None when it was killed.

    ``ms`` is from the word to go until the end, ``first_ms`` until the owner had the first byte that the
    command wrote (None when it wrote none). ``timed_out``: its deadline ended it.
    ``truncated``: it wrote more than ``output_bytes``, and was ended for it.
    """

    exit_status: int | None
    stdout: bytes
    stderr: bytes
    ms: float
    timed_out: bool = False
    truncated: bool = False
    first_ms: float | None = None


class SandboxError(Exception):
    """The sandbox could not do its part. ``str()`` says what happened and what to do, for people."""


class PathRefused(Exception):  # noqa: N818 - an ordinary refusal with a name
    """A path argument does not resolve beneath its root (a link, a mount, nothing there)."""

    def __init__(self, index: int, reason: str) -> None:
        super().__init__(reason)
        self.index = index
        self.reason = reason


class Container(Protocol):
    """One started container that waits for its one job."""

    async def resolve(self, job: Job) -> tuple[Resolved, ...]:
        """Hand the job in; return what its paths are. Raise PathRefused or SandboxError."""
        ...

    async def run(self) -> Ended:
        """Give the word to go and wait for the end, bounded by the job's deadline plus GRACE_SECONDS."""
        ...

    async def destroy(self) -> None:
        """End the container and everything in it, whatever state it is in. Idempotent and bounded."""
        ...


@dataclass(frozen=True, slots=True)
class SelfTest:
    """What a sandbox proved of itself.

    ``promises`` maps each promise (`uid`, `capabilities`, `no_new_privileges`, `network`,
    `read_only_root`, `environment`, `memory`, `pids`, `deadline`) to "" when it holds, else to what
    was seen. ``degraded`` lists promises that are kept by weaker means, in words for `status`.
    """

    usable: bool
    reason: str = ""
    promises: dict[str, str] = field(default_factory=dict)
    degraded: tuple[str, ...] = ()


class Sandbox(Protocol):
    """An engine that starts containers."""

    name: str

    async def self_test(self) -> SelfTest:
        """Prove each promise from inside a real container. Bounded; never raises for a missing engine."""
        ...

    async def start(self, profile: Profile) -> Container:
        """Start a container whose stub is ready. Raise SandboxError."""
        ...

    async def reap(self) -> int:
        """End containers that a former life of this instance left behind; return how many."""
        ...

    async def ended(self) -> None:
        """Return when the engine that was proved is gone, restarted or not; never, where there is none."""
        ...

    async def close(self) -> None:
        """End what still runs and let go of the engine."""
        ...
