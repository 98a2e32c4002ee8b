"""Why a sandbox does not work here, in words for people, each with what to do.

Pure text: what bubblewrap or an engine said comes in, a sentence comes out.
"""

from __future__ import annotations

from typing import Final

NO_BWRAP: Final = "bwrap is not installed: apt-get install bubblewrap"

NOT_AS_ROOT: Final = (
    "bubblewrap is never started by root, whose reach into files its containers would keep: "
    "run the executor as its own user"
)

NO_PATHS: Final = "not even /usr/bin can be opened inside: {reason}"

_NAMESPACES: Final = (
    "user namespaces are switched off: sysctl -w user.max_user_namespaces=10000, where it exists "
    "kernel.unprivileged_userns_clone=1, on Ubuntu kernel.apparmor_restrict_unprivileged_userns=0, "
    "and no RestrictNamespaces= in the unit"
)

_PROC: Final = (
    "mounting /proc fails inside this container: start it with systempaths=unconfined "
    "(in a unit: no ProcSubset=pid, no ProtectKernelTunables=yes)"
)

_KNOWN: Final = (
    ("proc on /newroot/proc", _PROC),
    ("creating new namespace failed", _NAMESPACES),
    ("no permissions to create", _NAMESPACES),
    ("setting up uid map", _NAMESPACES),
    (
        "unexpected capabilities",
        "bwrap refuses a process with capabilities: take AmbientCapabilities= out of the unit",
    ),
    (
        "failed rtm_newaddr",
        "the network namespace cannot be set up: allow AF_NETLINK in RestrictAddressFamilies=",
    ),
    ("failed to create netlink_route socket", "allow AF_NETLINK in the unit's RestrictAddressFamilies="),
    (
        "execvp /usr/bin/python3",
        "the containers' first process needs /usr/bin/python3: apt-get install python3-minimal",
    ),
    ("unknown option", "this bwrap is too old (0.8 or newer is needed): upgrade the package bubblewrap"),
    ("resource temporarily unavailable", "no further process may be started: raise TasksMax= of the unit"),
    ("no space left", "the kernel's limit of namespaces is reached: raise sysctl user.max_user_namespaces"),
)


def explain(complaint: str) -> str:
    """Return what bwrap's complaint means and what to do; "" when it said nothing."""
    lowered = complaint.lower()
    for words, remedy in _KNOWN:
        if words in lowered:
            return f"{remedy} (bwrap said: {complaint.splitlines()[0][:200]})"
    return complaint[:300]
