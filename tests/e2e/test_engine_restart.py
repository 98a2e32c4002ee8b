"""An executor whose container engine is stopped and started again under it."""

import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow


class EngineOfOurOwn:
    """A dockerd in a folder; each life of it serves the same socket and images."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.socket = folder / "docker.sock"
        self.process = None

    def start(self) -> None:
        with (self.folder / "log").open("wb") as log:
            self.process = subprocess.Popen(
                [
                    *("dockerd", "-H", f"unix://{self.socket}", "--data-root", f"{self.folder}/data"),
                    *("--exec-root", f"{self.folder}/exec", "--pidfile", f"{self.folder}/pid"),
                    *("--bridge=none", "--iptables=false", "--ip6tables=false"),
                ],
                stdout=log,
                stderr=log,
            )
        until = time.monotonic() + 30
        while b"API listen" not in (self.folder / "log").read_bytes():
            assert self.process.poll() is None
            assert time.monotonic() < until, (self.folder / "log").read_text()[-400:]
            time.sleep(0.05)
        self.socket.chmod(0o666)

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(20)


@pytest.fixture
def own_engine(as_root_with_dockerd):
    folder = Path(tempfile.mkdtemp(prefix="hermesd-engine-"))
    folder.chmod(0o755)
    engine = EngineOfOurOwn(folder)
    engine.start()
    yield engine
    if engine.process.poll() is None:
        engine.stop()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def as_root_with_dockerd():
    reason = ""
    if shutil.which("dockerd") is None:
        reason = "dockerd is not installed: apt-get install docker.io"
    elif os.geteuid() != 0:
        reason = "dockerd can only be started by root"
    if reason and os.environ.get("CI") == "true":
        pytest.fail(reason)
    if reason:
        pytest.skip(reason)


async def test_an_engine_that_was_restarted_is_proved_again_before_anything_runs_in_it(
    pair, as_agent, own_engine
):
    settings = f'[executor]\nsandbox = "docker"\ndocker_sockets = ["{own_engine.socket}"]\n'
    pair.write("daemon.toml.d/zz-engine.toml", settings)
    await pair.start("executor")
    assert (await as_agent(pair, "system:load", "r1"))["status"] == "succeeded"

    own_engine.stop()

    async def withdrawn():
        return not (await pair.executor("status"))["usable"]

    await pair.until(withdrawn)
    refused = await as_agent(pair, "system:load", "r2")
    assert refused["status"] == "unavailable"

    own_engine.start()

    async def proved():
        status = await pair.executor("status")
        return status if status["usable"] else None

    status = await pair.until(proved)
    assert status["sandbox"] == "docker"
    assert set(status["promises"].values()) == {""}
    assert (await as_agent(pair, "system:load", "r3"))["status"] == "succeeded"
