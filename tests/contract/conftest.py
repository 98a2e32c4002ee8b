"""The sandboxes that the contract runs over: real bubblewrap, a real engine, and a pool of containers.

The engine is started here with a socket and a folder of its own and is stopped afterwards. As root the
commands run as an unprivileged uid; as an ordinary user they are that user's.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import pytest
import pytest_asyncio

from hermesd.control.sandbox.base import Mount, Profile
from hermesd.control.sandbox.bubblewrap import Bubblewrap
from hermesd.control.sandbox.docker import Docker
from hermesd.control.sandbox.pool import Pool

EMPTY = Profile()
RUN_AS = (64801, 64801) if os.geteuid() == 0 else None


def missing(reason):
    """A missing part is a failure where the machine is meant to be complete, else a skip."""
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def engine():
    """A container engine of our own; the path of its socket."""
    if shutil.which("dockerd") is None:
        missing("dockerd is not installed: apt-get install docker.io")
    if os.geteuid() != 0:
        missing("dockerd can only be started by root")
    folder = Path(tempfile.mkdtemp(prefix="hermesd-engine-"))
    log = (folder / "log").open("wb")
    process = subprocess.Popen(
        [
            *("dockerd", "-H", f"unix://{folder}/docker.sock", "--data-root", f"{folder}/data"),
            *("--exec-root", f"{folder}/exec", "--pidfile", f"{folder}/pid", "--bridge=none"),
            *("--iptables=false", "--ip6tables=false"),
        ],
        stdout=log,
        stderr=log,
    )
    try:
        _wait_for(folder, process)
        yield f"{folder}/docker.sock"
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(5)
        log.close()
        shutil.rmtree(folder, ignore_errors=True)


def _wait_for(folder, process):
    until = time.monotonic() + 30
    while b"API listen" not in (folder / "log").read_bytes():
        if process.poll() is not None or time.monotonic() > until:
            missing(f"dockerd did not start: {(folder / 'log').read_text()[-400:]}")
        time.sleep(0.05)


@pytest.fixture(params=["bubblewrap", "docker", "pool"])
def make(request):
    """Make a sandbox for an instance: called twice with one name it is a later life of the first."""
    if request.param != "docker" and shutil.which("bwrap") is None:
        missing("bwrap is not installed: apt-get install bubblewrap")
    socket = request.getfixturevalue("engine") if request.param == "docker" else ""

    def of(instance=""):
        if request.param == "docker":
            return Docker([socket], run_as=RUN_AS, instance=instance)
        inner = Bubblewrap(run_as=RUN_AS, instance=instance)
        return Pool(inner) if request.param == "pool" else inner

    of.kind = request.param
    of.socket = socket
    return of


@pytest_asyncio.fixture
async def sandbox(make):
    made = make()
    yield made
    await made.close()


@pytest.fixture
def place():
    """A folder that every uid can reach, unlike `tmp_path`, which lies in a private one."""
    folder = Path(tempfile.mkdtemp(prefix="hermesd-contract-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def root(place):
    """A folder that belongs to whom the commands run as."""
    folder = place / "root"
    folder.mkdir()
    own(folder)
    return folder


@pytest.fixture
def own_all():
    return own


def own(path):
    if RUN_AS is not None:
        for inner in (path, *path.rglob("*")):
            os.chown(inner, *RUN_AS, follow_symlinks=False)


@pytest.fixture
def readable(root):
    return Profile(mounts=(Mount(str(root)),))


@pytest.fixture
def execute(sandbox):
    """Run one job to its end; what its paths were, and how it ended."""

    async def run(job, profile=EMPTY):
        container = await sandbox.start(profile)
        try:
            return await container.resolve(job), await container.run()
        finally:
            await container.destroy()

    return run


@pytest.fixture
def python():
    """Return the argv of a Python program that runs in a container."""
    return lambda text, *rest: (b"/usr/bin/python3", b"-I", b"-S", b"-c", text.encode(), *rest)


@pytest.fixture
def alive():
    """Return the ids of processes on this host whose arguments hold a text."""

    def find(text):
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) != os.getpid():
                try:
                    if text.encode() in (entry / "cmdline").read_bytes():
                        found.append(int(entry.name))
                except OSError:
                    continue
        return found

    yield find
    for pid in find("hermesd-contract-marker"):
        os.kill(pid, signal.SIGKILL)
