"""The shipped catalogue as a whole, and what a definition's newer keys may and may not say."""

import re
from pathlib import Path

import pytest

from hermesd.confd import ConfigError
from hermesd.control import host
from hermesd.control.binding import Bound, bind
from hermesd.control.catalogue import placeholder
from hermesd.control.redlines import secret_fault
from hermesd.control.settings import load_policy
from hermesd.control.values import is_required, value_fault
from hermesd.protocol import CommandRequest, Effect, Permission

SHIPPED = Path(__file__).parents[3] / "conf.d"
POLICY = load_policy([SHIPPED])
COMMANDS = sorted(POLICY.commands.items())
SUBJECTS = (
    "system:disk_usage", "system:inodes", "system:memory", "system:swap", "system:load",
    "system:pressure", "system:cpu", "process:top", "process:status", "process:deleted_files",
    "net:listeners", "net:resolver", "cert:show", "system:time", "system:mounts", "fs:list", "fs:stat",
    "fs:read_config", "fs:largest", "fs:growing", "log:search", "log:tail", "log:stats", "journal:read",
    "journal:between", "journal:priority", "unit:status", "unit:failed", "unit:restart", "unit:reload",
    "unit:reset_failed", "cron:list", "cron:enable", "cron:disable", "cron:edit", "kernel:messages",
    "session:current", "session:history", "fs:cleanup", "fs:expired_logs", "journal:vacuum",
    "package:clean_cache", "log:rotate", "process:terminate", "artifact:read",
    "data:query", "chart:render", "fs:restore",
)  # fmt: skip

TICKET = """\
name        = "test:restart"
description = "A proposal for the tests, long enough to be a description."
effect      = "change"
permission  = "confidential"
ticket      = "sudo systemctl restart -- {unit} {note}"

[args.unit]
type        = "unit"
description = "The unit"

[args.note]
type        = "string"
description = "Whatever is to be said"
"""
LOOK = """\
name        = "test:look"
description = "A look for the tests, long enough to be a description."
effect      = "read"
permission  = "public"
tool        = "show_files"
argv        = ["/etc/hosts", "{since}", "{until}"]

[args.since]
type        = "datetime"
description = "From then"

[args.until]
type        = "datetime"
description = "Until then"
after       = "since"

[sandbox]
files = ["/etc/hosts"]
mounts_if_there = ["/etc/no-such-folder", "/etc/alternatives"]
"""


def load(tmp_path, text):
    (tmp_path / "commands").mkdir(exist_ok=True)
    (tmp_path / "commands" / "one.toml").write_text(text)
    (tmp_path / "permissions.toml").write_text('[reach]\nreadable_roots = ["/etc", "/var", "/srv"]\n')
    return load_policy([tmp_path])


def request(command, **args):
    return CommandRequest(request_id="r1", task_id="t1", intent="a test", command=command, args=args)


def test_the_catalogue_covers_what_an_on_call_engineer_looks_at():
    assert set(SUBJECTS) <= set(POLICY.commands)
    assert len(POLICY.commands) >= 35


@pytest.mark.parametrize(("name", "command"), COMMANDS)
def test_a_shipped_command_says_what_it_returns_when_to_use_it_and_shows_an_example(name, command):
    spec = command.spec
    assert "Returns " in spec.description
    assert "Use it " in spec.description
    assert "Example: " in spec.description
    assert all(argument.examples for argument in spec.args.values())
    assert spec.fallback != name
    assert spec.scenes or name == "artifact:read"


@pytest.mark.parametrize(("name", "command"), COMMANDS)
def test_a_shipped_command_looks_for_ten_seconds_and_cleans_for_sixty_and_lists_two_hundred_lines(
    name, command
):
    spec = command.spec
    assert command.timeout_ms == (10_000 if spec.effect is Effect.READ else 60_000)
    assert spec.output.max_lines <= 200
    for argument in ("limit", "lines"):
        if argument in spec.args:
            assert spec.args[argument].default == 50 or (name, argument) == ("fs:read_config", "lines")
            assert spec.args[argument].maximum <= 200


