"""Files of `tools.d/` as the executor has them: bytes, whose they are, and where in them things stand.

A file is read once, through one descriptor; what is checked here is what containers are given. It is
parsed to find its lines and its mistakes of syntax. This module must never execute or import one.
"""

from __future__ import annotations

import ast
import hashlib
import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from hermesd.confd import MAX_FILE_BYTES, ConfigError, Document, Fault

FOLDER: Final = "tools.d"
_NOTHING: Final = Path("/dev/null")
_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,63}", re.ASCII)

Identity = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class ToolFile:
    """One file as it was read. ``identity`` is (device, inode, size, mtime in ns), ``digest`` its SHA-256."""

    path: Path
    source: bytes
    identity: Identity
    digest: str

    @property
    def shown_as(self) -> str:
        """The name under which its code runs in a container."""
        return f"{FOLDER}/{self.path.name}"

    def identity_now(self) -> Identity:
        """Return whose place the name has now; zeros when nothing is there."""
        try:
            return _identity(self.path.stat())
        except OSError:
            return (0, 0, 0, 0)

    def document(self, line: int, definition: Mapping[str, object]) -> Definition:
        """Return what a decorator on ``line`` gave, with the lines of its keys and parameters."""
        lines = next((found for found in _registrations(self.source) if found[""] == line), {"": line})
        return Definition(self.path.stem, self.path, dict(definition), (), lines)


@dataclass(frozen=True, slots=True)
class Definition(Document):
    """A definition that Python code gave: its faults stand where the code does."""

    lines: Mapping[str, int] = field(default_factory=dict)

    def fault(self, where: Sequence[str | int], reason: str) -> Fault:
        """Return a fault at the parameter or the decorator's key that ``where`` names."""
        names = [str(part) for part in where]
        key = ".".join(names[:2]) if names[:1] == ["args"] else next(iter(names), "")
        return Fault(self.path, self.lines.get(key, self.lines[""]), reason)


def read_tool_files(layers: Sequence[Path], faults: list[Fault]) -> tuple[ToolFile, ...]:
    """Return every file of `tools.d/`, the last layer's of each name; add what is wrong to ``faults``."""
    names = sorted({file.name for layer in layers for file in (layer / FOLDER).glob("*.py")})
    found = []
    for name in names:
        path = next(path for layer in reversed(layers) if os.path.lexists(path := layer / FOLDER / name))
        if path.is_symlink() and path.readlink() == _NOTHING:
            continue
        try:
            found.append(_read(path))
        except ConfigError as error:
            faults.extend(error.faults)
    return tuple(found)


def _read(path: Path) -> ToolFile:
    if not _NAME.fullmatch(path.stem):
        raise _wrong(path, "the name of a tool's file is of small letters, digits and _")
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(fd, "rb") as file:
            seen = os.fstat(fd)
            if not stat.S_ISREG(seen.st_mode) or seen.st_size > MAX_FILE_BYTES:
                raise _wrong(path, f"not a regular file of at most {MAX_FILE_BYTES} bytes")
            if seen.st_uid != 0 or seen.st_mode & 0o022:
                raise _wrong(path, "a tool's file must belong to root and be writable by root alone")
            source = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise _wrong(path, error.strerror or str(error)) from None
    _parse(path, source)
    return ToolFile(path, source, _identity(seen), hashlib.sha256(source).hexdigest())


def _parse(path: Path, source: bytes) -> None:
    try:
        ast.parse(source.decode("utf-8"), str(path))
    except UnicodeDecodeError as error:
        raise _wrong(path, f"not UTF-8 at byte {error.start}") from None
    except SyntaxError as error:
        raise _wrong(path, error.msg, error.lineno or 0) from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise _wrong(path, f"it cannot be parsed: {error}") from None


def _registrations(source: bytes) -> Iterator[dict[str, int]]:
    """Yield the lines of each decorated function: its decorator's (""), the keys' and the parameters'."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or not node.decorator_list:
            continue
        lines = {"": min(one.lineno for one in node.decorator_list)}
        for call in node.decorator_list:
            if isinstance(call, ast.Call):
                lines |= {key.arg: key.value.lineno for key in call.keywords if key.arg}
        every = (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
        yield {**lines, **{f"args.{one.arg}": one.lineno for one in every}}


def _identity(seen: os.stat_result) -> Identity:
    return seen.st_dev, seen.st_ino, seen.st_size, seen.st_mtime_ns


def _wrong(path: Path, reason: str, line: int = 0) -> ConfigError:
    return ConfigError([Fault(path, line, reason)])
