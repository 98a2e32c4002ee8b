"""Which sandbox is used: the first of those that are wanted whose self-test holds.

An engine that answers comes first, since it bounds memory and processes by cgroups whatever the unit
says; bubblewrap needs nothing but its package. Every candidate's reason is kept for `status`. This
module must never settle for a sandbox that does not keep its promises.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from hermesd.control.sandbox.base import Sandbox, SelfTest
from hermesd.control.sandbox.bubblewrap import Bubblewrap
from hermesd.control.sandbox.docker import Docker

SOCKETS: Final = ("/run/docker.sock", "/run/podman/podman.sock")


@dataclass(frozen=True, slots=True)
class Choice:
    """The sandbox that was chosen, its self-test, and why each one that was looked at is usable or not.

    Without a usable one ``sandbox`` is None and ``self_test.reason`` holds every reason.
    """

    sandbox: Sandbox | None
    self_test: SelfTest
    reasons: dict[str, str] = field(default_factory=dict)


async def choose(
    wanted: str = "auto",
    *,
    docker_sockets: Sequence[str] = SOCKETS,
    run_as: tuple[int, int] | None = None,
    instance: str = "",
) -> Choice:
    """Return the first usable sandbox. ``wanted`` is `auto`, `docker` or `bubblewrap`.

    ``instance`` tells our containers from those of other executors on this host, so that a later life
    of this one finds what it left behind; without it nothing is ever found.
    """
    makers: dict[str, Callable[[], Sandbox]] = {
        "docker": lambda: Docker(docker_sockets, run_as=run_as, instance=instance),
        "bubblewrap": lambda: Bubblewrap(run_as=run_as, instance=instance),
    }
    return await first_usable([make for name, make in makers.items() if wanted in ("auto", name)])


async def first_usable(makers: Sequence[Callable[[], Sandbox]]) -> Choice:
    """Return the first sandbox whose self-test holds; those that were not chosen are closed."""
    reasons: dict[str, str] = {}
    for make in makers:
        sandbox = make()
        test = await sandbox.self_test()
        reasons[sandbox.name] = test.reason if not test.usable else "usable"
        if test.usable:
            return Choice(sandbox, test, reasons)
        await sandbox.close()
    reason = "; ".join(f"{name}: {why}" for name, why in reasons.items()) or "there is no such sandbox"
    return Choice(None, SelfTest(usable=False, reason=reason), reasons)