@pytest.mark.parametrize(("name", "command"), COMMANDS)
def test_only_what_reads_is_public_and_only_tickets_name_nothing_to_run(name, command):
    spec = command.spec
    private = name == "data:query"  # rows of a service's own data go to the planner only if a person agrees
    assert (spec.permission is Permission.PUBLIC) == (spec.effect is Effect.READ and not private)
    assert bool(spec.ticket) == (spec.permission is Permission.CONFIDENTIAL)


@pytest.mark.parametrize(("name", "command"), COMMANDS)
def test_the_examples_of_a_shipped_command_make_a_request_that_may_go_on(name, command):
    args = {key: argument.examples[0] for key, argument in command.spec.args.items() if not argument.of}
    bound = bind(POLICY, request(name, **args), host)
    if command.unusable:
        assert bound[0].reason == command.unusable
        return
    if name == "fs:cleanup":  # nothing is writable as shipped
        assert bound[0].field == "path"
        return
    if "operation" in args:  # nor is anything kept
        assert [item.field for item in bound] == ["operation"]
        return
    assert isinstance(bound, Bound), bound
    assert bool(bound.job.argv) or command.spec.tool or command.spec.ticket
    assert all(isinstance(part, int) or part for part in bound.job.argv)


@pytest.mark.parametrize(("name", "command"), COMMANDS)
def test_the_example_in_a_description_is_one_that_the_command_takes(name, command):
    text = command.spec.description.rpartition("Example: ")[2].rstrip(".")
    given = dict(part.split("=", 1) for part in re.split(r", (?=[a-z_]+=)", text) if "=" in part)
    assert set(given) <= set(command.spec.args)
    for key, value in given.items():
        argument = command.spec.args[key]
        number = {"integer": int, "number": float}.get(argument.type, str)
        typed = value.strip("[]").split(",") if argument.type == "list" else number(value)
        assert value_fault(argument, typed, argument.roots) == "", (key, value)


@pytest.mark.parametrize(("name", "command"), COMMANDS)
def test_a_program_gets_a_free_text_only_after_an_option_or_the_end_of_options(name, command):
    argv = command.spec.argv
    if not command.spec.executable:
        return
    for at, element in enumerate(argv):
        argument = command.spec.args.get(placeholder(element))
        if argument is not None and argument.type in ("string", "unit"):
            assert argv[at - 1].startswith("-"), f"{element} of {name} could be read as an option"


def test_what_a_person_is_to_run_is_quoted_word_by_word(tmp_path):
    bound = bind(
        load(tmp_path, TICKET), request("test:restart", unit="a.service", note="x; rm $(y) 'z'"), host
    )
    assert bound.shown_argv == ("sudo systemctl restart -- a.service 'x; rm $(y) '\"'\"'z'\"'\"''",)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            ('"confidential"', '"internal"\npreview = "test:restart"'),
            "only for a command that is confidential",
        ),
        (("{note}", "{other}"), "not an argument"),
        (("{note}", ""), "is not used"),
        (('ticket      = "sudo', 'tool = "pressure"\nticket      = "sudo'), "exactly one"),
        (("restart -- {unit}", "restart -- {unit}\\n"), "one line"),
    ],
)
def test_a_ticket_that_is_none_is_refused(tmp_path, change, words):
    with pytest.raises(ConfigError, match=words):
        load(tmp_path, TICKET.replace(*change, 1))


def test_named_files_and_folders_come_along_where_they_are_there(tmp_path):
    args = {"since": "2026-11-30T03:00:00Z", "until": "2026-11-30T04:00:00Z"}
    bound = bind(load(tmp_path, LOOK), request("test:look", **args), host)
    assert [mount.root for mount in bound.profile.mounts] == ["/etc/alternatives", "/etc/hosts"]
    assert {mount.mode for mount in bound.profile.mounts} == {"ro"}
    assert not bound.profile.files  # a file there would let the command open sockets
    assert bound.job.argv[1:] == (b"2026-11-30 03:00:00", b"2026-11-30 04:00:00")


