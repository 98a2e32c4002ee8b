"""What of ours goes into every container: the stub, the tools, and a few names in `/etc`.

The programs are given compiled when the interpreter that will run them is the one that runs this
process: compiling the stub anew costs 4 ms, a third of a container's start. They are given by content,
since the containers' uid need not be able to reach the folder that this package lies in. This module
must never hand out anything but these files.
"""

from __future__ import annotations

import hashlib
import importlib.util
import marshal
import os
import sys
from functools import cache
from pathlib import Path
from typing import Final

from hermesd.control.sandbox.base import Profile

INTERPRETER: Final = "/usr/bin/python3"
TOOLS_FOLDER: Final = Path(__file__).resolve().parent.parent / "tools"
SYSTEMD_RUNS: Final = "run/systemd/system"
"""An empty folder by which `systemctl` knows that systemd runs; without it, it does not ask over the bus."""
_MEGABYTE: Final = 1 << 20
_ADDRESS_SPARE: Final = 256 * _MEGABYTE
_STUB: Final = Path(__file__).resolve().parent / "stub.py"


@cache
def programs() -> dict[str, bytes]:
    """Return the stub and the tools by their paths without the first slash."""
    sources = {"hermes/stub": _STUB}
    sources |= {f"hermes/tools/{path.stem}": path for path in sorted(TOOLS_FOLDER.glob("*.py"))}
    if _same_interpreter():
        return {f"{name}.pyc": compiled(path, f"/{name}.py") for name, path in sources.items()}
    return {f"{name}.py": path.read_bytes() for name, path in sources.items()}


def program(name: str, *arguments: str) -> list[str]:
    """Return the argv that starts one of our programs, `stub` or `tools/NAME`, in a container."""
    ending = "pyc" if f"hermes/{name}.pyc" in programs() else "py"
    return [INTERPRETER, "-I", "-S", f"/hermes/{name}.{ending}", *arguments]


def instance_label(instance: str) -> str:
    """Return what marks the containers of an instance; one without a name is never found again."""
    return hashlib.sha256(instance.encode()).hexdigest()[:16] if instance else os.urandom(8).hex()


def etc_files(uid: int, gid: int) -> dict[str, bytes]:
    """Return the few files of `/etc` that programs ask for names, by their paths without the first slash."""
    users = f"root:x:0:0::/:/\nhermesd:x:{uid}:{gid}::/:/\nnobody:x:65534:65534::/:/\n"
    groups = f"root:x:0:\nhermesd:x:{gid}:\nnogroup:x:65534:\n"
    return {
        "etc/passwd": users.encode(),
        "etc/group": groups.encode(),
        "etc/nsswitch.conf": b"passwd: files\ngroup: files\n",
    }


def limits_of(profile: Profile) -> dict[str, int]:
    """Return the rlimits of a command. Data is what it may fill; addresses also hold mapped files."""
    writes = any(mount.mode == "rw" for mount in profile.mounts)
    memory = profile.memory_mb * _MEGABYTE
    return {
        "memory": memory,
        "address": memory + _ADDRESS_SPARE,
        "pids": profile.pids,
        "file": (profile.file_mb if writes else profile.tmp_mb) * _MEGABYTE,
        "files": 256,
        "core": 0,
        "queues": 0,
    }


def compiled(path: Path, shown_as: str) -> bytes:
    """Return a source file as a .pyc that is valid whatever the source's time is."""
    code = compile(path.read_bytes(), shown_as, "exec", dont_inherit=True)
    unchecked = (1).to_bytes(4, "little")
    return importlib.util.MAGIC_NUMBER + unchecked + bytes(8) + marshal.dumps(code)


def _same_interpreter() -> bool:
    theirs = Path(INTERPRETER)
    ours = Path(getattr(sys, "_base_executable", sys.executable) or sys.executable)
    return theirs.exists() and theirs.resolve() == ours.resolve()
