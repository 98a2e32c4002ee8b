"""Measures what is promised in figures: prints a table, writes `bench/out/latest.json`.

Each module beside this one with a function ``measure() -> list[dict]`` is a bench; a row is
``{name, value, unit, goal, ok}``. Names on the command line choose among them.

    make bench
    make bench ARGS="start sandbox"
"""

from __future__ import annotations

import importlib
import json
import sys
import traceback
from pathlib import Path

HERE = Path(__file__).resolve().parent


def benches(chosen: list[str]) -> list[str]:
    names = sorted(path.stem for path in HERE.glob("*.py") if path.stem != "run")
    return [name for name in names if not chosen or name in chosen]


def rows_of(name: str) -> list[dict]:
    """Run one bench. What breaks is a row too: a figure that nobody could measure is not met."""
    module = importlib.import_module(name)
    if not hasattr(module, "measure"):
        return []
    try:
        return module.measure()
    except Exception as error:  # noqa: BLE001 - the other benches still count
        traceback.print_exc()
        return [{"name": f"{name}: {error}"[:120], "value": None, "unit": "", "goal": None, "ok": False}]


def table(rows: list[dict]) -> str:
    width = max(len(row["name"]) for row in rows)
    lines = [f"{'':2}{'figure':{width}}  {'value':>10}  {'goal':>8}  {'unit':5} {'of goal':>7}"]
    for row in rows:
        value, goal = row["value"], row["goal"]
        share = f"{value / goal:7.0%}" if value is not None and goal else f"{'':7}"
        shown = "-" if value is None else f"{value:.4g}"
        mark = "✓" if row["ok"] else "✗"
        lines.append(f"{mark} {row['name']:{width}}  {shown:>10}  {goal or '':>8}  {row['unit']:5} {share}")
    return "\n".join(lines)


def main() -> int:
    sys.path.insert(0, str(HERE))
    rows = [row for name in benches(sys.argv[1:]) for row in rows_of(name)]
    if not rows:
        print("no such bench", file=sys.stderr)
        return 2
    out = HERE / "out" / "latest.json"
    out.parent.mkdir(exist_ok=True)
    out.write_text(json.dumps(rows, indent=2) + "\n")
    print(table(rows))
    return 1 if any(row["value"] is None for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
