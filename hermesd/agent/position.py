"""Where a run stands in its runbook, worked out anew from what was observed and refused.

Each step is in one of a few states: done, refused, skipped, said, ready. Nothing is remembered: the
same situation gives the same position, whoever asks and after whichever crash. An observation that
another planner made (the model, before it went silent) counts for the step that would ask the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pydantic import ValidationError

from hermesd.agent.conditions import judge_all
from hermesd.agent.planner import Briefing, Observation, Situation, cut, refused_because
from hermesd.agent.references import Scope, Unresolved, render, resolve
from hermesd.agent.runbook_file import Runbook, Step, refers
from hermesd.protocol import Action, CommandInfo, Effect, describe

MAX_TOGETHER: Final = 4
MAX_INTENT: Final = 500


@dataclass(frozen=True, slots=True)
class Note:
    """Something that a reader of the report must know about a step: ``kind`` is a key of report's words."""

    step: str
    kind: str
    reason: str = ""


@dataclass(slots=True)
class Position:
    """What is known so far (``scope``), what is worth a note or was said, and what comes next."""

    scope: dict[str, Any]
    language: str
    next: list[Action] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    hands_over: Note | None = None


def locate(runbook: Runbook, situation: Situation) -> Position:
    """Follow the runbook through the situation up to what is to be done next, or to its end."""
    walk = _Walk(runbook, situation)
    for step in runbook.steps:
        if walk.position.next and not walk.may_join(step):
            break
        if not walk.pass_by(step):
            break
    return walk.position


def scope_of(briefing: Briefing, runbook: Runbook) -> dict[str, Any]:
    """Return what references may speak of before the first step."""
    scope: dict[str, Any] = {
        "event": briefing.event,
        "incident": briefing.incident,
        "facts": briefing.facts,
        "catalogue": briefing.catalogue.model_dump(include={"readable_roots", "writable_roots", "sandbox"}),
    }
    scope["inputs"] = {name: _first(candidates, scope) for name, candidates in runbook.inputs.items()}
    return scope


def _first(candidates: tuple[Any, ...], scope: Scope) -> Any:
    values = (resolve(candidate, scope) for candidate in candidates)
    return next((value for value in values if not isinstance(value, Unresolved) and value != ""), None)


