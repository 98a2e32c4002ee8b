"""Conditions: when a runbook's step is taken and when a line of its report is said.

A condition compares one value with another under one of ten operators. It holds, or it does not and
says why; a value that cannot be looked up, or of another type than the operator needs, never holds.
This module must never raise on what a run has seen.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, JsonValue, field_validator, model_validator

from hermesd.agent.references import Scope, Unresolved, references_in, resolve, show

Op = Literal["==", "!=", ">", ">=", "<", "<=", "contains", "exists", "empty", "within", "outside"]

ROOTS: Final = ("readable_roots", "writable_roots")
_ORDER: Final[dict[str, Callable[[float, float], bool]]] = {
    ">": lambda left, right: left > right,
    ">=": lambda left, right: left >= right,
    "<": lambda left, right: left < right,
    "<=": lambda left, right: left <= right,
}


class Condition(BaseModel):
    """`{ value = "${usage.rows.0.used_percent}", op = ">=", than = 75 }`.

    ``exists`` and ``empty`` need no ``than``; ``than = false`` turns them round. ``within`` and
    ``outside`` want the path to lie (or not to lie) beneath ``readable_roots``, ``writable_roots``
    or a list of folders.
    """

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    value: JsonValue
    op: Op
    than: JsonValue = None

    @field_validator("value", "than")
    @classmethod
    def _references_are_well_formed(cls, value: JsonValue) -> JsonValue:
        list(references_in(value))
        return value

    @model_validator(mode="after")
    def _than_fits(self) -> Self:
        if self.op in ("exists", "empty"):
            if self.than not in (None, True, False):
                raise ValueError(f"`{self.op}` is compared with true or false, or with nothing")
        elif self.than is None:
            raise ValueError(f"`{self.op}` needs `than`")
        if self.op in ("within", "outside") and not isinstance(self.than, list) and self.than not in ROOTS:
            raise ValueError(f"`{self.op}` needs a list of folders, or one of {', '.join(ROOTS)}")
        if self.op in _ORDER and isinstance(self.than, str) and not any(references_in(self.than)):
            raise ValueError(f"`{self.op}` compares figures, and {self.than!r} is a text")
        return self


@dataclass(frozen=True, slots=True)
class Judgement:
    """Whether a condition holds, and if not, why."""

    holds: bool
    reason: str = ""


def judge_all(conditions: Sequence[Condition], scope: Scope) -> Judgement:
    """Return the first judgement that does not hold; without conditions everything holds."""
    judgements = (judge(condition, scope) for condition in conditions)
    return next((judgement for judgement in judgements if not judgement.holds), Judgement(holds=True))


def judge(condition: Condition, scope: Scope) -> Judgement:
    """Say whether the condition holds. ``scope["catalogue"]`` gives the roots."""
    value = resolve(condition.value, scope)
    if condition.op == "exists":
        present = not isinstance(value, Unresolved)
        return _said(present is (condition.than is not False), condition, value)
    than: Any = condition.than
    if condition.op in ("within", "outside") and isinstance(than, str):
        than = _roots(scope, than)
    other = resolve(than, scope)
    for side in (value, other):
        if isinstance(side, Unresolved):
            return Judgement(holds=False, reason=side.reason)
    return _said(_compare(condition, value, other), condition, value)


def _said(holds: bool, condition: Condition, value: Any) -> Judgement:  # noqa: FBT001 - a judgement is one
    if holds:
        return Judgement(holds=True)
    shown = value.reason if isinstance(value, Unresolved) else show(value)
    than = "" if condition.than is None else f" {show(condition.than)}"
    return Judgement(holds=False, reason=f"{shown} is not {condition.op}{than}")


def _compare(condition: Condition, value: Any, other: Any) -> bool:
    op = condition.op
    if op in _ORDER:
        return _is_figure(value) and _is_figure(other) and _ORDER[op](value, other)
    if op in ("==", "!="):
        return _same(value, other) is (op == "==")
    if op == "contains":
        return _contains(value, other)
    if op == "empty":
        empty = isinstance(value, str | list | tuple | Mapping) and len(value) == 0
        return empty is (condition.than is not False)
    inside = is_within(value, other)
    return inside if op == "within" else is_path(value) and not inside


def _is_figure(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _same(value: Any, other: Any) -> bool:
    """Compare without conversions: 1 is 1.0, and neither is true or "1"."""
    return bool(isinstance(value, bool) == isinstance(other, bool) and value == other)


def _contains(value: Any, other: Any) -> bool:
    if isinstance(value, str):
        return isinstance(other, str) and other in value
    return isinstance(value, list | tuple) and any(_same(item, other) for item in value)


def _roots(scope: Scope, name: str) -> list[str]:
    catalogue = scope.get("catalogue")
    roots = catalogue.get(name) if isinstance(catalogue, Mapping) else None
    return list(roots or ())


def is_path(value: Any) -> bool:
    """Say whether it is an absolute path that names one place without `..`."""
    return isinstance(value, str) and value.startswith("/") and ".." not in value.split("/")


def is_within(path: Any, roots: Any) -> bool:
    """Say whether the path is one of the roots or lies beneath one, by whole components."""
    if not is_path(path) or not isinstance(roots, list | tuple):
        return False
    parts = _components(path)
    return any(is_path(root) and parts[: len(_components(root))] == _components(root) for root in roots)


def _components(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in ("", ".")]
