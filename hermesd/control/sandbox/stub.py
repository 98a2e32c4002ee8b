"""The first process in every container: takes one job, shows what its paths are, runs it, is gone.

It runs as ``/usr/bin/python3 -I -S /hermes/stub.py``, as PID 1: everything in the container ends with it.
Its owner speaks to it over standard input and output alone, in the frames that `wire` writes and reads
on the other side. It must never follow a name twice: a path argument is resolved once, beneath its
mounted root, and from then on it is a descriptor. It must never outlive its owner (the end of standard
input ends everything here), and the command must never reach the owner's descriptors or this
process's memory.

Start-up is what a run waits for: only built-in modules are imported, and `_ctypes` (0.5 ms) in place
of `ctypes` (3.5 ms), after the word that the container is ready.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # `signal` costs 2 ms: it builds enums
import posix
import select
import sys
import time

READ_BYTES = 1 << 16
_GO = b"G"
_END_SECONDS = 1.0
_LOOK_SECONDS = 0.05  # between two looks at how many files there are
_MOST_FILES = 4096
_MOST_AT_START = 256  # folders that lead to mounts
_SYS_OPENAT2 = 437  # the same number on every architecture
_ENOSYS, _EXDEV, _ELOOP = 38, 18, 40
_RESOLVE = 0x01 | 0x02 | 0x04 | 0x08  # NO_XDEV, NO_MAGICLINKS, NO_SYMLINKS, BENEATH
_O_PATH = 0o10000000
_O_DIRECTORY = posix.O_DIRECTORY
_FOLDER, _REGULAR, _LINK = 0o040000, 0o100000, 0o120000
_LIMITS = {"memory": 2, "address": 9, "pids": 6, "file": 1, "files": 7, "core": 4, "queues": 12}
_PR_DUMPABLE, _PR_SECCOMP = 4, 22
_ENVIRONMENT = {
    b"PATH": b"/usr/bin:/usr/sbin:/bin:/sbin",
    b"LANG": b"C.UTF-8",
    b"HOME": b"/tmp",
    b"TZ": b"UTC",
}


class Refused(Exception):  # noqa: N818 - an ordinary refusal with a name
    """A path argument is not what it must be; ``str()`` says why, for people."""


class Gone(Exception):  # noqa: N818 - it is how a container ends
    """The owner is gone, or speaks something else than the protocol."""


class Kernel:
    """The few calls that Python's built-in modules lack."""

    def __init__(self) -> None:
        import _ctypes  # noqa: PLC0415 - after the word that the container is ready

        class Long(_ctypes._SimpleCData):  # type: ignore[type-arg]  # noqa: SLF001 - its one name
            _type_ = "l"

        class Function(_ctypes.CFuncPtr):
            _flags_ = 1 | 8  # cdecl, errno kept
            _restype_ = Long

        libc = _ctypes.dlopen(None, 0)  # type: ignore[arg-type]
        self._call = Function(_ctypes.dlsym(libc, "syscall"))
        self._prctl = Function(_ctypes.dlsym(libc, "prctl"))
        self._prlimit = Function(_ctypes.dlsym(libc, "prlimit"))
        self._long = Long
        self._ctypes = _ctypes

    def openat2(self, folder: int, path: bytes, flags: int) -> int:
        """Open ``path`` beneath ``folder``; no link, no other mount, no way up. Raise OSError."""
        how = flags.to_bytes(8, sys.byteorder) + bytes(8) + _RESOLVE.to_bytes(8, sys.byteorder)
        long = self._long
        found: int = self._call(long(_SYS_OPENAT2), long(folder), path, how, long(len(how)))
        if found < 0:
            error = self._ctypes.get_errno()
            if error == _ENOSYS:
                return open_by_steps(folder, path, flags)
            raise OSError(error, posix.strerror(error))
        return found

    def prctl(self, option: int, value: int, data: bytes = b"") -> None:
        """Set an attribute of this process."""
        long = self._long
        if self._prctl(long(option), long(value), data or None, None, None) < 0:
            error = self._ctypes.get_errno()
            raise OSError(error, posix.strerror(error))

    def limit(self, resource: int, value: int) -> None:
        """Set a limit of this process, soft and hard."""
        both = value.to_bytes(8, sys.byteorder) * 2
        if self._prlimit(self._long(0), self._long(resource), both, None) < 0:
            error = self._ctypes.get_errno()
            raise OSError(error, posix.strerror(error))

    def confine(self, program: bytes) -> None:
        """Install a seccomp filter: ``program`` is an array of struct sock_filter."""
        ctypes = self._ctypes

        class Char(ctypes._SimpleCData):  # type: ignore[name-defined,misc]  # noqa: SLF001 - its one name
            _type_ = "c"

        class Block(ctypes.Array):  # type: ignore[name-defined,misc]
            _type_ = Char
            _length_ = len(program)

        block = Block.from_buffer_copy(program)
        count, order = len(program) // 8, sys.byteorder
        header = count.to_bytes(2, order) + bytes(6) + ctypes.addressof(block).to_bytes(8, order)
        self.prctl(_PR_SECCOMP, 2, header)


