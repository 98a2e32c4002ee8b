"""What of ours goes into every container: the stub and the folder of tools.

The stub is given compiled when the interpreter that will run it is the one that runs this process:
compiling it anew costs 4 ms, a third of a container's start. This module must never hand out
anything but these files.
"""

from __future__ import annotations

import importlib.util
import marshal
import sys
from functools import cache
from pathlib import Path
from typing import Final

INTERPRETER: Final = "/usr/bin/python3"
TOOLS_FOLDER: Final = Path(__file__).resolve().parent.parent / "tools"
_STUB: Final = Path(__file__).resolve().parent / "stub.py"


@cache
def stub_file() -> tuple[str, bytes]:
    """Return the stub's name under `/hermes` and its content."""
    if _same_interpreter():
        return "stub.pyc", compiled(_STUB, "/hermes/stub.py")
    return "stub.py", _STUB.read_bytes()


def stub_command(name: str, *marks: str) -> list[str]:
    """Return the argv that starts the stub. ``marks`` are for whoever looks at the process list."""
    return [INTERPRETER, "-I", "-S", f"/hermes/{name}", *marks]


def compiled(path: Path, shown_as: str) -> bytes:
    """Return a source file as a .pyc that is valid whatever the source's time is."""
    code = compile(path.read_bytes(), shown_as, "exec", dont_inherit=True)
    unchecked = (1).to_bytes(4, "little")
    return importlib.util.MAGIC_NUMBER + unchecked + bytes(8) + marshal.dumps(code)


def _same_interpreter() -> bool:
    theirs = Path(INTERPRETER)
    ours = Path(getattr(sys, "_base_executable", sys.executable) or sys.executable)
    return theirs.exists() and theirs.resolve() == ours.resolve()
