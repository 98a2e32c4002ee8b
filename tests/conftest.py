"""What every test may use: how a missing server is told, and how long hypothesis looks."""

import os
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from hermesd.demo.stage import cast, readable_program

settings.register_profile("home", deadline=None)
settings.register_profile("ci", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("ci" if os.environ.get("CI") == "true" else "home")


@pytest.fixture(scope="session")
def needs():
    """Ask for a real part: a skip with its reason at home, a failure where CI=true."""

    def ask(present: object, what: str) -> None:
        if present:
            return
        if os.environ.get("CI") == "true":
            pytest.fail(f"{what} is missing")
        pytest.skip(f"{what} is missing")

    return ask


@pytest.fixture(scope="session")
def program():
    """How another user starts the program, also from a checkout in /root, which is root's alone."""
    folder = Path(tempfile.mkdtemp(prefix="hermesd-program-"))
    folder.chmod(0o755)
    yield readable_program(folder, cast().agent)
    shutil.rmtree(folder)