class Job:
    """The request as `wire.encode_request` wrote it: a list of fields, each with its length."""

    def __init__(self, fields: list[bytes]) -> None:
        self.nonce, self.tool, self.filter = fields[:3]
        numbers = [int(field) for field in fields[3:8]]
        self.timeout_ms, self.output_bytes, self.stdin_bytes, limits, paths = numbers
        rest = iter(fields[8:])
        self.limits = [(_LIMITS[str(next(rest), "ascii")], int(next(rest))) for _ in range(limits)]
        self.paths = [(next(rest), next(rest)) for _ in range(paths)]
        self.argv = list(rest)


def main() -> None:
    """Serve the one job, and nothing outside of a process namespace of one's own."""
    if posix.getpid() != 1:
        sys.exit("this is the first process of a container, or nothing")
    posix.closerange(3, 1 << 20)
    send(b"H", b"%d" % posix.getpid())
    kernel = Kernel()
    kernel.prctl(_PR_DUMPABLE, 0)
    try:
        job = Job(read_fields())
        opened = open_paths(kernel, job)
        if opened is not None and read_exactly(1) == _GO:
            Run(kernel, job, opened).serve()
    except (Gone, BrokenPipeError):
        pass
    finally:
        end_everything()


def send(tag: bytes, payload: bytes) -> None:
    """Write one frame to the owner."""
    frame = memoryview(tag + len(payload).to_bytes(4, "big") + payload)
    while frame:
        frame = frame[posix.write(1, frame) :]


def read_exactly(count: int) -> bytes:
    """Read from the owner. Raise Gone at the end of input."""
    parts = []
    while count:
        part = posix.read(0, min(count, READ_BYTES))
        if not part:
            raise Gone
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def read_fields() -> list[bytes]:
    """Read the request: four bytes of length, then fields of four bytes of length each."""
    block = read_exactly(int.from_bytes(read_exactly(4), "big"))
    fields = []
    at = 0
    while at < len(block):
        end = at + 4 + int.from_bytes(block[at : at + 4], "big")
        fields.append(block[at + 4 : end])
        at = end
    return fields


def open_paths(kernel: Kernel, job: Job) -> list[int] | None:
    """Resolve every path and tell the owner; None when one was refused."""
    opened = []
    found = []
    for index, (root, beneath) in enumerate(job.paths):
        try:
            fd = open_path(kernel, root, beneath)
        except Refused as refusal:
            send(b"R", b"%d " % index + str(refusal).encode())
            return None
        seen = posix.fstat(fd)
        opened.append(fd)
        found.append(b"%d %d %d" % (seen.st_dev, seen.st_ino, seen.st_mode))
    send(b"P", b"\n".join(found))
    return opened


def open_path(kernel: Kernel, root: bytes, beneath: bytes) -> int:
    """Return a descriptor of the object, open for reading where that is permitted. Raise Refused."""
    try:
        fd = posix.open(root, _O_PATH | posix.O_NOFOLLOW)
        if beneath:
            fd = kernel.openat2(fd, beneath, _O_PATH | posix.O_NOFOLLOW | posix.O_CLOEXEC)
    except OSError as error:
        raise Refused(why_refused(error.errno or 0)) from None
    kind = posix.fstat(fd).st_mode & 0o170000
    if kind not in (_FOLDER, _REGULAR):
        raise Refused("is a link" if kind == _LINK else "is neither a folder nor a regular file")
    try:
        return posix.open(b"/proc/self/fd/%d" % fd, posix.O_RDONLY | posix.O_NOCTTY | posix.O_NONBLOCK)
    except OSError:
        return fd  # it may be looked at from outside, not read


