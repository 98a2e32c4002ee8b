"""A one-shot container by a Docker engine: through the pool, cold over its API, and by `docker run`.

The engine is started for this bench in a folder of its own, and stopped. Where there is no dockerd, or
nobody who may start it, the figures are left out and the table says why.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from figures import percentile, row
from sandbox import milliseconds

from hermesd.control.sandbox.docker import Docker
from hermesd.control.sandbox.pool import Pool

START_SECONDS = 30
CALLS = 12


def measure() -> list[dict]:
    if shutil.which("dockerd") is None or os.geteuid() != 0:
        return [
            {
                "name": "a Docker engine of our own: needs dockerd and root",
                "value": None,
                "unit": "",
                "goal": None,
                "ok": False,
            }
        ]
    with engine() as path:
        return asyncio.run(figures(path))


async def figures(path: str) -> list[dict]:
    cold = await milliseconds(Docker([path], run_as=(65534, 65534)), pause=0, rounds=25)
    waiting = await milliseconds(Pool(Docker([path], run_as=(65534, 65534))), pause=0.6, rounds=40)
    by_hand = await asyncio.to_thread(docker_run, path)
    ratio = percentile(by_hand, 0.5) / percentile(waiting, 0.5)
    return [
        row("docker, cold over the API, p95", percentile(cold, 0.95), "ms", 250),
        row("docker, waiting, p95", percentile(waiting, 0.95), "ms", 6),
        row("docker run, median", percentile(by_hand, 0.5), "ms", 1000),
        {
            "name": "docker run / waiting, medians",
            "value": round(ratio, 1),
            "unit": "times",
            "goal": 40,
            "ok": ratio >= 40,
        },
    ]


def docker_run(path: str) -> list[float]:
    """Time `docker run` of the same command in the same image, as a person would type it."""
    base = ["docker", "-H", f"unix://{path}"]
    image = subprocess.run(
        [*base, "images", "-q"], capture_output=True, text=True, check=True
    ).stdout.split()[0]
    command = [
        *base,
        "run",
        "--rm",
        "--network",
        "none",
        "-v",
        "/usr:/usr:ro",
        "--entrypoint",
        "/usr/bin/true",
        image,
    ]
    times = []
    for _ in range(CALLS):
        began = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True)
        times.append((time.perf_counter() - began) * 1000)
    return times[2:]


@contextlib.contextmanager
def engine() -> Iterator[str]:
    """Start a dockerd on a private socket; yield the socket's path."""
    folder = Path(tempfile.mkdtemp(prefix="hermesd-engine-"))
    with (folder / "log").open("wb") as log:
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
            until = time.monotonic() + START_SECONDS
            while b"API listen" not in (folder / "log").read_bytes():
                if process.poll() is not None or time.monotonic() > until:
                    raise RuntimeError(f"dockerd did not start: {(folder / 'log').read_text()[-300:]}")
                time.sleep(0.05)
            yield f"{folder}/docker.sock"
        finally:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(20)
            shutil.rmtree(folder, ignore_errors=True)
