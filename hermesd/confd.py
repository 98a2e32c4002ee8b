"""Layered TOML: how both processes read `conf.d`, each for itself.

A layer is a folder shaped like `conf.d/`. A file in a later layer replaces the file of the same
name in an earlier one (a link to /dev/null masks it), and `NAME.toml.d/*.toml` (of any layer) is merged
into it table by table, as systemd does with units and drop-ins.

A wrong file is an error that names file, line and reason. This module must never guess, skip or
repair: whoever reads decides what a wrong file means.
"""

from __future__ import annotations

import re
import stat
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, TypeVar

from pydantic import BaseModel, ValidationError

MAX_FILE_BYTES: Final = 1 << 20
_NOTHING: Final = Path("/dev/null")
_KEY_PART: Final = re.compile(r"""\s*(?:"([^"]*)"|'([^']*)'|([^."'\s]+))\s*(?:\.|$)""")

M = TypeVar("M", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing wrong in the configuration. ``line`` is 1-based, 0 when the whole file is meant."""

    file: Path
    line: int
    reason: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.reason}" if self.line else f"{self.file}: {self.reason}"


class ConfigError(Exception):
    """The configuration cannot be used. Carries every fault that was found, not only the first."""

    def __init__(self, faults: Iterable[Fault]) -> None:
        self.faults = tuple(faults)
        super().__init__("\n".join(str(fault) for fault in self.faults))


@dataclass(frozen=True, slots=True)
class Document:
    """One configuration file after its drop-ins: parsed data, and where each key stands."""

    name: str
    path: Path
    data: dict[str, Any]
    texts: tuple[tuple[Path, str], ...]

    def fault(self, where: Sequence[str | int], reason: str) -> Fault:
        """Return a fault at the key path ``where`` (names and list indexes), found in the file's text."""
        for path, text in reversed(self.texts):
            line = find_line(text, where)
            if line:
                return Fault(path, line, reason)
        return Fault(self.path, 0, reason)

    def read(self, model: type[M], data: dict[str, Any] | None = None, at: Sequence[str | int] = ()) -> M:
        """Return the document (or the part of it at key path ``at``) as ``model``. Raise ConfigError."""
        try:
            return model.model_validate(self.data if data is None else data)
        except ValidationError as error:
            raise ConfigError(
                self.fault((*at, *item["loc"]), _words(item["loc"], item["msg"]))
                for item in error.errors(include_url=False, include_input=False)
            ) from None


def named(document: Document) -> Document:
    """Return the document with its file's stem as `name`, unless it gives itself one."""
    return replace(document, data={"name": document.name, **document.data})


def shipped() -> Path:
    """Return the folder of the defaults that come with the program: in the wheel, or in a checkout."""
    package = Path(__file__).parent
    inside = package / "conf.d"
    return inside if inside.is_dir() else package.parent / "conf.d"


def read_file(layers: Sequence[Path], name: str) -> Document | None:
    """Return `NAME` as the layers give it, None when no layer has it or the last one masks it.

    Raise ConfigError.
    """
    base = [layer / name for layer in layers if _stands(layer / name)]
    drop_ins = [
        file for layer in layers for file in sorted((layer / f"{name}.d").glob("*.toml")) if _stands(file)
    ]
    if not base and not drop_ins:
        return None
    if base and base[-1].is_symlink() and base[-1].readlink() == _NOTHING:
        return None
    files = [*base[-1:], *drop_ins]
    texts = tuple((path, _text(path)) for path in files)
    data: dict[str, Any] = {}
    for path, text in texts:
        data = merge(data, _parse(path, text))
    return Document(Path(name).stem, files[0], data, texts)


def read_folder(layers: Sequence[Path], name: str) -> list[Document]:
    """Return every `*.toml` of the folder `NAME`, by file name. Raise ConfigError with all faults."""
    names = {file.name for layer in layers for file in (layer / name).glob("*.toml") if _stands(file)}
    documents: list[Document] = []
    faults: list[Fault] = []
    for file in sorted(names):
        try:
            document = read_file(layers, f"{name}/{file}")
        except ConfigError as error:
            faults.extend(error.faults)
        else:
            if document is not None:
                documents.append(document)
    if faults:
        raise ConfigError(faults)
    return documents


def merge(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """Return ``base`` with ``over`` laid on top: tables merge key by key, anything else is replaced."""
    merged = dict(base)
    for key, value in over.items():
        old = merged.get(key)
        merged[key] = merge(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return merged


def find_line(text: str, where: Sequence[str | int]) -> int:
    """Return the 1-based line on which the key path stands, or the nearest enclosing key; 0 if none.

    TOML's parser keeps no positions, so the text is searched: table headers give the path, keys the
    rest. An index in the path counts the `[[...]]` headers of its array.
    """
    names = [part for part in where if isinstance(part, str)]
    wanted_index = next((part for part in where if isinstance(part, int)), 0)
    best_line, best_depth = 0, 0
    table: list[str] = []
    seen: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        header = re.match(r"\s*(\[\[?)\s*([^\]]+?)\s*\]", line)
        if header:
            table = _split_key(header[2])
            seen[header[2]] = seen.get(header[2], -1) + (header[1] == "[[")
            if header[1] == "[[" and seen[header[2]] != wanted_index:
                table = ["\0other element"]
            path = table
        else:
            key = re.match(r"""\s*([A-Za-z0-9_.\-"']+)\s*=""", line)
            if not key:
                continue
            path = [*table, *_split_key(key[1])]
        depth = _common(path, names)
        if depth == len(path) and depth > best_depth:
            best_line, best_depth = number, depth
    return best_line


def _common(path: list[str], names: list[str]) -> int:
    count = 0
    for left, right in zip(path, names, strict=False):
        if left != right:
            break
        count += 1
    return count


def _split_key(dotted: str) -> list[str]:
    return [double or single or bare for double, single, bare in _KEY_PART.findall(dotted)]


def _stands(path: Path) -> bool:
    """Say whether the name is taken. A link that leads nowhere is: skipping it would hide the fault."""
    return path.exists() or path.is_symlink()


def _text(path: Path) -> str:
    try:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode):
            raise ConfigError([Fault(path, 0, "not a regular file")])
        if found.st_size > MAX_FILE_BYTES:
            raise ConfigError([Fault(path, 0, f"larger than {MAX_FILE_BYTES} bytes")])
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError([Fault(path, 0, f"not UTF-8 at byte {error.start}")]) from None
    except OSError as error:
        raise ConfigError([Fault(path, 0, error.strerror or str(error))]) from None


def _parse(path: Path, text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        found = re.search(r"at line (\d+)", str(error))
        reason = re.sub(r"\s*\(at .*\)$", "", str(error))
        return _raise(Fault(path, int(found[1]) if found else text.count("\n") + 1, reason))


def _raise(fault: Fault) -> dict[str, Any]:
    raise ConfigError([fault])


def _words(where: tuple[str | int, ...], message: str) -> str:
    key = ".".join(str(part) for part in where)
    message = message.removeprefix("Value error, ")
    if message == "Extra inputs are not permitted":
        return f"{key}: there is no such setting"
    if message == "Field required":
        return f"{key} is missing"
    return f"{key}: {message}" if key else message
