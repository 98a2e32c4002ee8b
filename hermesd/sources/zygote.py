"""A small process that forks measuring workers for the agent, and can do nothing else.

It is forked from the agent before any thread, loop or secret exists, and never executes a program.
It holds one descriptor, its socket, and no environment. For each request it forks a worker that
measures and writes its answers to the channel that came with the request; it ends workers when told
to, and everything when its socket ends or its parent dies.

Between it and the agent stands a keeper that does nothing but wait for its death, and then forks it anew
on the same socket: an agent that has threads and secrets must not fork, and need not.

The zygote must never wait for a worker: one that hangs in the kernel cannot even be killed.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import json
import os
import select
import signal
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn

from hermesd.sources import facts

Measure = Callable[[str, float], Mapping[str, Any]]

REQUEST_BYTES: Final = 1 << 17
REAP_SECONDS: Final = 0.5
STOP_SECONDS: Final = 2.0
REST_SECONDS: Final = 0.5
"""Between the death of a zygote and the next one; what is asked meanwhile waits in the socket."""

NICENESS: Final = 10

_PR_SET_PDEATHSIG: Final = 1
_ENVIRONMENT_FIELDS: Final = slice(47, 49)  # env_start and env_end of proc(5)'s stat, after the name


@dataclass(frozen=True, slots=True)
class Zygote:
    """The agent's end: the keeper's process and the socket. ``numbers`` gives each worker its own."""

    pid: int
    control: socket.socket
    numbers: itertools.count[int] = field(default_factory=itertools.count)

    def stop(self) -> None:
        """End the process and its workers. Bounded by STOP_SECONDS; blocks, so keep it off the loop."""
        self.control.close()
        for _ in range(int(STOP_SECONDS / 0.02)):
            if _is_reaped(self.pid):
                return
            time.sleep(0.02)
        os.kill(self.pid, signal.SIGKILL)
        time.sleep(0.02)
        _is_reaped(self.pid)


def start_zygote(measure: Measure = facts.measure) -> Zygote:
    """Fork the process. Call it first of all, while this process has one thread and knows nothing yet."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        _be_keeper(theirs, parent, measure)
    theirs.close()
    ours.setblocking(False)
    return Zygote(pid, ours)


def _be_keeper(control: socket.socket, parent: int, measure: Measure) -> NoReturn:
    try:
        control = _let_go_of_everything_but(control)
        _die_with(parent)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)  # its end is its parent's end, and nobody else's word
        with contextlib.suppress(OSError):  # a hardened unit forbids it; measuring is light all the same
            os.nice(NICENESS)
        facts.prepare()
        while os.waitpid(_fork_zygote(control, measure), 0)[1]:
            time.sleep(REST_SECONDS)
    finally:
        os._exit(0)


def _fork_zygote(control: socket.socket, measure: Measure) -> int:
    """Return the pid of a zygote that ends with status 0 once its socket ended."""
    keeper = os.getpid()
    pid = os.fork()
    if pid == 0:
        try:
            _die_with(keeper)
            _serve(control, measure)
            os._exit(0)
        finally:
            os._exit(1)
    return pid


def _let_go_of_everything_but(control: socket.socket) -> socket.socket:
    """Close every other descriptor and wipe the environment; return the socket at descriptor 3."""
    os.environ.clear()
    _wipe_environment()
    signal.set_wakeup_fd(-1)
    null = os.open(os.devnull, os.O_RDWR)
    held = os.dup2(control.detach(), 3 if null != 3 else 4, inheritable=False)  # noqa: PLR2004
    for number in range(3):
        os.dup2(null, number)
    os.closerange(3, held)
    os.closerange(held + 1, os.sysconf("SC_OPEN_MAX"))
    return socket.socket(fileno=held)


def _wipe_environment() -> None:
    """Overwrite the block in which the kernel passed the environment: clearing only forgets it."""
    with open("/proc/self/stat", encoding="ascii", errors="replace") as file:  # noqa: PTH123 - no imports here
        start, end = map(int, file.read().rpartition(")")[2].split()[_ENVIRONMENT_FIELDS])
    if 0 < start < end:
        ctypes.memset(start, 0, end - start)


def _die_with(parent: int) -> None:
    """Have the kernel end this process when its parent ends, also when that was just now."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(0)


def _serve(control: socket.socket, measure: Measure) -> None:
    workers: dict[int, int] = {}
    while True:
        for number in [number for number, pid in workers.items() if _is_reaped(pid)]:
            del workers[number]
        if not select.select([control], [], [], REAP_SECONDS if workers else None)[0]:
            continue
        text, channels, _flags, _peer = socket.recv_fds(control, REQUEST_BYTES, 1)
        if not text:
            break
        request = json.loads(text)
        if channels:
            workers[request["number"]] = _fork_worker(control, channels[0], request, measure)
        elif request["number"] in workers:
            os.kill(workers[request["number"]], signal.SIGKILL)
    for pid in workers.values():
        os.kill(pid, signal.SIGKILL)


def _fork_worker(control: socket.socket, channel: int, request: dict[str, Any], measure: Measure) -> int:
    zygote = os.getpid()
    pid = os.fork()
    if pid == 0:
        try:
            control.close()
            _die_with(zygote)
            _answer(socket.socket(fileno=channel), request, measure)
        finally:
            os._exit(0)
    os.close(channel)
    return pid


def _answer(channel: socket.socket, request: dict[str, Any], measure: Measure) -> None:
    for name in request["names"]:
        try:
            answer: dict[str, Any] = {"name": name, "facts": dict(measure(name, request["seconds"]))}
        except OSError as error:
            answer = {"name": name, "error": error.strerror or str(error)}
        except (ValueError, RuntimeError) as error:
            answer = {"name": name, "error": str(error)}
        channel.sendall(json.dumps(answer).encode() + b"\n")


def _is_reaped(pid: int) -> bool:
    """Take a child's exit status if it has ended; true when there is nothing left to wait for."""
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return True
