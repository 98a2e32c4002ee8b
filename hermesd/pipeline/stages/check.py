"""Validate, on this side of the wall: whether a decision makes sense, before anybody is asked.

The executor validates by itself and trusts nothing of this. Here a planner is told in words what it
got wrong, and is kept from doing again what was done. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from hermesd.agent.arguments import unfit_arguments
from hermesd.agent.dependencies import scope_for, settle, unfit_references
from hermesd.agent.planner import Briefing, Observation, refusal
from hermesd.agent.provenance import known_of, trace
from hermesd.agent.verify import unmet
from hermesd.protocol import Action, CatalogueView, CommandInfo, Decision, Effect, ResultStatus

_REPEAT: Final = "this was done already with the same arguments"
_RETRIABLE: Final = frozenset({ResultStatus.PLAN_CHANGED, ResultStatus.UNAVAILABLE, ResultStatus.CANCELLED})
"""What may be asked again: the world moved, or nobody was there. Anything else would end the same way."""


def check(
    decision: Decision,
    catalogue: CatalogueView,
    observations: Sequence[Observation],
    actions_left: int,
) -> list[str]:
    """Return why the decision is refused, one line for each fault; empty when it may be acted on.

    This much is asked of every decision; of a model's, :func:`doubt` asks more.
    """
    commands = {info.name: info for info in catalogue.commands}
    actions = decision.actions
    faults = _check_count(actions, actions_left) + _check_needs(actions)
    done = _done_in_vain(observations, commands)
    for action in actions:
        faults += [refusal(action.step, reason) for reason in _check_action(action, commands, done)]
    return faults


def doubt(
    decision: Decision, briefing: Briefing, observations: Sequence[Observation], *, last_round: bool
) -> tuple[Decision, list[str]]:
    """Return a model's decision with what is known put into its arguments, and why it is refused.

    Each argument must come from something that the run knows, and a finish must answer the goal. The
    sources that were found stand in the actions that are returned, so that they are recorded.
    """
    if decision.finish is not None:
        return decision, unmet(decision.finish, briefing, observations, last_round=last_round)
    commands = {info.name: info for info in briefing.catalogue.commands}
    scope, known = scope_for(briefing, observations), known_of(briefing, observations)
    siblings = [action.step for action in decision.actions]
    settled: list[Action] = []
    faults: list[str] = []
    for action in decision.actions:
        wrong = unfit_references(action, siblings, scope)
        done = action if wrong else settle(action, scope)
        if isinstance(done, str):
            wrong, done = [done], action
        if action.command in commands:
            sources, untraced = trace(action, commands[action.command], known)
            done = done.model_copy(update={"sources": sources})
            wrong = wrong or untraced
        settled.append(done)
        faults += [refusal(action.step, reason) for reason in wrong]
    return decision.model_copy(update={"actions": tuple(settled)}), faults


def is_repeat(reason: str) -> bool:
    """Say whether a refusal was for doing again what was done."""
    return _REPEAT in reason


def in_order(actions: Sequence[Action]) -> list[Action]:
    """Return the actions so that each follows what it needs. They must have been checked."""
    ordered: list[Action] = []
    names: set[str] = set()
    waiting = list(actions)
    while waiting:
        ready = next(action for action in waiting if names.issuperset(action.needs))
        waiting.remove(ready)
        ordered.append(ready)
        names.add(ready.step)
    return ordered


def _check_count(actions: Sequence[Action], left: int) -> list[str]:
    return [f"only {left} more actions are allowed in this run"] if len(actions) > left else []


def _check_needs(actions: Sequence[Action]) -> list[str]:
    names = [action.step for action in actions]
    if len(set(names)) < len(names):
        return ["two actions have the same step name"]
    unknown = [
        refusal(action.step, f"it needs {need!r}, which is no step of this decision")
        for action in actions
        for need in action.needs
        if need not in names
    ]
    return unknown or _check_cycle(actions)


def _check_cycle(actions: Sequence[Action]) -> list[str]:
    waiting = {action.step: set(action.needs) for action in actions}
    while ready := {name for name, needs in waiting.items() if not needs}:
        waiting = {name: needs - ready for name, needs in waiting.items() if name not in ready}
    return [f"the steps {', '.join(sorted(waiting))} need each other in a circle"] if waiting else []


def _check_action(
    action: Action, commands: Mapping[str, CommandInfo], done: Collection[tuple[str, str]]
) -> list[str]:
    info = commands.get(action.command)
    if info is None:
        return [f"there is no command {action.command}"]
    if not info.usable:
        return [f"{action.command} cannot be used here: {info.unusable_reason}"]
    faults = list(unfit_arguments(action.command, action.args, info.args_schema))
    if not faults and identity(action.command, action.args) in done:
        instead = f"; try {info.fallback} instead" if info.fallback else ""
        faults = [f"{_REPEAT}, and nothing has changed since{instead}"]
    return faults


def identity(command: str, args: Mapping[str, object]) -> tuple[str, str]:
    """Return what makes two actions the same one."""
    return command, json.dumps(dict(args), sort_keys=True)


def _done_in_vain(
    observations: Sequence[Observation], commands: Mapping[str, CommandInfo]
) -> set[tuple[str, str]]:
    """Return what was done since the last change that succeeded: again, it would say the same."""
    done: set[tuple[str, str]] = set()
    for seen in observations:
        info = commands.get(seen.command)
        if seen.succeeded and info is not None and info.effect is not Effect.READ:
            done.clear()
        if seen.status not in _RETRIABLE:
            done.add(identity(seen.command, seen.args))
    return done
