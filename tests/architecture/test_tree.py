"""The shape of the tree: which part may import what, and what may stand nowhere in it."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "hermesd"

# Each client of the outside world has one home; whoever wants it goes through there.
HOMES = {
    "aiohttp": {
        "agent/http_model.py",
        "sources/health.py",
        "sources/health_asking.py",
        "sources/webhook.py",
    },
    "aiomqtt": {"sources/mqtt.py"},
    "apscheduler": {"sources/timetable.py"},
    "docker": {"control/sandbox/docker.py", "control/sandbox/engine.py"},
    "dbus_fast": {"sources/bus.py"},
    "dns": {"sources/health_dns.py"},
    "jmespath": {"sources/mapping.py"},
    "paho": {"sources/mqtt.py"},
    "psutil": {"sources/facts.py", "sources/kernel.py"},
    "requests": {"control/sandbox/engine.py"},
    "sdnotify": {"lifecycle.py"},
    # pipeline/ names the connection's type alone; the tool runs in a container, on a service's file
    "sqlite3": {"control/ledger.py", "control/tools/sqlite_query.py", "state/", "pipeline/"},
    # the action of a helper is a program of its own, started by systemd: no daemon imports it
    "subprocess": {"control/host_action.py", "control/sandbox/process.py", "demo/", "launcher.py"},
}

# Where any failure at all may be caught and the work goes on, each a border with a reason.
BROAD = {
    "control/gate.py": "the border of a request: a flight's fault is that request's result",
    "control/sandbox/engine.py": "the engine's package raises whatever its transport does",
    "control/sandbox/stub.py": "nothing may fall back into the stub's own code after the fork",
    "control/tools/hermesd_tools.py": "a hint of an operator's function is code, and may raise anything",
    "control/tools/registered.py": "whatever an operator's file raises is that file's fault, or that call's",
    "ctl/border.py": "the border of a person's command",
    "ipc/server.py": "the border of a request",
    "lifecycle.py": "the border of a reload",
    "pipeline/dispatcher.py": "the border of a run",
    "pipeline/runner.py": "the border of a run",
    "rules/expression.py": "whatever a condition meets in a stranger's label is a reason",
    "sources/supervisor.py": "the supervisor of sources",
    "state/store.py": "a failure in the writer's thread belongs to the caller who waits",
}

SPAWNS = re.compile(
    r"create_subprocess_(exec|shell)|\bos\.(system|popen|spawn\w+|exec[lv]\w*|posix_spawn\w*)\b"
)
MAY_SPAWN = {"control/sandbox/process.py", "control/sandbox/stub.py", "demo/", "launcher.py"}
MAY_PRINT = {"cli.py", "ctl/", "demo/", "launcher.py", "control/tools/"}


@cache
def modules() -> dict[str, ast.Module]:
    files = sorted(PACKAGE.rglob("*.py"))
    return {str(path.relative_to(PACKAGE)): ast.parse(path.read_text(), str(path)) for path in files}


def within(name: str, homes: set[str]) -> bool:
    return any(name == home or (home.endswith("/") and name.startswith(home)) for home in homes)


def imported(tree: ast.Module) -> set[str]:
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names.add(node.module.partition(".")[0])
    return names


def swallowing(tree: ast.Module) -> Iterator[ast.ExceptHandler]:
    """Yield the broad handlers that swallow what they caught: their last word is not a raise."""
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.ExceptHandler)
            and is_broad(node)
            and not isinstance(node.body[-1], ast.Raise)
        ):
            yield node


def is_broad(handler: ast.ExceptHandler) -> bool:
    named = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(
        name is None or (isinstance(name, ast.Name) and name.id in ("Exception", "BaseException"))
        for name in named
    )


def tracked() -> list[Path]:
    found = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=False)
    if found.returncode != 0:
        pytest.skip("not a git checkout")
    paths = [ROOT / name for name in found.stdout.decode().split("\0") if name]
    return [path for path in paths if path.is_file()]


def test_imports_point_one_way():
    linter = Path(sys.executable).parent / "lint-imports"
    done = subprocess.run([linter, "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("client", sorted(HOMES))
def test_each_client_of_the_outside_world_has_one_home(client):
    users = {name for name, tree in modules().items() if client in imported(tree)}
    assert {name for name in users if not within(name, HOMES[client])} == set()


def test_sql_is_written_by_the_stores_alone():
    writing = {
        name for name in modules() if re.search(r"\.execute(many|script)?\(", (PACKAGE / name).read_text())
    }
    homes = {"control/ledger.py", "control/tools/sqlite_query.py", "state/"}
    writing.discard("rules/expression.py")  # it executes a compiled condition, no SQL
    assert {name for name in writing if not within(name, homes)} == set()


def test_the_executor_loads_no_client_of_the_network_and_hermesctl_no_model():
    for start, banned in (
        ("hermesd.executor", {"aiohttp", "aiomqtt", "hermesd.agent", "hermesd.sources", "hermesd.state"}),
        ("hermesd.ctl.main", {"pydantic", "aiohttp", "orjson", "hermesd.protocol", "rich", "asyncio.events"}),
        ("hermesd.cli", {"aiohttp", "docker", "hermesd.app", "hermesd.executor"}),
        ("hermesd.app", {"docker", "hermesd.control"}),
    ):
        code = f"import sys, {start}; print(*sys.modules, sep='\\n')"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        loaded = set(done.stdout.split())
        assert loaded & banned == set(), start


def test_every_module_says_why_it_exists():
    assert [name for name, tree in modules().items() if not ast.get_docstring(tree)] == []


def test_a_module_is_short_enough_to_be_read():
    lengths = {name: len((PACKAGE / name).read_text().splitlines()) for name in modules()}
    # Texts for people in two languages are lists, and the stub is one file because one file is mounted.
    whole = {"ctl/messages.py", "demo/texts.py", "control/sandbox/stub.py"}
    assert {name: length for name, length in lengths.items() if length > 400 and name not in whole} == {}


def test_only_what_speaks_to_a_person_prints():
    printing = {
        name
        for name, tree in modules().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
    }
    assert {name for name in printing if not within(name, MAY_PRINT)} == set()


def test_whatever_may_fail_is_caught_only_at_the_known_borders():
    found = {name for name, tree in modules().items() if list(swallowing(tree))}
    assert found - set(BROAD) == set()


def test_no_border_swallows_more_than_once_or_twice():
    counts = {name: len(list(swallowing(tree))) for name, tree in modules().items()}
    assert {name: count for name, count in counts.items() if count > 2} == {}


def test_nothing_goes_through_a_shell():
    shells = {
        name
        for name, tree in modules().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.keyword)
        and node.arg == "shell"
        and not (isinstance(node.value, ast.Constant) and node.value.value is False)
    }
    assert shells == set()


def test_processes_are_started_by_the_sandbox_and_by_the_launcher_alone():
    starting = {name for name in modules() if SPAWNS.search((PACKAGE / name).read_text())}
    assert {name for name in starting if not within(name, MAY_SPAWN)} == set()


# Written in pieces, so that this file does not find itself.
ELSEWHERE = re.compile(
    "|".join(
        (
            "/" + "work/",
            "/" + "root/",
            "/" + r"home/(?!somebody|\*)[a-z]",
            "artifact" + "registry",
            r"pypi\." + "org",
            r"files\.python" + "hosted",
            r"deb\." + "debian",
            "TEST" + "BENCH",
            r"\.a-" + "seed-",
        )
    )
)


def test_the_tree_names_no_path_of_one_machine_and_no_registry():
    found = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in tracked()
        if path.suffix not in {".bin", ".gz", ".db"}
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1)
        if ELSEWHERE.search(line)
    ]
    assert found == []


def test_no_secret_lies_in_the_tree():
    secret = re.compile(
        r"-----BEGIN [A-Z ]*PRIVATE" + r" KEY-----|\bsk-[A-Za-z0-9]{24,}|\bghp_[A-Za-z0-9]{30,}"
    )
    found = [
        str(path.relative_to(ROOT)) for path in tracked() if secret.search(path.read_text(errors="replace"))
    ]
    assert found == []
