"""The demo as a person follows it: a disk fills, hermesd notices, looks, asks, repairs, and proves it.

The story only watches. It starts the two real processes, fills a real disk, and from then on prints
what they say; the one thing it does is what an operator would do, typing into a real hermesctl. It
must never help the daemon along, and never claim what it did not see.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from shutil import get_terminal_size
from time import monotonic
from typing import Any, Final

from hermesd.control.output import human_bytes
from hermesd.ctl.width import cells, wrap
from hermesd.demo.operator import PROMPT, TOKEN, WORD, OperatorError, terminal
from hermesd.demo.stage import AskError, Cast, Theatre, cast, theatre
from hermesd.demo.texts import Texts
from hermesd.demo.world import World, world
from hermesd.launcher import LaunchError

EXIT_FAILED: Final = 1
EXIT_NO_SANDBOX: Final = 3
_PATIENCE_SECONDS: Final = 25.0
_LOOK_SECONDS: Final = 0.1
_NARROWEST: Final = 20


@dataclass(slots=True)
class Seen:
    """What the story saw, for the JSON object and for its exit status."""

    incident: dict[str, Any] = field(default_factory=dict)
    run: dict[str, Any] = field(default_factory=dict)
    approval: dict[str, Any] = field(default_factory=dict)
    audit: dict[str, Any] = field(default_factory=dict)
    live_files_intact: bool = False

    @property
    def good(self) -> bool:
        """Whether everything ended as it should."""
        return (
            self.run.get("outcome") == "resolved"
            and self.incident.get("status") == "resolved"
            and self.approval.get("outcome") == "succeeded"
            and bool(self.audit.get("verified"))
            and self.live_files_intact
        )


class NoSandboxError(Exception):
    """Nothing can be executed here. ``str()`` names the remedy."""


class Teller:
    """Prints lines with the time since the beginning; stays silent when only JSON is wanted.

    On a terminal a long line is broken between words and goes on beneath its own beginning.
    """

    def __init__(self, *, silent: bool) -> None:
        self._silent = silent
        self._width = get_terminal_size().columns if sys.stdout.isatty() else 0
        self._began = monotonic()

    def __call__(self, line: str = "", *, plain: bool = False) -> None:
        """Say one or more lines; ``plain`` ones carry no time."""
        if self._silent:
            return
        mark = "         " if plain or not line else f"{monotonic() - self._began:6.1f} s "
        lines = [whole for part in line.split("\n") for whole in broken(f"{mark}{part}", self._width)]
        print("\n".join(lines), flush=True)  # noqa: T201


def broken(line: str, width: int) -> list[str]:
    """Return the line in pieces of at most ``width`` cells, the further ones indented; 0 breaks nothing."""
    if not width or cells(line) <= width:
        return [line.rstrip()]
    begin = len(line) - len(line.lstrip(" 0123456789.s│"))
    indent = "".join("│" if char == "│" else " " for char in line[:begin]) + "  "
    first, *others = wrap(line[begin:], max(width - begin - 2, _NARROWEST))
    return [line[:begin] + first, *(indent + piece for piece in others)]


async def tell(*, as_json: bool, language: str) -> int:
    """Play the whole story. Return the exit status: 0, 1 when something fell short, 3 without a sandbox."""
    say, text = Teller(silent=as_json), Texts(language)
    try:
        seen = await _play(say, text, language)
    except NoSandboxError as error:
        print(text.no_sandbox.format(reason=error), file=sys.stderr)  # noqa: T201
        return EXIT_NO_SANDBOX
    except (AskError, LaunchError, OperatorError, TimeoutError) as error:
        print(text.broke.format(reason=str(error) or text.too_slow), file=sys.stderr)  # noqa: T201
        return EXIT_FAILED
    if as_json:
        print(json.dumps(as_object(seen), ensure_ascii=False))  # noqa: T201
    return 0 if seen.good else EXIT_FAILED


async def _play(say: Teller, text: Texts, language: str) -> Seen:
    seen, players = Seen(), cast()
    with tempfile.TemporaryDirectory(prefix="hermesd-demo-") as name:
        folder = Path(name)
        owner = (players.executor.uid, players.executor.gid) if players.executor else None
        with world(folder, owner) as disk:
            async with theatre(folder, disk, players, language) as play:
                await _introduce(play, disk, say, text)
                live = await asyncio.to_thread(disk.live_digest)
                await asyncio.to_thread(disk.fill)
                say(text.filled.format(path=disk.root))
                try:
                    async with asyncio.timeout(_PATIENCE_SECONDS):
                        await _watch(play, seen, say, text)
                except TimeoutError:
                    words = "\n".join(part.last_words() for part in (play.executor, play.agent))
                    raise OperatorError(f"{text.too_slow}:\n{words}") from None
                seen.live_files_intact = live == await asyncio.to_thread(disk.live_digest)
                _tell_end(seen, disk, say, text)
    return seen


async def _introduce(play: Theatre, disk: World, say: Teller, text: Texts) -> None:
    status = await play.ask_executor("status", {})
    if not status["usable"]:
        raise NoSandboxError(status["reason"])
    kind = text.own_disk if disk.mounted else text.budget_folder
    say(text.disk.format(kind=kind, path=disk.root))
    say(
        text.executor.format(
            pid=play.executor.pid, who=_who(play.players, "executor"), sandbox=status["sandbox"]
        )
    )
    for weaker in status["degraded"]:
        say(f"{text.degraded}: {weaker}", plain=True)
    say(text.agent.format(pid=play.agent.pid, who=_who(play.players, "agent")))


def _who(players: Cast, part: str) -> str:
    account = getattr(players, part)
    return f"uid {account.uid}" if account else "this user"


async def _watch(play: Theatre, seen: Seen, say: Teller, text: Texts) -> None:
    """Follow the incident from its opening to its end."""
    incident = await _until(lambda: _incident(play))
    say(text.noticed.format(title=incident["title"], rule=incident["rule"], id=incident["id"]))
    task_id = incident["runs"][0]
    async with asyncio.TaskGroup() as group:
        one_voice = asyncio.Lock()
        group.create_task(_follow(play, task_id, say, one_voice), name="demo-follow")
        group.create_task(_approve(play, seen, say, text, one_voice), name="demo-operator")
    shown = await play.ask_agent("show", {"id": task_id})
    seen.run = shown["run"]
    seen.incident = await _until(lambda: _resolved(play, incident["id"]))
    seen.audit = await _verify(play)


async def _follow(play: Theatre, task_id: str, say: Teller, one_voice: asyncio.Lock) -> None:
    async for told in play.follow(task_id):
        if told.get("line"):
            async with one_voice:
                say(f"  {told['line']}")


async def _approve(play: Theatre, seen: Seen, say: Teller, text: Texts, one_voice: asyncio.Lock) -> None:
    """Do what an operator does: see what waits, ask to see it, type the token, then the word."""
    operation = await _until(lambda: _pending(play))
    async with one_voice:  # the run's lines wait until the operator's screen has been shown
        say(text.asked.format(text=operation["text"]))
        await _type(play, operation, say, text)
    seen.approval = {"operation": operation["id"], "text": operation["text"], "outcome": "succeeded"}


async def _type(play: Theatre, operation: dict[str, Any], say: Teller, text: Texts) -> None:
    """Hold the conversation at a terminal of its own, and show the screen. Raise OperatorError."""
    argv, environ = play.hermesctl("approve", operation["id"])
    async with terminal(argv, environ, play.players.operator) as screen:
        token = await screen.until(TOKEN)
        await screen.until(PROMPT, token.end())
        shown = len(screen.screen)
        await screen.type(token[1])
        word = await screen.until(WORD, shown)
        await screen.until(PROMPT, word.end())
        await screen.type(word[1])
        status = await screen.rest()
    say(text.operator_screen, plain=True)
    for line in screen.screen.strip().split("\n"):
        say(f"  │ {line}", plain=True)
    if status != 0:
        raise OperatorError(f"hermesctl approve ended with exit status {status}:\n{screen.screen}")


async def _incident(play: Theatre) -> dict[str, Any] | None:
    found = (await play.ask_agent("incidents", {"all": True}))["incidents"]
    return next((item for item in found if item["runs"]), None)


async def _resolved(play: Theatre, incident_id: str) -> dict[str, Any] | None:
    found = (await play.ask_agent("incidents", {"all": True}))["incidents"]
    return next((item for item in found if item["id"] == incident_id and item["status"] == "resolved"), None)


async def _pending(play: Theatre) -> dict[str, Any] | None:
    return next(iter((await play.ask_executor("approvals", {}))["operations"]), None)


async def _until(look: Callable[[], Any]) -> dict[str, Any]:
    """Look as a person would, a few times a second. The caller's patience is the clock."""
    while (found := await look()) is None:  # noqa: ASYNC110 - it watches another process
        await asyncio.sleep(_LOOK_SECONDS)
    result: dict[str, Any] = found
    return result


