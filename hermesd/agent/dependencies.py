"""Arguments that wait for an earlier step: `${look.rows.0.path}` inside a model's plan.

What an earlier round has seen is put in before the plan is stored; what a step of the same plan is to
find is put in when that step has its result. This module must never look up anything else: a
reference to a step that the action does not need is no reference.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hermesd.agent.planner import Briefing, Observation
from hermesd.agent.references import Unresolved, named_in, references_in, resolve
from hermesd.protocol import Action


def scope_for(briefing: Briefing, observations: Sequence[Observation]) -> dict[str, Any]:
    """Return what a plan may refer to that is known before its first step."""
    seen = {found.step: found.as_scope() for found in observations}
    return {
        "event": briefing.event,
        "incident": briefing.incident,
        "facts": briefing.facts,
        **seen,
    }


def unfit_references(action: Action, siblings: Sequence[str], known: Mapping[str, Any]) -> list[str]:
    """Return what is wrong with an action's references: malformed, or to nothing that will be known."""
    try:
        references = list(references_in(action.args))
    except ValueError as error:
        return [str(error)]
    faults = [f"{found}: a form is for texts, not for arguments" for found in references if found.form]
    for name in named_in(action.args):
        if name == action.step:
            faults.append(f"${{{name}...}} refers to the step itself")
        elif name not in siblings and name not in known:
            faults.append(f"${{{name}...}} is no step of this decision, nor one that was done")
    return faults


def settle(action: Action, scope: Mapping[str, Any]) -> Action | str:
    """Return the action with what the scope knows put in, or why that cannot be. What it lacks stays."""
    args: dict[str, Any] = {}
    for name, value in action.args.items():
        names = set(named_in(value))
        if not names or not names <= scope.keys():
            args[name] = value
            continue
        found = resolve(value, scope)
        if isinstance(found, Unresolved):
            return f"{name}: {found.reason}"
        args[name] = found
    return action.model_copy(update={"args": args})
