"""Says by its exit status whether this checkout and what it needs are installed already.

The bootstrap asks before it calls pip, so that an environment that is complete needs no network,
however it came about. Usage: python packaging/installed.py [EXTRA ...]
"""

from __future__ import annotations

import json
import sys
import tomllib
from importlib.metadata import Distribution, PackageNotFoundError, distribution, version
from pathlib import Path

from pip._vendor.packaging.requirements import Requirement

CHECKOUT = Path(__file__).resolve().parent.parent


def is_met(text: str) -> bool:
    """Say whether one requirement line of pyproject.toml is met here."""
    wanted = Requirement(text)
    if wanted.marker is not None and not wanted.marker.evaluate():
        return True
    try:
        return wanted.specifier.contains(version(wanted.name), prereleases=True)
    except PackageNotFoundError:
        return False


def is_this_checkout(installed: Distribution, project: dict) -> bool:
    """Say whether the installed project is this folder, with the scripts that it now names."""
    origin = json.loads(installed.read_text("direct_url.json") or "{}")
    scripts = {
        entry.name: entry.value for entry in installed.entry_points if entry.group == "console_scripts"
    }
    return (
        origin.get("url") == CHECKOUT.as_uri()
        and installed.version == project["version"]
        and scripts == project["scripts"]
    )


def main() -> int:
    """Return 0 when everything is there."""
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]
    wanted = list(project["dependencies"])
    for extra in sys.argv[1:]:
        wanted += project["optional-dependencies"][extra]
    try:
        here = is_this_checkout(distribution(project["name"]), project)
    except PackageNotFoundError:
        return 1
    return 0 if here and all(is_met(line) for line in wanted) else 1


if __name__ == "__main__":
    sys.exit(main())