def open_by_steps(folder: int, path: bytes, flags: int) -> int:
    """Do as `openat2` where that is forbidden (RestrictSUIDSGID= in a unit does) or too new: name by name.

    Each name is opened in the descriptor of the one before and followed nowhere. Raise OSError.
    """
    device = posix.fstat(folder).st_dev
    fd = posix.dup(folder)
    for part in path.split(b"/"):
        try:
            inner = posix.open(part, flags, dir_fd=fd)
        finally:
            posix.close(fd)
        fd = inner
        seen = posix.fstat(fd)
        is_link = seen.st_mode & 0o170000 == _LINK
        if part in (b"", b".", b"..") or is_link or seen.st_dev != device:
            posix.close(fd)
            raise OSError(_ELOOP if is_link else _EXDEV, "")
    return fd


def why_refused(error: int) -> str:
    """Return what a failed resolution means."""
    known = {
        2: "does not exist",
        18: "leads out of its root or into another mount",
        20: "has a component that is no folder",
        40: "leads through a link",
    }
    return known.get(error) or posix.strerror(error)


class Files:
    """How many files the container's own /tmp holds: its size does not bound them, each costs kernel memory.

    A /tmp that is a folder of the host is not counted: it is read-only, or held more from the start.
    """

    def __init__(self) -> None:
        self._counts = 0 <= self._held() <= _MOST_AT_START

    def too_many(self) -> bool:
        """Say whether the command made more than it may."""
        return self._counts and self._held() > _MOST_FILES

    @staticmethod
    def _held() -> int:
        told = posix.statvfs("/tmp")  # noqa: S108 - the container's own
        return -1 if told.f_flag & posix.ST_RDONLY else told.f_files - told.f_ffree


class Run:
    """The command and everything that it started, from the word to go until nothing of it is left."""

    def __init__(self, kernel: Kernel, job: Job, opened: list[int]) -> None:
        self._job = job
        self._began = time.monotonic()
        self._deadline = self._began + job.timeout_ms / 1000
        self._left = job.output_bytes
        self._stdin_left = job.stdin_bytes
        self._pending = b""
        self._files = Files()
        self._how = ""
        self._status = 0
        _signal.signal(_signal.SIGALRM, lambda *_: give_up())  # a reader that stopped reading
        _signal.setitimer(_signal.ITIMER_REAL, job.timeout_ms / 1000 + _END_SECONDS)
        ends = [posix.pipe() for _ in range(3)]
        self._child = posix.fork()
        if self._child == 0:
            become_command(kernel, job, [ends[0][0], ends[1][1], ends[2][1], *opened])
        for fd in (ends[0][0], ends[1][1], ends[2][1], *opened):
            posix.close(fd)
        self._stdin = ends[0][1]
        posix.set_blocking(self._stdin, False)
        self._tags = {ends[1][0]: b"O", ends[2][0]: b"E"}
        self._exit = posix.pidfd_open(self._child)

    def serve(self) -> None:
        """Relay until the command ends, its time or its output is used up, or the owner is gone."""
        poll = select.poll()
        for fd in (*self._tags, self._exit):
            poll.register(fd, select.POLLIN)
        while not self._how:
            self._watch_input(poll)
            left = self._deadline - time.monotonic()
            ready = poll.poll(min(left, _LOOK_SECONDS) * 1000) if left > 0 else []
            if left <= 0:
                self._how = "timeout"
            elif self._files.too_many():
                self._how, self._status = "exited", 128 + 9  # as who takes too much memory ends
            for fd, what in ready:
                self._attend(fd, what, poll)
        end_everything(self._note)
        for fd in list(self._tags):
            while self._how == "exited" and self._relay(fd):
                pass
        spent = (time.monotonic() - self._began) * 1000
        send(b"X", self._job.nonce + f"{self._how} {self._status} {spent:.3f}".encode())

    def _watch_input(self, poll: select.poll) -> None:
        if self._stdin >= 0:
            poll.register(self._stdin, select.POLLOUT if self._pending else 0)
            if not self._pending and not self._stdin_left:
                self._close_input(poll)
        poll.register(0, 0 if self._pending else select.POLLIN)

    def _attend(self, fd: int, what: int, poll: select.poll) -> None:
        if fd == self._exit:
            reap(self._note)
        elif fd == 0:
            self._take_input()
        elif fd == self._stdin:
            self._give_input(what, poll)
        elif not self._relay(fd):
            poll.unregister(fd)
            del self._tags[fd]

    def _take_input(self) -> None:
        part = posix.read(0, min(self._stdin_left, READ_BYTES) or 1)
        if not part or not self._stdin_left:
            raise Gone
        self._stdin_left -= len(part)
        self._pending = part if self._stdin >= 0 else b""

    def _give_input(self, what: int, poll: select.poll) -> None:
        if what & select.POLLERR:  # it closed its input: the rest is read and dropped
            self._pending = b""
            self._close_input(poll)
            return
        try:
            self._pending = self._pending[posix.write(self._stdin, self._pending) :]
        except BlockingIOError:
            return
        except BrokenPipeError:
            self._give_input(select.POLLERR, poll)

    def _close_input(self, poll: select.poll) -> None:
        poll.unregister(self._stdin)
        posix.close(self._stdin)
        self._stdin = -1

    def _relay(self, fd: int) -> bool:
        part = posix.read(fd, READ_BYTES)
        if len(part) > self._left:
            self._how = "truncated"
        part = part[: self._left]
        self._left -= len(part)
        if part:
            send(self._tags[fd], part)
        return bool(part)

    def _note(self, pid: int, status: int) -> None:
        if pid == self._child and not self._how:
            code = posix.waitstatus_to_exitcode(status)
            self._how = "exited"
            self._status = code if code >= 0 else 128 - code


