"""Runs files of `tools.d/` in a container: reads what one registers, or calls one of its functions.

Called as ``read NAME SOURCE`` or ``call NAME SOURCE COMMAND VALUE...``. The source comes with the job, from
the executor that read it once and knows its digest: there is no file here that could be another. What the
source does while it is read can say nothing but what it registers; its own prints go to standard error.
"""

from __future__ import annotations

import datetime as dt
import os
import pathlib
import stat
import sys
import types

from . import hermesd_tools
from .fs_remove import differences, open_folder, read_manifest
from .manifest_file import BadManifestError, record_of, write_record

TYPE_CHECKING = False  # checkers know this name
if TYPE_CHECKING:
    from hermesd.control.tools.hermesd_tools import Tool

WORLD_DIFFERS = 3
_SHOWN_CHARACTERS = 300


def main(argv: list[str]) -> int:
    """Read or call; what the source raises ends as one line on standard error and exit status 1."""
    how, name, source, *rest = argv
    if how == "read":
        return _read(name, source)
    fault = _load(name, source)
    tool = next((one for one in hermesd_tools.registered if one.definition["name"] == rest[0]), None)
    if fault or tool is None:
        return _sorry(fault[1] if fault else f"{name} does not register {rest[0]} any more")
    return _call(name, tool, rest[1:])


def _read(name: str, source: str) -> int:
    """Print one JSON object: tools, each a definition and its line, and faults, each a line and words."""
    import json  # noqa: PLC0415 - a call whose answer is text needs none

    out = os.dup(1)
    os.dup2(2, 1)
    fault = _load(name, source)
    found = []
    faults = [*hermesd_tools.faults, *([fault] if fault else [])]
    for tool in hermesd_tools.registered:
        try:
            json.dumps(tool.definition, allow_nan=False)
            found.append({"line": tool.line, "definition": tool.definition})
        except (TypeError, ValueError) as error:
            faults.append((tool.line, f"the definition is no plain data: {error}"))
    if not found and not faults:
        faults.append((0, "it registers no tool"))
    sys.stdout.flush()
    with os.fdopen(out, "w", encoding="ascii") as answer:
        json.dump({"tools": found, "faults": faults}, answer)
    return os.EX_OK


def _load(name: str, source: str) -> tuple[int, str] | None:
    """Execute the source; return line and words of what stopped it."""
    sys.modules["hermesd_tools"] = hermesd_tools
    module = types.ModuleType(f"tools_d.{pathlib.PurePath(name).stem}")
    module.__file__ = name
    sys.modules[module.__name__] = module
    try:
        exec(compile(source, name, "exec", dont_inherit=True), module.__dict__)  # noqa: S102 - what this is for
    except SyntaxError as error:
        return error.lineno or 0, f"{error.msg}"
    except BaseException as error:  # noqa: BLE001 - whatever the operator's file raises is its fault
        return _line(name, error), _words(error)
    return None


def _call(name: str, tool: Tool, texts: list[str]) -> int:
    arguments = tool.definition["args"]
    values = dict(zip(arguments, texts, strict=True))
    if tool.definition["effect"] != "read" and (why := _confirmed(values["path"])):
        sys.stderr.write(why)
        return WORLD_DIFFERS
    hints = tool.function.__annotations__
    try:
        result = tool.function(
            **{key: _value(arguments[key]["type"], hints.get(key), text) for key, text in values.items()}
        )
        sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
        if tool.definition.get("output", {}).get("parser") == "manifest":
            _list(int(values["path"]), result)
        else:
            _write(result)
        sys.stdout.flush()
    except hermesd_tools.ToolError as sorry:
        return _sorry(str(sorry))
    except SystemExit as end:
        given = isinstance(end.code, int) and end.code != WORLD_DIFFERS  # that status is ours to give
        return int(end.code or 0) if given else _sorry(str(end.code or "it ended itself"))
    except BaseException as error:  # noqa: BLE001 - as above
        return _sorry(f"{_words(error)} ({name} line {_line(name, error)})")
    return os.EX_OK


def _confirmed(root: str) -> str:
    """Take in what a person confirmed; return what of it is no longer so."""
    manifest = sys.stdin.buffer.read()
    try:
        why = "".join(
            f"{record.path.decode('utf-8', 'backslashreplace')} {how}\n"
            for record, how in differences(int(root), manifest)
        )
        hermesd_tools.confirmed += [
            hermesd_tools.Target(record.path, record.size) for record in read_manifest(manifest)
        ]
    except BadManifestError as error:
        return f"this is not a manifest: {error}\n"
    return why


def _value(kind: str, hint: object, text: str) -> object:
    """Return a value as the function takes it; the executor has judged it before."""
    match kind:
        case "integer" | "duration":
            return int(text)
        case "number":
            return float(text)
        case "boolean":
            return text == "true"
        case "list":
            return text.split(",")
        case "datetime":
            return dt.datetime.fromisoformat(text).replace(tzinfo=dt.UTC)
        case "path" | "artifact":
            path = f"/proc/self/fd/{text}"
            return pathlib.Path(path) if hint is pathlib.Path or "Path" in str(hint) else path
        case _:
            return text


def _write(result: object) -> None:
    if result is None:
        return
    if isinstance(result, str | bytes | dict | int | float):
        result = [result]
    for row in result:  # type: ignore[attr-defined]
        if isinstance(row, dict):
            import json  # noqa: PLC0415 - as above

            print(json.dumps(row, ensure_ascii=False, default=str))
        else:
            print(row.decode("utf-8", "backslashreplace") if isinstance(row, bytes) else row)


def _list(root: int, names: object) -> None:
    """Write the manifest of the files that a preview named, each as it is now, beneath ``root``."""
    sys.stdout.flush()
    for one in names or ():  # type: ignore[attr-defined]
        name = os.fsencode(one).removeprefix(b"/proc/self/fd/%d/" % root)
        folder, last = open_folder(root, name)
        try:
            status = os.stat(last, dir_fd=folder, follow_symlinks=False)
        finally:
            os.close(folder)
        if not stat.S_ISREG(status.st_mode):
            raise hermesd_tools.ToolError(f"{one!s} is no regular file")
        sys.stdout.buffer.write(write_record(record_of(name, status)))


def _line(name: str, error: BaseException) -> int:
    """Return the innermost line of the file that an exception passed through, 0 when there is none."""
    found, at = 0, error.__traceback__
    while at is not None:
        if at.tb_frame.f_code.co_filename == name:
            found = at.tb_lineno
        at = at.tb_next
    return found


def _words(error: BaseException) -> str:
    if isinstance(error, MemoryError):
        return "it needs more memory than its container has"
    if isinstance(error, SystemExit):
        return "it ended itself"
    return f"{type(error).__name__}: {error}"[:_SHOWN_CHARACTERS].rstrip(": ")


def _sorry(why: str) -> int:
    sys.stderr.write(f"{why}\n")
    return 1