def test_an_end_before_its_beginning_is_refused_with_its_field(tmp_path):
    args = {"since": "2026-11-30T03:00:00Z", "until": "2026-11-30T02:00:00Z"}
    refused = bind(load(tmp_path, LOOK), request("test:look", **args), host)
    assert [(item.field, item.reason) for item in refused] == [("until", "must not be before since")]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (('["/etc/hosts"]\nmounts', '["/etc/shadow"]\nmounts'), "never given"),
        (('["/etc/hosts"]\nmounts', '["/run/docker.sock"]\nmounts'), "never given"),
        (('["/etc/hosts"]\nmounts', '["/proc/1/environ"]\nmounts'), "never given"),
        (('"/etc/no-such-folder"', '"/run"'), "never given"),
        (('"/etc/no-such-folder"', '"/var/lib/hermesd-executor/artifacts"'), "own state"),
        (('after       = "since"', 'after       = "until"'), "no datetime"),
        (('after       = "since"', 'after       = "other"'), "no datetime"),
    ],
)
def test_a_file_that_no_command_may_have_and_an_order_that_means_nothing_are_refused(tmp_path, change, words):
    text = LOOK.replace(*change, 1)
    assert text != LOOK
    with pytest.raises(ConfigError, match=words):
        load(tmp_path, text)


def test_a_command_none_of_whose_files_is_there_cannot_be_used_and_says_why(tmp_path):
    text = LOOK.replace('files = ["/etc/hosts"]', 'files = ["/run/utmp"]').replace(
        ', "/etc/alternatives"', ""
    )
    if Path("/run/utmp").exists():
        pytest.skip("this host counts its sessions")
    policy = load(tmp_path, text)
    assert (
        policy.commands["test:look"].unusable == "none of /etc/no-such-folder, /run/utmp exists on this host"
    )


@pytest.mark.parametrize(
    "path",
    [
        "/etc/shadow",
        "/etc/shadow-",
        "/etc/gshadow",
        "/etc/sudoers.d/app",
        "/etc/ssl/private/site.pem",
        "/etc/ssh/ssh_host_ed25519_key",
        "/etc/letsencrypt/live/site/privkey.pem",
        "/etc/mysql/debian.cnf",
        "/etc/Shadow",
        "/srv/app/.aws/config",
        "/srv/app/server.key",
        "/srv/app/tls-key.pem",
        "/srv/app/secrets/db",
    ],
)
def test_what_is_kept_secret_is_out_of_every_path_arguments_reach(path):
    assert secret_fault(path)
    refused = bind(POLICY, request("fs:read_config", path=path), host)
    assert [item.field for item in refused] == ["path"]
    assert "shadow" not in str(refused)  # which name it was is not told


@pytest.mark.parametrize(
    "path", ["/etc/nginx/nginx.conf", "/etc/passwd", "/etc/ssl/certs/site.pem", "/etc/keyboard"]
)
def test_ordinary_configuration_stays_in_reach(path):
    assert secret_fault(path) == ""
    assert isinstance(bind(POLICY, request("fs:read_config", path=path), host), Bound)


def test_reading_on_sees_the_shelf_and_nothing_else_of_the_executors_own():
    digest = "a" * 64
    bound = bind(POLICY, request("artifact:read", digest=digest, offset=7, length=9), host)
    shelf = f"{POLICY.settings.state_dir}/artifacts"
    assert [(mount.root, mount.mode) for mount in bound.profile.mounts] == [(shelf, "ro")]
    assert [(use.root, use.beneath) for use in bound.job.paths] == [(shelf, digest.encode())]
    assert bound.job.argv == (0, b"7", b"9")


def test_what_must_be_given_is_only_what_has_no_sensible_default():
    required = {name: [key for key, arg in c.spec.args.items() if is_required(arg)] for name, c in COMMANDS}
    assert required["log:stats"] == ["path"]
    assert required["journal:between"] == ["unit"]
    assert required["kernel:messages"] == []