def become_command(kernel: Kernel, job: Job, fds: list[int]) -> None:
    """Turn this child into the command; never returns."""
    try:
        take_descriptors(fds)
        posix.setsid()
        for number in range(1, 65):
            if number not in (9, 19, 32, 33):
                _signal.signal(number, _signal.SIG_DFL)
        _signal.pthread_sigmask(_signal.SIG_SETMASK, ())
        be_first_to_go(kernel)
        for resource, value in job.limits:
            kernel.limit(resource, value)
        posix.chdir("/tmp")  # noqa: S108 - the container's own, bounded
        if job.filter:
            kernel.confine(job.filter)
        if job.tool:
            run_tool(str(job.tool, "ascii"), job.argv)
        posix.execve(job.argv[0], job.argv, _ENVIRONMENT)
    except BaseException as error:  # noqa: BLE001 - nothing may fall back into the stub's own code
        posix.write(2, b"cannot run: " + str(error).encode("utf-8", "replace") + b"\n")
    finally:
        posix._exit(127)  # noqa: SLF001 - the one way out of a fork


def take_descriptors(fds: list[int]) -> None:
    """Make ``fds`` the descriptors 0, 1, 2, 3 ... and close every other one."""
    high = 1 + max(fds) + len(fds)
    for place, fd in enumerate(fds):
        posix.dup2(fd, high + place, inheritable=False)
    for place in range(len(fds)):
        posix.dup2(high + place, place)
    posix.closerange(len(fds), 1 << 20)


def be_first_to_go(kernel: Kernel) -> None:
    """When the machine runs out of memory, this command goes before anything that serves."""
    kernel.prctl(_PR_DUMPABLE, 1)  # one's own entries in /proc belong to root otherwise
    try:
        fd = posix.open("/proc/self/oom_score_adj", posix.O_WRONLY)
        posix.write(fd, b"1000")
        posix.close(fd)
    except OSError:
        pass  # where the host's /proc is shown, it is read-only


def run_tool(name: str, argv: list[bytes]) -> None:
    """Run ``main`` of a tool in this process: a second interpreter would cost as much as the first."""
    import importlib  # noqa: PLC0415 - only where a tool is run

    sys.path[:] = ["/hermes", *sys.path]
    sys.dont_write_bytecode = True
    sys.argv = [name]
    status = importlib.import_module(f"tools.{name}").main([str(part, "utf-8") for part in argv])
    sys.stdout.flush()
    sys.stderr.flush()
    posix._exit(status)  # noqa: SLF001 - the one way out of a fork


def reap(note: object = None) -> bool:
    """Collect every child that has ended; True while there are others."""
    try:
        while True:
            pid, status = posix.waitpid(-1, posix.WNOHANG)
            if not pid:
                return True
            if callable(note):
                note(pid, status)
    except ChildProcessError:
        return False


def end_everything(note: object = None) -> None:
    """Kill and collect all that runs here, bounded; what escapes dies with this process or its cgroup."""
    until = time.monotonic() + _END_SECONDS
    kill_all()
    while reap(note) and time.monotonic() < until:
        time.sleep(0.001)
        kill_all()


def kill_all() -> None:
    """Kill all that runs here. `main` made sure that "all" is this container."""
    try:
        posix.kill(-1, 9)
    except ProcessLookupError:  # there is nobody
        return


def give_up() -> None:
    """The owner does not read and does not go: end here."""
    kill_all()
    posix._exit(70)  # noqa: SLF001 - nothing is left to clean up


if __name__ == "__main__":
    main()