class _Walk:
    """One pass over the steps. ``position`` grows while it lasts."""

    def __init__(self, runbook: Runbook, situation: Situation) -> None:
        briefing = situation.briefing
        self.position = Position(scope_of(briefing, runbook), briefing.language)
        self._situation = situation
        self._seen = _Seen(runbook, situation.observations)
        self._commands = {info.name: info for info in briefing.catalogue.commands}
        self._succeeded: set[str] = set()
        self._batch: set[str] = set()

    def pass_by(self, step: Step) -> bool:
        """Take the step into the position. Return whether the walk goes on to the following one."""
        own = self._seen.own(step)
        if own is not None:
            return self._done(step, own)
        missing = self._cannot_be_due(step)
        if missing is not None:
            return self._skip(step, *missing)
        if step.text is not None:
            return self._say(step)
        args = {name: resolve(value, self.position.scope) for name, value in step.args.items()}
        foreign = self._seen.foreign(step, args)
        if foreign is not None:
            return self._done(step, foreign)
        return self._not_done(step, args)

    def may_join(self, step: Step) -> bool:
        """Say whether the step may go into the same decision as those that are ready."""
        info = self._commands.get(step.command or "")
        alone = len(self.position.next) >= min(MAX_TOGETHER, self._situation.actions_left)
        depends = self._batch & {*step.needs, *(reference.path[0] for reference in refers(step))}
        if alone or depends:
            return False
        return step.text is None and info is not None and _harmless(info) and not step.confirm

    def _cannot_be_due(self, step: Step) -> tuple[str, str] | None:
        """Return the note's kind (empty for none) and reason when the step is passed over."""
        lacking = [name for name in step.needs if name not in self._succeeded]
        if lacking:
            return "", f"it needs {', '.join(lacking)}, which did not succeed"
        judgement = judge_all(step.when, self.position.scope)
        return None if judgement.holds else ("", judgement.reason)

    def _not_done(self, step: Step, args: Mapping[str, Any]) -> bool:
        refused = refused_because(step.id, self._situation.refusals)
        unresolved = next((value.reason for value in args.values() if isinstance(value, Unresolved)), "")
        if refused or unresolved:
            return self._failed(step, Note(step.id, "refused", refused or unresolved), "refused")
        info = self._commands.get(step.command or "")
        if info is None or not info.usable:
            reason = info.unusable_reason if info else f"there is no command {step.command} here"
            return self._skip(step, "unusable", reason)
        try:
            self.position.next.append(self._action(step, args))
        except ValidationError as error:
            return self._failed(step, Note(step.id, "refused", describe(error)), "refused")
        self._batch.add(step.id)
        return step.on_failure == "continue" and _harmless(info) and not step.confirm

    def _action(self, step: Step, args: Mapping[str, Any]) -> Action:
        words = step.intent.of(self.position.language) if step.intent else ""
        intent = render(words, self.position.scope)
        return Action(
            step=step.id,
            command=step.command or "",
            args=dict(args),
            intent=cut(step.id if isinstance(intent, Unresolved) else intent, MAX_INTENT) or step.id,
            confirm=step.confirm,
        )

    def _say(self, step: Step) -> bool:
        words = step.text.of(self.position.language) if step.text else ""
        said = render(words, self.position.scope)
        if isinstance(said, Unresolved):
            return self._skip(step, "", said.reason)
        self.position.said.append(said)
        self._succeeded.add(step.id)
        return True

    def _done(self, step: Step, seen: Observation) -> bool:
        self.position.scope[step.id] = seen.as_scope()
        if seen.succeeded:
            self._succeeded.add(step.id)
            return True
        return self._failed(step, Note(step.id, seen.status.value, seen.reason), None)

    def _skip(self, step: Step, kind: str, reason: str) -> bool:
        self.position.scope[step.id] = {"status": "skipped", "reason": reason}
        if kind:
            self.position.notes.append(Note(step.id, kind, reason))
        return True

    def _failed(self, step: Step, note: Note, status: str | None) -> bool:
        """Note it, and do what the step says for this case; the next action is not lost by it."""
        if status is not None:
            self.position.scope[step.id] = {"status": status, "reason": note.reason}
        self.position.notes.append(note)
        if step.on_failure == "hand_over" and not self.position.next:
            self.position.hands_over = note
        return step.on_failure == "continue"


def _harmless(info: CommandInfo) -> bool:
    return info.concurrency_safe and info.effect is Effect.READ


class _Seen:
    """The observations of a run, each given to at most one step."""

    def __init__(self, runbook: Runbook, observations: tuple[Observation, ...]) -> None:
        self._own = {step.id for step in runbook.steps}
        self._observations = observations
        self._used: set[int] = set()
        self._after = 0

    def own(self, step: Step) -> Observation | None:
        """Return what the step itself saw, the newest first."""
        return self._take(number for number, seen in self._newest_first(step) if seen.step == step.id)

    def foreign(self, step: Step, args: Mapping[str, Any]) -> Observation | None:
        """Return what another planner saw by asking the same since the last effect."""
        return self._take(
            number
            for number, seen in self._newest_first(step)
            if number not in self._used
            and seen.step not in self._own
            and number >= self._after
            and all(seen.args.get(name) == value for name, value in args.items())
        )

    def _newest_first(self, step: Step) -> Iterator[tuple[int, Observation]]:
        numbered = reversed(list(enumerate(self._observations)))
        return (pair for pair in numbered if pair[1].command == step.command)

    def _take(self, numbers: Iterator[int]) -> Observation | None:
        number = next(numbers, None)
        if number is None:
            return None
        self._used.add(number)
        seen = self._observations[number]
        if seen.gain is not None:
            self._after = number
        return seen
