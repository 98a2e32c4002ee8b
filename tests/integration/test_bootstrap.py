"""The bootstrap on machines that lack something: one line, no question, and nothing done twice."""

import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TOOLS = ("cat", "cksum", "dirname", "env", "flock", "id", "mktemp", "pwd", "rm", "sh", "tail", "tr")
PIP_IS_CALLED = 9


@pytest.fixture
def checkout():
    """Return a copy of what the bootstrap reads, where an ordinary user can write."""
    folder = Path(tempfile.mkdtemp(prefix="hermesd-bootstrap-"))
    (folder / "packaging").mkdir()
    for name in ("pyproject.toml", "packaging/bootstrap", "packaging/installed.py"):
        shutil.copy(ROOT / name, folder / name)
    (folder / "bin").mkdir()
    for name in TOOLS:
        (folder / "bin" / name).symlink_to(shutil.which(name))
    for path in (folder, *folder.rglob("*")):
        if os.geteuid() == 0 and not path.is_symlink():
            os.chown(path, 65534, 65534)
    yield folder
    shutil.rmtree(folder)


def bootstrap(folder, *arguments, path=None, **environ):
    """Run it as an ordinary user who may not become root."""
    as_nobody = {"user": 65534, "group": 65534, "extra_groups": []} if os.geteuid() == 0 else {}
    return subprocess.run(
        ["/bin/sh", str(folder / "packaging/bootstrap"), *arguments],
        env={"PATH": path or f"{folder}/bin", "HOME": str(folder), **environ},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        **as_nobody,
    )


def fake_environment(folder):
    """A .venv whose pip says that it was called, by its status."""
    python = folder / ".venv/bin/python"
    python.parent.mkdir(parents=True)
    python.write_text(
        f'#!/bin/sh\ncase "$*" in *"-m pip --version"*) exit 0;; *"-m pip"*) exit {PIP_IS_CALLED};; esac\n'
        'exec /usr/bin/python3 "$@"\n'
    )
    python.chmod(0o755)
    if os.geteuid() == 0:
        for path in (folder / ".venv", python.parent, python):
            os.chown(path, 65534, 65534)
    return python


@pytest.mark.skipif(Path("/usr/sbin/bwrap").exists(), reason="bubblewrap lies where it is always found")
def test_a_user_without_root_is_told_the_package_and_the_command_in_one_line(checkout):
    done = bootstrap(checkout, "demo")
    assert done.returncode == 1
    how = "sudo apt-get install -y --no-install-recommends bubblewrap"
    assert done.stderr.splitlines() == [f"bootstrap: missing: bubblewrap; install with: {how}"]
    assert not (checkout / ".venv").exists()


def with_bubblewrap(checkout):
    (checkout / "bin" / "bwrap").symlink_to("/bin/true")


def test_servers_that_only_tests_need_are_named_and_do_not_stop_a_person(checkout):
    with_bubblewrap(checkout)
    fake_environment(checkout)
    done = bootstrap(checkout, "test")
    assert "so tests that need them are skipped" in done.stderr
    assert "tmux" in done.stderr
    assert done.returncode == 1  # at pip, which the fake environment refuses, and not before
    assert "pip could not install the project" in done.stderr


def test_the_same_missing_servers_stop_a_machine_that_judges(checkout):
    with_bubblewrap(checkout)
    done = bootstrap(checkout, "test", CI="true")
    assert done.returncode == 1
    assert "missing:" in done.stderr
    assert "tmux" in done.stderr
    assert not (checkout / ".venv").exists()


def test_what_is_up_to_date_is_left_alone_and_costs_nothing(checkout):
    with_bubblewrap(checkout)
    fake_environment(checkout)
    made_from = subprocess.run(
        ["/bin/sh", "-c", "{ cat pyproject.toml; pwd -P; } | cksum"],
        cwd=checkout,
        capture_output=True,
        text=True,
        check=True,
    )
    (checkout / ".venv/.made-for-demo").write_text(made_from.stdout)
    began = time.monotonic()
    done = bootstrap(checkout, "demo")
    assert (done.returncode, done.stderr) == (0, "")
    assert time.monotonic() - began < 2


def test_a_changed_project_file_is_noticed(checkout):
    with_bubblewrap(checkout)
    fake_environment(checkout)
    (checkout / ".venv/.made-for-demo").write_text("something else\n")
    assert "installing the project" in bootstrap(checkout, "demo").stderr


def test_a_purpose_that_it_does_not_know_is_refused(checkout):
    assert bootstrap(checkout, "dinner").returncode == 2


def test_the_scripts_are_plain_posix_where_they_say_so():
    for name in ("packaging/bootstrap", "packaging/install"):
        assert (ROOT / name).read_text().startswith("#!/bin/sh\n")
        done = subprocess.run(["/bin/sh", "-n", ROOT / name], check=False, capture_output=True)
        assert done.returncode == 0, done.stderr
