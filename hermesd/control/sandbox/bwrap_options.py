"""A profile in bwrap's own words: which namespaces, files and folders a container is made of.

Everything that comes from the host is named by a descriptor that is opened here, never by a path
that could be swapped before bwrap looks. The one exception is the host's `/usr`, which only root
can change. This module must never start anything.
"""

from __future__ import annotations

import contextlib
import os
from typing import Final

from hermesd.control.sandbox import folders, supply
from hermesd.control.sandbox.base import Profile

_MEGABYTE: Final = 1 << 20
_DEVICES: Final = ("null", "zero", "urandom")
_DEVICE_LINKS: Final = {
    "random": "urandom",
    "fd": "/proc/self/fd",
    "stdin": "/proc/self/fd/0",
    "stdout": "/proc/self/fd/1",
    "stderr": "/proc/self/fd/2",
}
_LINKS: Final = {"bin": "usr/bin", "sbin": "usr/sbin", "lib": "usr/lib", "lib64": "usr/lib64"}


class Options:
    """One container's options for bwrap, and the descriptors that they name, held until it is up."""

    def __init__(self, profile: Profile, held: contextlib.ExitStack, identity: tuple[int, int]) -> None:
        self._profile = profile
        self._held = held
        self._identity = identity
        self.descriptors: list[int] = []
        self.info, self._info_end = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._hold(self.info)
        self._pass(self._info_end)

    def all(self) -> list[str]:
        """Return all options, in the order in which bwrap carries them out."""
        return [
            *self._namespaces(),
            *self._system(),
            *self._files(),
            *self._roots(),
            "--remount-ro",
            "/",
        ]

    def _namespaces(self) -> list[str]:
        kinds = ("user", "pid", "ipc", "net", "uts", "cgroup-try")
        return [
            *(f"--unshare-{kind}" for kind in kinds),
            "--disable-userns",
            "--die-with-parent",
            "--new-session",
            "--clearenv",
            *("--cap-drop", "ALL"),
            *("--hostname", "container"),
            *("--info-fd", str(self._info_end)),
            "--as-pid-1",
        ]

    def _system(self) -> list[str]:
        proc = ["--ro-bind", "/proc", "/proc"] if self._profile.host_pid else ["--proc", "/proc"]
        links = [part for name, target in _LINKS.items() for part in ("--symlink", target, f"/{name}")]
        devices = [part for name in _DEVICES for part in ("--dev-bind", f"/dev/{name}", f"/dev/{name}")]
        ends = [part for name, end in _DEVICE_LINKS.items() for part in ("--symlink", end, f"/dev/{name}")]
        size = str(self._profile.tmp_mb * _MEGABYTE)
        tmp = ["--perms", "1777", "--size", size, "--tmpfs", "/tmp"]  # noqa: S108 - the container's own
        runs = ["--dir", f"/{supply.SYSTEMD_RUNS}"]
        return ["--ro-bind", "/usr", "/usr", *links, *proc, *devices, *ends, *tmp, *runs]

    def _files(self) -> list[str]:
        contents = {**supply.etc_files(*self._identity), **supply.programs()}
        return [
            part for name, data in contents.items() for part in ("--file", self._content(data), f"/{name}")
        ]

    def _roots(self) -> list[str]:
        table = folders.read_mountinfo()
        options: list[str] = []
        for mount in sorted(self._profile.mounts, key=lambda mount: mount.root.count("/")):
            fd = folders.open_root(mount, table)
            option = "--bind-fd" if mount.mode == "rw" else "--ro-bind-fd"
            options += [option, self._pass(fd), mount.root]
        for name in self._profile.masks:
            options += ["--perms", "0000", "--size", "4096", "--tmpfs", name, "--remount-ro", name]
        for name in self._profile.files:
            options += ["--ro-bind-fd", self._pass(folders.open_file(name)), name]
        return options

    def _content(self, data: bytes) -> str:
        fd = os.memfd_create("hermesd")
        os.write(fd, data)
        os.lseek(fd, 0, os.SEEK_SET)
        return self._pass(fd)

    def _pass(self, fd: int) -> str:
        """Hand a descriptor to bwrap and keep it until the container is up; return its number."""
        self._hold(fd)
        self.descriptors.append(fd)
        return str(fd)

    def _hold(self, fd: int) -> None:
        self._held.callback(os.close, fd)
