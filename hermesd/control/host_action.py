"""What a helper unit runs as root: one fixed action, once a connection, and its answer.

Started by systemd for each connection to a helper's socket as ``WORD SECONDS ...``: ``run`` with the argv
of one command, ``remove`` with one folder. The words come from the unit file alone. A request is one line,
``hermesd-do 1 DIGEST BYTES BENEATH``, and so many bytes (a manifest): the digest is of these words, so that
a unit that was installed for something else does nothing; BENEATH is in hex, a folder within a removal's
own. The answer is ``hermesd-did STATUS OUT ERR`` and so many bytes of output and of errors.

It must never run anything for a request that did not come whole, and never take a word of it into an argv.
It uses the standard library alone: it runs with nothing of ours on its path.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import io
import os
import subprocess
import sys
from typing import BinaryIO

MAX_LINE_BYTES = 10_000
MAX_PAYLOAD_BYTES = 64 << 20
MAX_ANSWER_BYTES = 256 << 10
GREETING = "hermesd-do"
ANSWER = "hermesd-did"
NOT_ASKED = 64
"""Exit status for a request that is none, or is meant for other words: nothing was run."""
TIMED_OUT = -1

_FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8", "HOME": "/", "TZ": "UTC"}

Answer = tuple[int, bytes, bytes]


class NotAskedError(ValueError):
    """What came is no request for this action; ``str()`` says why, for people."""


def main(words: list[str]) -> int:
    """Read one request, do what ``words`` say, and answer."""
    try:
        beneath, payload = read_request(sys.stdin.buffer, words)
        status, out, err = act(words, beneath, payload)
    except NotAskedError as error:
        status, out, err = NOT_ASKED, b"", f"{error}\n".encode()
    except OSError as error:
        status, out, err = 1, b"", f"{error.strerror or error}: {error.filename or ''}\n".encode()
    out, err = out[:MAX_ANSWER_BYTES], err[:MAX_ANSWER_BYTES]
    with contextlib.suppress(BrokenPipeError):  # who asked does not wait any more; what was done is done
        os.write(1, f"{ANSWER} {status} {len(out)} {len(err)}\n".encode())
        _write_all(out + err)
    return 0


def digest_of(words: list[str]) -> str:
    """Return the digest by which this action is asked for."""
    return hashlib.sha256("\0".join(words).encode()).hexdigest()


def read_request(stream: BinaryIO, words: list[str]) -> tuple[bytes, bytes]:
    """Return the folder beneath the root and the payload. Raise NotAskedError."""
    line = stream.readline(MAX_LINE_BYTES)
    fields = line.decode("ascii", "replace").rstrip("\n").split(" ")
    if not line.endswith(b"\n") or len(fields) != 5 or fields[:2] != [GREETING, "1"]:  # noqa: PLR2004 - the line's fields
        raise NotAskedError("this is no request to a helper of hermesd")
    if fields[2] != digest_of(words):
        raise NotAskedError(
            "the helper was installed for something else: run hermesd units sync, systemctl daemon-reload"
        )
    size = int(fields[3]) if fields[3].isdigit() else MAX_PAYLOAD_BYTES + 1
    if size > MAX_PAYLOAD_BYTES:
        raise NotAskedError(f"a request holds {MAX_PAYLOAD_BYTES} bytes at most")
    payload = stream.read(size)
    if len(payload) != size:
        raise NotAskedError("the request was cut off")
    try:
        return bytes.fromhex(fields[4].removeprefix("-")), payload
    except ValueError:
        raise NotAskedError("the folder of the request cannot be read") from None


def act(words: list[str], beneath: bytes, payload: bytes) -> Answer:
    """Do the one thing that the words say."""
    word, seconds, *rest = words
    if word == "remove":
        return remove(rest[0], beneath, payload)
    return run(rest, int(seconds))


def run(argv: list[str], seconds: int) -> Answer:
    """Run one command to its end; return its exit status (128 + signal) and what it wrote."""
    try:
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=seconds,
            check=False,
            env=_ENVIRONMENT,
            cwd="/",
        )
    except subprocess.TimeoutExpired as late:
        return TIMED_OUT, late.stdout or b"", late.stderr or b""
    status = done.returncode if done.returncode >= 0 else 128 - done.returncode
    return status, done.stdout, done.stderr


def remove(root: str, beneath: bytes, manifest: bytes) -> Answer:
    """Remove what a manifest names and still is what it says; skip and report the rest."""
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120 - without pathlib
    fs_remove = importlib.import_module("tools.fs_remove")
    manifest_file = importlib.import_module("tools.manifest_file")
    folder = open_root(os.fsencode(root))
    if beneath:
        folder, _name = fs_remove.open_folder(folder, beneath + b"/-")  # the folder that a name in it has
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            for _record in fs_remove.read_manifest(manifest):
                pass  # a list that cannot be read to its end removes nothing
            status = fs_remove.remove(folder, manifest)
        except manifest_file.BadManifestError as error:
            raise NotAskedError(f"this is not a manifest: {error}") from None
    return status, out.getvalue().encode(), err.getvalue().encode()


def open_root(path: bytes) -> int:
    """Return a descriptor of a folder, reached through no link. Raise OSError."""
    fd = os.open("/", _FOLDER)
    for part in path.strip(b"/").split(b"/"):
        inner = os.open(part, _FOLDER, dir_fd=fd)
        os.close(fd)
        fd = inner
    return fd


def _write_all(data: bytes) -> None:
    while data:
        data = data[os.write(1, data) :]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
