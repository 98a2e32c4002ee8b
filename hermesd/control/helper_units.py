"""The unit files of helpers: what they say, writing them, and whether what is installed is still that.

`hermesd units sync` writes a socket and a service for each `[helpers.NAME]` and removes those of its own
that are no longer asked for. A file without our mark is somebody else's and is never touched. This module
must never start, enable or reload anything: that is the administrator's word.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

from hermesd.control.helpers import Helper, described
from hermesd.control.redlines import unit_fault

UNIT_FOLDER: Final = Path("/etc/systemd/system")
MARK: Final = "# Written by `hermesd units sync` from [helpers] of permissions.toml. Change it there."
PROGRAM: Final = Path(__file__).resolve().parent / "host_action.py"
INTERPRETER: Final = "/usr/bin/python3"
_UNIT_FOLDERS: Final = ("etc/systemd/system", "run/systemd/system", "usr/lib/systemd/system")
_END_SECONDS: Final = 5
"""The program ends its command by itself; systemd ends all of it so much later."""

_SOCKET: Final = """\
{mark}

[Unit]
Description=hermesd may ask for {described}
Documentation=file:/usr/share/doc/hermesd/helpers.md

[Socket]
ListenStream={socket}
Accept=yes
MaxConnections=4
SocketUser=root
SocketGroup={group}
SocketMode=0660
DirectoryMode=0755
RemoveOnStop=yes

[Install]
WantedBy=sockets.target
"""

_SERVICE: Final = """\
{mark}

[Unit]
Description=hermesd: {described}
Documentation=file:/usr/share/doc/hermesd/helpers.md
CollectMode=inactive-or-failed

[Service]
ExecStart={argv}
StandardInput=socket
StandardOutput=socket
StandardError=journal
RuntimeMaxSec={runtime_s}
TimeoutStopSec=5
OOMPolicy=kill
MemoryMax=512M
TasksMax=32
LimitCORE=0
UMask=0077

CapabilityBoundingSet={capabilities}
AmbientCapabilities=
NoNewPrivileges=yes
ProtectSystem=strict
{paths}ProtectHome=yes
PrivateTmp=yes
PrivateDevices=yes
DevicePolicy=closed
PrivateMounts=yes
PrivateNetwork=yes
PrivateIPC=yes
IPAddressDeny=any
{special}ProtectClock=yes
ProtectControlGroups=yes
ProtectHostname=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
ProtectKernelTunables=yes
KeyringMode=private
LockPersonality=yes
MemoryDenyWriteExecute=yes
RemoveIPC=yes
RestrictAddressFamilies=AF_UNIX
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
SystemCallArchitectures=native
SystemCallErrorNumber=EPERM
{calls}
"""

_ALONE: Final = (
    "InaccessiblePaths=-/run/docker.sock\nPrivateUsers=yes\nProtectProc=invisible\nProcSubset=pid\n"
)
_BLIND: Final = (
    "InaccessiblePaths=-/run/systemd/private -/run/dbus -/run/docker.sock\n"
    "ProtectProc=invisible\nProcSubset=pid\n"
)
_LOGS: Final = "ReadOnlyPaths=-/var/log/audit -/var/log/journal\n"
_CALLS: Final = "SystemCallFilter=@system-service\nSystemCallFilter=~@privileged @resources"
_OWNING_CALLS: Final = "SystemCallFilter=@system-service\nSystemCallFilter=~@resources"


def files_of(helpers: Iterable[Helper], group: str, program: Path = PROGRAM) -> dict[str, str]:
    """Return every unit file by its name. ``group`` may reach the sockets, and nobody else but root."""
    files: dict[str, str] = {}
    for helper in helpers:
        told = described(helper).replace("%", "%%")
        files[f"{helper.unit}.socket"] = _SOCKET.format(
            mark=MARK, described=told, socket=helper.socket, group=group
        )
        files[f"{helper.unit}@.service"] = _SERVICE.format(
            mark=MARK,
            described=told,
            argv=" ".join(map(_word, (INTERPRETER, "-I", "-S", "-B", str(program), *helper.argv))),
            runtime_s=helper.timeout_s + _END_SECONDS,
            capabilities=" ".join(helper.capabilities),
            paths=_paths(helper),
            special=_ALONE if helper.manages else _BLIND,
            calls=_OWNING_CALLS if "CAP_SETUID" in helper.capabilities else _CALLS,
        )
    return files


def _paths(helper: Helper) -> str:
    if not helper.writable:
        return ""
    return f"ReadWritePaths={' '.join(helper.writable)}\n{_LOGS if '/var/log' in helper.writable else ''}"


def _word(text: str) -> str:
    """Return a word of ExecStart= that systemd takes as it is."""
    for odd, plain in (("\\", "\\\\"), ('"', '\\"'), ("%", "%%"), ("$", "$$")):
        text = text.replace(odd, plain)
    return f'"{text}"' if any(char in text for char in " \"'\\;") else text


def differences(wanted: Mapping[str, str], folder: Path) -> Iterator[tuple[str, str]]:
    """Yield each file that is not as it would be written, and how: missing, other, foreign or left over."""
    for name, text in sorted(wanted.items()):
        there = _read(folder / name)
        if there is None:
            yield name, "missing"
        elif there != text:
            yield name, "other" if MARK in there.splitlines() else "foreign"
    for path in sorted(folder.glob("hermesd-do-*")):
        if path.name not in wanted and MARK in (_read(path) or "").splitlines():
            yield path.name, "left over"


def sync(wanted: Mapping[str, str], folder: Path, *, dry_run: bool) -> list[tuple[str, str]]:
    """Make the folder's files what is wanted; return what was done to which. Raise OSError.

    A file of that name without our mark is left as it is, and told as `foreign`.
    """
    found = list(differences(wanted, folder))
    for name, how in found:
        if dry_run or how == "foreign":
            continue
        if how == "left over":
            (folder / name).unlink()
        else:
            _write(folder / name, wanted[name])
    return found


def _write(path: Path, text: str) -> None:
    """Write a file whole or not at all."""
    new = path.with_name(f".{path.name}.new")
    new.unlink(missing_ok=True)
    fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    with os.fdopen(fd, "w", encoding="utf-8") as out:
        out.write(text)
        out.flush()
        os.fsync(out.fileno())
    new.replace(path)


def _read(path: Path) -> str | None:
    try:
        return path.read_text("utf-8", "replace")
    except FileNotFoundError:
        return None
    except OSError as error:
        return f"cannot be read: {error.strerror}"


def program_fault(program: Path = PROGRAM) -> str:
    """Return why root must not run the program: somebody else could change it."""
    for path in (program, *program.parents, *program.parent.glob("tools/*.py")):
        found = path.stat()
        sticky = found.st_mode & 0o1000 and path.is_dir()
        if found.st_uid != 0 or (found.st_mode & 0o022 and not sticky):
            return f"{path} can be changed by others than root, and a helper would run it as root"
    return ""


def alias_faults(helpers: Iterable[Helper], root: Path = Path("/")) -> list[str]:
    """Return the helpers whose unit is another name of one that no helper may touch."""
    faults = []
    for helper in helpers:
        unit = helper.values.get("unit")
        if not helper.manages or not isinstance(unit, str):
            continue
        for folder in _UNIT_FOLDERS:
            path = root / folder / unit
            if path.is_symlink() and (fault := unit_fault(path.resolve().name)):
                faults.append(
                    f"helpers.{helper.name}: {unit} is another name of {path.resolve().name}: {fault}"
                )
                break
    return faults
