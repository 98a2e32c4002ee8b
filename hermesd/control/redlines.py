"""The red lines: what no definition may ask for, whatever a file, an administrator or a model says.

They are code because files are too easily changed. A definition that crosses one is refused at load
with its line; everything here is pure and returns the reason, "" when no line is crossed.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import PurePosixPath
from typing import Final

from hermesd.control.roots import beneath, overlap

BUS_SOCKET: Final = "/run/dbus/system_bus_socket"

_PROGRAM_FOLDERS: Final = ("/usr/bin", "/usr/sbin", "/usr/lib", "/usr/libexec")

_WRAPPERS: Final = frozenset({
    "ash", "awk", "bash", "busybox", "bwrap", "capsh", "chroot", "csh", "dash", "doas", "docker", "ed",
    "emacs", "env", "eval", "ex", "expect", "fish", "gawk", "gdb", "ionice", "ksh", "ld.so", "lua",
    "mawk", "nice", "nohup", "node", "nsenter", "original-awk", "perl", "php", "podman", "pkexec",
    "rbash", "ruby", "runcon", "runuser", "script", "sed", "setarch", "setpriv", "setsid", "sh", "ssh",
    "stdbuf", "strace", "su", "sudo", "systemd-run", "tclsh", "tcsh", "time", "timeout", "tmux",
    "unshare", "vi", "vim", "watch", "xargs", "zsh",
})  # fmt: skip
"""Programs that run other programs, or whatever text they are given: a command names what it runs."""

_BY_THEIR_NAME: Final = frozenset({"busybox", "coreutils"})
"""Many programs in one file: which of them runs is said by the name that leads there."""

_NEVER_MOUNTED: Final = ("/run", "/proc", "/sys", "/dev", "/root", "/boot", "/etc/shadow", "/etc/ssl/private")
_NEVER_WRITABLE: Final = ("/usr", "/etc", "/bin", "/sbin", "/lib", "/lib64", "/opt", "/home", "/var/lib/dpkg")
_LOGGING: Final = ("/var/log/journal", "/var/log/audit", "/run/log/journal")

_NAMED_FILES: Final = frozenset({
    "/etc/adjtime", "/etc/crontab", "/etc/fstab", "/etc/hostname", "/etc/hosts", "/etc/nsswitch.conf",
    "/etc/resolv.conf", "/run/systemd/resolve/resolv.conf", "/run/systemd/resolve/stub-resolv.conf",
    "/run/utmp",
})  # fmt: skip
"""Single files that hold no secret on any host: a command may name them where no root reaches."""

_SECRET_NAMES: Final = (
    "shadow", "shadow-", "gshadow", "gshadow-", "sudoers", "sudoers.d", "private", ".ssh", ".gnupg",
    ".aws", ".kube", ".docker", ".netrc", ".pgpass", ".my.cnf", ".vault-token", "id_rsa", "id_dsa",
    "id_ecdsa", "id_ed25519", "master.key", "credentials", "credstore", "credstore.encrypted", "krb5.keytab",
    "wireguard", "opasswd", "secrets", "debian.cnf",
)  # fmt: skip
_SECRET_ENDS: Final = (".key", "_key", "-key.pem", ".keytab", ".p12", ".pfx", ".jks", ".kdbx", ".gpg", ".ppk")

_NEVER_LITERAL: Final = (
    "-exec", "-execdir", "-ok", "-okdir", "-delete", "-fprint", "-fls", "--files0-from", "-files0-from",
    "--to-command", "--checkpoint-action", "--use-compress-program", "--rsh", "--host", "--machine",
    "--vacuum", "--rotate", "--flush",
)  # fmt: skip


_SERVICE_ENDS: Final = (".service", ".socket", ".timer", ".path")
_NEVER_TOUCHED: Final = frozenset({
    "auditd", "auditbeat", "dbus", "dbus-broker", "emergency", "exit", "halt", "hermesd", "hermesd-executor",
    "init", "kexec", "klogd", "metalog", "polkit", "poweroff", "reboot", "rescue", "rsyslog", "soft-reboot",
    "syslog", "syslog-ng", "syslogd",
})  # fmt: skip
"""Units that others' records and this machine's control hang on, by their names without the ending."""
_NEVER_TOUCHED_BEGIN: Final = ("dbus-org.", "hermesd-", "initrd-", "systemd-", "user@")


def unit_fault(unit: str) -> str:
    """Return why no helper may restart, reload or reset this unit."""
    stem, dot, ending = unit.rpartition(".")
    if f"{dot}{ending}" not in _SERVICE_ENDS:
        return (
            f"{unit} is not a {', '.join(end[1:] for end in _SERVICE_ENDS)}: it stands for more than itself"
        )
    if stem.endswith("@"):
        return f"{unit} is a template; name the one instance that is meant"
    if stem.partition("@")[0] in _NEVER_TOUCHED or stem.startswith(_NEVER_TOUCHED_BEGIN):
        return f"{unit} keeps records, or controls this machine or hermesd: it is left to a person"
    return ""


def program_fault(executable: str) -> str:
    """Return why a command may not name this program."""
    path = PurePosixPath(executable)
    if not any(beneath(str(path.parent), folder) is not None for folder in _PROGRAM_FOLDERS):
        return f"a program of the catalogue lies in {', '.join(_PROGRAM_FOLDERS)}"
    names = {path.name, path.name.rstrip("0123456789."), path.name.partition(".")[0]}
    if names & {*_WRAPPERS, "python"}:
        return f"{path.name} runs other programs or free text; a command names the program that does the work"
    return ""


def link_fault(executable: str, resolved: str) -> str:
    """Return why a command may not name what its program's name leads to: another name opens no line."""
    if resolved == executable or PurePosixPath(resolved).name in _BY_THEIR_NAME:
        return ""
    fault = program_fault(resolved)
    return f"{executable} leads to {resolved}: {fault}" if fault else ""