async def _verify(play: Theatre) -> dict[str, Any]:
    """Verify both logs, each against the head that the other process has written down."""
    heads = await play.ask_agent("audit.verify", {})
    executor = await play.ask_executor("audit.verify", {"anchor": heads["peer_anchor"]})
    agent = await play.ask_agent("audit.verify", {"anchor": executor["peer_anchor"]})
    return {
        "records": agent["records"] + executor["records"],
        "verified": bool(agent["ok"] and executor["ok"]),
        "reason": agent["reason"] or executor["reason"],
    }


def _tell_end(seen: Seen, disk: World, say: Teller, text: Texts) -> None:
    _complete_approval(seen)
    say()
    say(text.report, plain=True)
    say("\n".join(f"  {line}" for line in seen.run["report"].split("\n")), plain=True)
    say()
    say(text.stages, plain=True)
    for line in stage_lines(seen.run["stages"], text):
        say(line, plain=True)
    say()
    kept = text.live_kept if seen.live_files_intact else text.live_lost
    say(kept.format(path=disk.root))
    say(text.resolved.format(id=seen.incident["id"], status=seen.incident["status"]))
    audit = seen.audit
    verdict = text.verified if audit["verified"] else text.not_verified
    say(verdict.format(records=audit["records"], reason=audit["reason"]))


