"""Who may do what: roles of people and of run kinds, laid over the reach. Pure.

A role only ever narrows. What may be reached at all stands in `[reach]`; a role says which commands
and which part of the reach are for its members, who are run kinds (`event`, `schedule`, `person`) or
people (uids, groups). A request is checked against both: the kind of its run, and who asked.

What the agent says of kind and asker cannot be proven here. A lying agent therefore gains at most
what the widest role gives, which is still no more than to read; everything else needs a person's
token, and that person's own role is taken from the kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from hermesd.control.roots import intersect

if TYPE_CHECKING:
    from hermesd.control.settings import Permissions, Role

GroupsOf = Callable[[int], frozenset[str]]
"""The names of a user's groups, given the uid."""


@dataclass(frozen=True, slots=True)
class Permit:
    """What one asker may do in one kind of run: command patterns, and the roots within reach."""

    patterns: tuple[tuple[str, ...], ...]
    readable_roots: tuple[str, ...]
    writable_roots: tuple[str, ...]

    def allows(self, command: str) -> bool:
        """Say whether every role set that applies names the command."""
        return all(any(fnmatchcase(command, name) for name in names) for names in self.patterns)


def permit_for(permissions: Permissions, origin: str, asked_by: int | None, groups_of: GroupsOf) -> Permit:
    """Return what a request may do. Where no role is about somebody, that side does not narrow."""
    sets = [[role for role in permissions.roles.values() if origin in role.kinds]]
    if asked_by is not None:
        sets.append(roles_of(permissions, asked_by, groups_of))
    reach = permissions.reach
    readable, writable = reach.readable_roots, reach.writable_roots
    for roles in sets:
        if roles:
            readable = _narrowed(readable, [role.readable_roots for role in roles])
            writable = _narrowed(writable, [role.writable_roots for role in roles])
    return Permit(
        tuple(tuple(name for role in roles for name in role.commands) for roles in sets if roles),
        readable,
        writable,
    )


def roles_of(permissions: Permissions, uid: int, groups_of: GroupsOf) -> list[Role]:
    """Return the roles that a person has."""
    groups = groups_of(uid)
    return [
        role
        for role in permissions.roles.values()
        if uid in role.uids or any(name in groups for name in role.groups)
    ]


def approval_fault(
    permissions: Permissions, uid: int, command: str, asked_by: int | None, groups_of: GroupsOf
) -> str:
    """Return why this person may not approve this command, "" when they may. Root is a person too."""
    roles = roles_of(permissions, uid, groups_of)
    if not roles:
        return ""
    if not any(fnmatchcase(command, name) for role in roles for name in role.may_approve):
        return "your role may not approve this command"
    if asked_by == uid and not any(role.approve_own for role in roles):
        return "your role may not approve what you asked for yourself; somebody else must"
    return ""


def _narrowed(roots: tuple[str, ...], parts: Iterable[tuple[str, ...] | None]) -> tuple[str, ...]:
    """Return what of ``roots`` the roles open together; a role that names none opens all."""
    named = list(parts)
    if any(part is None for part in named):
        return roots
    return intersect(roots, [root for part in named if part is not None for root in part])
