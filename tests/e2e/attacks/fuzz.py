"""Random and mutated requests against the validation, judged by an oracle that shares no code with it.

What the oracle knows of a request that was bound: every path that would be mounted or handed over lies, by
whole names, beneath a permitted root that the command's own file opens too; nothing given is an option;
numbers are numbers in their range. `make fuzz` runs a million; a test runs some thousands in each run.
"""

import argparse
import random
import sys
import tempfile
import tomllib
from collections import Counter
from pathlib import Path, PurePosixPath

from hermesd.control import host
from hermesd.control.binding import Bound, bind
from hermesd.control.settings import load_policy
from hermesd.protocol import CommandRequest, ProtocolError

SHIPPED = Path(__file__).parents[3] / "conf.d"
WRITABLE = ["/tmp/data"]
READABLE = ["/tmp", "/var", *WRITABLE]
VALUES = [
    *("/var/log/syslog", "/tmp/x", "/tmp", "/var/log2/x", "/etc/shadow", "/var/../etc", "/proc/self/root"),
    *("nginx.service", "-delete", "--root=/", "sshd.service\n", "n\u200bginx.service", "/", "/tmpx"),
    *("1_000", "\u0967\u0968", "7d", "2026-11-30T03:00:00Z", "a" * 64, "/var/lib/hermesd/x"),
    *("/run/docker.sock", "/tmp/\uff0e\uff0e/etc", 5, -1, True, None, 1.5, 2**70, [], ["a"], {}),
]
BITS = ["/", "..", ".", "-", "\n", "\0", "etc", "var", "tmp", "\u202e", "\ud800", " ", "//", "%2e", "~", "@"]


def shipped_files():
    """Return each command as its file says it."""
    specs = [tomllib.loads(file.read_text()) for file in sorted((SHIPPED / "commands").glob("*.toml"))]
    return {spec["name"]: spec for spec in specs}


def policy_of(folder):
    """Return the shipped policy with the roots that the oracle knows of."""
    (folder / "permissions.toml").write_text(
        f"[reach]\nreadable_roots = {READABLE[:2]}\nwritable_roots = {WRITABLE}\n"
    )
    return load_policy([SHIPPED, folder])


def mutated(rng, value):
    if not isinstance(value, str) or rng.random() < 0.4:
        return value
    at = rng.randrange(len(value) + 1)
    return value[:at] + rng.choice(BITS) + value[at + rng.randrange(2) :]


def invented(rng, files):
    """Return a command and arguments that an obedient liar might ask for."""
    name = rng.choice(sorted(files)) if rng.random() < 0.98 else rng.choice(["sh:run", "env:x"])
    args = {}
    for argument, spec in files.get(name, {}).get("args", {}).items():
        if rng.random() < 0.85:
            pool = VALUES if rng.random() < 0.5 else (spec.get("examples") or VALUES)
            args[argument] = mutated(rng, rng.choice(pool))
    if rng.random() < 0.03:
        args["extra"] = rng.choice(VALUES)
    return name, args


def beneath(text, roots):
    path = PurePosixPath(text)
    return ".." not in path.parts and any(path.is_relative_to(root) for root in roots)


def faults_of_value(spec, value, *, given, changes):
    """Name what a bound value is that policy does not allow."""
    if isinstance(value, str):
        if given and value.startswith("-"):
            yield "option"
        if "\0" in value or "\n" in value or any(0xD800 <= ord(letter) < 0xE000 for letter in value):
            yield "control"
    if spec["type"] == "integer":
        if type(value) is not int:
            yield "type"
        elif not spec.get("minimum", value) <= value <= spec.get("maximum", value):
            yield "range"
    if spec["type"] == "path" and value not in spec.get("exact", []):
        if not beneath(value, spec.get("roots", [])):
            yield "the file's root"
        if not beneath(value, WRITABLE if changes else READABLE):
            yield "permitted root"


def outside(files, command, args, bound):
    """Return what of a bound request lies outside policy; nothing of the validation's code decides here."""
    spec = files[command]
    faults = [
        fault
        for name, value in bound.values.items()
        for fault in faults_of_value(
            spec["args"][name], value, given=name in args, changes=spec["effect"] != "read"
        )
    ]
    for mount in bound.profile.mounts:
        if mount.mode == "rw" and not beneath(mount.root, WRITABLE):
            faults.append("writable mount")
        if mount.root in ("/", "/run", "/root", "/home"):
            faults.append("mount")
    return faults


def judged(policy, files, command, args):
    """Ask the validation; return `border`, `refused` or `bound`, and what the oracle finds wrong with it."""
    try:
        request = CommandRequest(request_id="f", task_id="f", intent="fuzz", command=command, args=args)
    except (ValueError, ProtocolError):
        return "border", []
    answer = bind(policy, request, host)
    if not isinstance(answer, Bound):
        return "refused", []
    return "bound", outside(files, command, args, answer)


def run(requests, seed):
    """Return how many requests ended how, and the first few that were let out of policy."""
    rng, files, counts, found = random.Random(seed), shipped_files(), Counter(), []
    with tempfile.TemporaryDirectory() as folder:
        policy = policy_of(Path(folder))
        for _ in range(requests):
            command, args = invented(rng, files)
            end, faults = judged(policy, files, command, args)
            counts[end] += 1
            if faults:
                counts["outside"] += 1
                found.append((command, args, faults))
                del found[10:]
    return counts, found


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    counts, found = run(options.requests, options.seed)
    for command, args, faults in found:
        print(f"outside policy: {command} {args!r}: {', '.join(faults)}")
    print(
        f"{options.requests} requests of seed {options.seed}: {counts['border']} no request at all,"
        f" {counts['refused']} refused, {counts['bound']} bound, {counts['outside']} outside policy"
    )
    return 1 if counts["outside"] else 0


if __name__ == "__main__":
    sys.exit(main())