def literal_fault(element: str) -> str:
    """Return why an argv literal is never allowed: options that run, write or reach elsewhere."""
    crossed = next((word for word in _NEVER_LITERAL if element.startswith(word)), "")
    return f"{element!r} runs, writes or reaches elsewhere" if crossed else ""


def folder_fault(root: str, mode: str, protected: Iterable[str]) -> str:
    """Return why a root may not be mounted (``mode`` ro or rw). ``protected`` are hermesd's own folders."""
    if root == "/":
        return "the whole file system is never mounted"
    for folder in protected:
        if overlap(root, folder) is not None and (mode == "rw" or beneath(root, folder) is not None):
            return f"{root} reaches hermesd's own state or audit log ({folder})"
    for folder in _NEVER_MOUNTED:
        if beneath(root, folder) is not None and root not in _LOGGING:
            return f"{root} is never given to a command"
    if mode == "rw":
        return _writable_fault(root)
    return ""


def _writable_fault(root: str) -> str:
    for folder in _LOGGING:
        if overlap(root, folder) is not None:
            return f"{root} reaches a log that services depend on ({folder})"
    for folder in _NEVER_WRITABLE:
        if beneath(root, folder) is not None:
            return f"{root} is never writable for a command (personal data, programs or configuration)"
    if root == "/var":
        return "/var as a whole is never writable for a command; name the folder that is meant"
    return ""


def file_fault(path: str, *, dbus: bool) -> str:
    """Return why a single file may not be given to a command. The bus's one socket may, when asked for."""
    if path == BUS_SOCKET:
        return "" if dbus else "the bus's socket needs `dbus = true`"
    return "" if path in _NAMED_FILES else f"{path} is never given to a command"


def secret_fault(path: str) -> str:
    """Return which part of a path names what is kept secret: keys, passwords, credentials; "" when none."""
    for part in path.lower().split("/"):
        named = part in _SECRET_NAMES or part.endswith(_SECRET_ENDS)
        if named or (part.startswith("privkey") and part.endswith(".pem")):
            return part
    return ""