def stage_lines(stages: list[dict[str, Any]], text: Texts) -> list[str]:
    """Return a line per stage: how often it occurred, its longest time beside its clock, its outcomes."""
    lines = []
    for name in dict.fromkeys(stage["name"] for stage in stages):
        same = [stage for stage in stages if stage["name"] == name]
        longest = max(same, key=lambda stage: stage["ms"])
        outcomes = ", ".join(dict.fromkeys(stage["outcome"] for stage in same))
        clock = f"{longest['budget_ms'] / 1000:,.0f} s"
        total = f"{sum(stage['ms'] for stage in same):,.1f} ms"
        lines.append(f"  {name:<9}{len(same):>3} ×{total:>12}   {text.clock} {clock:>8}   {outcomes}")
    return lines


def _complete_approval(seen: Seen) -> None:
    """Take the figures of the approval from the run's own record of the step that was approved."""
    for step in seen.run.get("steps", []):
        if step.get("impact"):
            gain = step.get("gain") or {}
            seen.approval |= {
                "files": step["impact"]["files"],
                "bytes": step["impact"]["size_bytes"],
                "files_removed": gain.get("files_removed", 0),
                "freed_bytes": gain.get("freed_bytes", 0),
                "freed": human_bytes(gain.get("freed_bytes", 0)),
                "outcome": step["status"],
            }


def as_object(seen: Seen) -> dict[str, Any]:
    """Return the one JSON object that `hermesd demo --json` prints."""
    incident, run = seen.incident, seen.run
    return {
        "incident": {
            "id": incident["id"],
            "status": incident["status"],
            "opened": incident["opened_at"],
            "resolved": incident["resolved_at"],
        },
        "run": {"task_id": run["task_id"], "outcome": run["outcome"], "stages": run["stages"]},
        "approval": seen.approval,
        "audit": seen.audit,
    }
