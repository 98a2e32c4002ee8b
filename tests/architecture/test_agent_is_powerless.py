"""The agent's mind has no hands: its imports and calls are read from its source, and each hole is tried."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

AGENT = Path(__file__).parents[2] / "hermesd" / "agent"

ALLOWED = {
    "__future__",
    "asyncio",
    "collections",
    "dataclasses",
    "enum",
    "functools",
    "json",
    "logging",
    "random",
    "re",
    "time",
    "typing",
    "urllib.parse",
    "pydantic",
    "hermesd.protocol",
    "hermesd.agent",
}
ALLOWED_IN = {"http_model.py": {"aiohttp"}}

FORBIDDEN_NAMES = {
    "open",
    "exec",
    "eval",
    "compile",
    "__import__",
    "breakpoint",
    "input",
    "globals",
    "locals",
    "vars",
    "getattr",
    "setattr",
    "delattr",
    "__builtins__",
    "__loader__",
    "__spec__",
}
FORBIDDEN_ATTRIBUTES = {
    "os",
    "sys",
    "subprocess",
    "socket",
    "pathlib",
    "builtins",
    "importlib",
    "web",
    "create_subprocess_exec",
    "create_subprocess_shell",
    "subprocess_exec",
    "subprocess_shell",
    "open_connection",
    "open_unix_connection",
    "start_server",
    "start_unix_server",
    "create_connection",
    "create_unix_connection",
    "create_server",
    "create_unix_server",
    "connect_read_pipe",
    "connect_write_pipe",
    "UnixConnector",
    "NamedPipeConnector",
    "FileHandler",
    "handlers",
    "__globals__",
    "__subclasses__",
    "__builtins__",
    "__loader__",
    "__dict__",
}


def faults(source: str, file: str = "sample.py") -> list[str]:
    allowed = ALLOWED | ALLOWED_IN.get(file, set())
    return [fault for node in ast.walk(ast.parse(source)) for fault in _faults_of(node, allowed)]


def _faults_of(node: ast.AST, allowed: set[str]) -> Iterator[str]:
    if isinstance(node, ast.Import):
        for alias in node.names:
            if not _may(alias.name, allowed) or (
                alias.name == "hermesd" or alias.name.startswith("hermesd.")
            ):
                yield f"import {alias.name}"
    elif isinstance(node, ast.ImportFrom):
        module = node.module or ""
        if node.level or not _may(module, allowed):
            yield f"from {'.' * node.level}{module}"
        for alias in node.names:
            if alias.name in FORBIDDEN_ATTRIBUTES or alias.name == "*":
                yield f"from {module} import {alias.name}"
    elif isinstance(node, ast.Name) and node.id in FORBIDDEN_NAMES:
        yield node.id
    elif isinstance(node, ast.Attribute) and node.attr in FORBIDDEN_ATTRIBUTES:
        yield f".{node.attr}"


def _may(module: str, allowed: set[str]) -> bool:
    parts = module.split(".")
    return any(".".join(parts[:length]) in allowed for length in range(1, len(parts) + 1))


@pytest.mark.parametrize("file", sorted(AGENT.rglob("*.py")), ids=lambda file: file.name)
def test_nothing_in_the_agent_reaches_the_operating_system_or_another_part_of_hermesd(file):
    assert faults(file.read_text(), file.name) == []


def test_there_is_an_agent_to_look_at():
    assert len(list(AGENT.rglob("*.py"))) > 10


@pytest.mark.parametrize(
    "source",
    [
        "import os",
        "import os.path as harmless",
        "from os import environ",
        "import subprocess",
        "import socket",
        "from pathlib import Path",
        "import docker",
        "import psutil",
        "import sqlite3",
        "import ctypes",
        "import importlib",
        "import hermesd",
        "import hermesd.protocol",
        "from hermesd import protocol, control",
        "from hermesd.control import gate",
        "from hermesd.clocks import StageClock",
        "from .. import control",
        "from . import model",
        "import asyncio\nasyncio.create_subprocess_exec('x')",
        "from asyncio import create_subprocess_shell",
        "from asyncio import subprocess",
        "import asyncio\nasyncio.subprocess.create_subprocess_exec",
        "import asyncio\nasyncio.open_unix_connection('x')",
        "import logging\nlogging.os.system('x')",
        "import random\nrandom.sys.modules",
        "import logging\nlogging.FileHandler('x')",
        "open('x')",
        "files = open",
        "exec('x')",
        "eval('x')",
        "compile('x', 'x', 'exec')",
        "__import__('os')",
        "getattr(__builtins__, 'open')",
        "(lambda: 0).__globals__",
        "().__class__.__base__.__subclasses__()",
        "import aiohttp",
        "from re import *",
    ],
)
def test_each_hole_is_seen(source):
    assert faults(source)


def test_only_one_module_may_import_the_http_client_and_it_opens_no_unix_socket():
    assert faults("import aiohttp", "http_model.py") == []
    assert faults("import aiohttp\naiohttp.UnixConnector('/run/docker.sock')", "http_model.py")
    assert faults("import aiohttp\naiohttp.web.run_app", "http_model.py")


def test_what_is_harmless_is_not_refused():
    assert faults("import re\nre.compile('x')\nfrom hermesd.protocol import Decision\nimport asyncio") == []
