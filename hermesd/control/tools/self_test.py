"""Looks from inside a container at what the sandbox promises. Run as a program, not in the stub.

Called as ``check MEMORY_MB PIDS`` it prints a line for each promise: its name, a tab, and what was seen
where it does not hold. Called as ``linger`` it leaves behind a child that ignores SIGTERM and belongs
to nobody, and stays itself. It must change nothing that outlives the container.
"""

from __future__ import annotations

import os
import signal
import sys
import time

_ENVIRONMENT = {"PATH", "LANG", "HOME", "TZ", "LC_CTYPE"}  # the last is the interpreter's own doing
_PLACES = ("/", "/usr/bin", "/hermes/tools", "/dev/shm", "/dev/mqueue", "/proc/self", "/var/tmp")  # noqa: S108
_MEGABYTE = 1 << 20
_TOO_MUCH = 70


def main(argv: list[str]) -> int:
    """Check the promises, or linger."""
    if argv[0] == "linger":
        linger()
    memory_mb, pids = int(argv[1]), int(argv[2])
    for promise, seen in (
        ("uid", uid()),
        ("capabilities", capabilities()),
        ("no_new_privileges", no_new_privileges()),
        ("network", network()),
        ("read_only_root", read_only_root()),
        ("environment", environment()),
        ("memory", memory(memory_mb)),
        ("pids", processes(pids)),
    ):
        sys.stdout.write(f"{promise}\t{seen}\n")
    return os.EX_OK


def uid() -> str:
    """Say whether anything here is root."""
    ids = {*os.getresuid(), *os.getresgid()}
    return "it runs as uid or gid 0" if 0 in ids else ""


def capabilities() -> str:
    """Say which set of capabilities is not empty."""
    sets = {key: value for key, value in _status().items() if key.startswith("Cap")}
    held = [f"{key} is {value}" for key, value in sets.items() if int(value, 16)]
    return ", ".join(held) if sets else "no capabilities are shown"


def no_new_privileges() -> str:
    """Say whether a program that is run may gain privileges."""
    return "" if _status().get("NoNewPrivs") == "1" else "NoNewPrivs is not set"


def network() -> str:
    """Say what of a network there is: an interface but lo, a route, or somebody who answers."""
    interfaces = [line.partition(":")[0].strip() for line in _lines("/proc/net/dev")[2:]]
    others = [name for name in interfaces if name != "lo"]
    if others:
        return f"there is an interface {others[0]}"
    if len(_lines("/proc/net/route")) > 1:
        return "there is a route"
    return "a datagram could be sent" if _sends() else ""


def read_only_root() -> str:
    """Say which folder outside of /tmp can be written to."""
    folders = {*_PLACES, *(f"/{name}" for name in os.listdir("/"))} - {"/tmp"}  # noqa: PTH208, S108 - see rows
    written = [folder for folder in sorted(folders) if _writes(folder)]
    if written:
        return f"{written[0]} is writable"
    return "" if _writes("/tmp") else "/tmp is not writable"  # noqa: S108 - it is the container's own


def environment() -> str:
    """Say which variable came in from outside."""
    others = sorted(set(os.environ) - _ENVIRONMENT)
    return f"the variable {others[0]} came in" if others else ""


def memory(limit_mb: int) -> str:
    """Let a child fill four times the limit; say when nothing stopped it."""
    pid = os.fork()
    if pid == 0:
        _fill(4 * limit_mb)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return f"a process filled {4 * limit_mb} MB where {limit_mb} are allowed" if status == _TOO_MUCH else ""


def processes(limit: int) -> str:
    """Start children until the kernel says no; say when it said so too late."""
    children: list[int] = []
    try:
        while len(children) <= limit:
            pid = os.fork()
            if pid == 0:
                signal.pause()
            children.append(pid)
    except OSError:
        return ""
    finally:
        for pid in children:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    return f"{len(children)} processes were started where {limit} are allowed"


def linger() -> None:
    """Stay, and leave a child behind that ignores SIGTERM and belongs to nobody."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if os.fork() == 0:
        os.setsid()
        if os.fork():
            os._exit(0)
    while True:
        time.sleep(60)


def _fill(megabytes: int) -> None:
    """Fill memory in this child, which ends here whatever happens."""
    held: list[bytearray] = []
    try:
        while len(held) < megabytes:
            held += [bytearray(b"x") * _MEGABYTE]
    except MemoryError:
        os._exit(0)
    os._exit(_TOO_MUCH)


def _sends() -> bool:
    import _socket  # noqa: PLC0415 - `socket` costs 10 ms

    try:
        sender = _socket.socket(_socket.AF_INET, _socket.SOCK_DGRAM)
        sender.sendto(b"x", ("192.0.2.1", 9))
    except OSError:
        return False
    return True


def _writes(folder: str) -> bool:
    name = f"{folder}/hermesd-self-test"
    try:
        os.close(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        os.unlink(name)  # noqa: PTH108 - see rows
    except OSError:
        return False
    return True


def _status() -> dict[str, str]:
    pairs = (line.partition(":") for line in _lines("/proc/self/status"))
    return {key: value.strip() for key, _, value in pairs}


def _lines(path: str) -> list[str]:
    try:
        with open(path, encoding="utf-8") as file:  # noqa: PTH123 - see rows
            return file.read().splitlines()
    except OSError:
        return []


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
