"""The shipped units under a real systemd: READY, the wall between them, reload, watchdog, stop.

systemd boots as the first process of a container whose `/usr` is this machine's, read-only, so nothing
is downloaded. Both units run with all their hardening, bubblewrap inside the executor's.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import time
from io import BytesIO
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
INIT = "/usr/lib/systemd/systemd"
FILES = {
    "etc/passwd": "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534::/:/usr/sbin/nologin\n"
    "messagebus:x:102:102::/:/usr/sbin/nologin\n",
    "etc/group": "root:x:0:\nmessagebus:x:102:\nadm:x:4:\nsystemd-journal:x:101:\nnogroup:x:65534:\n",
    "etc/nsswitch.conf": "passwd: files\ngroup: files\n",
    "etc/machine-id": "5f1d5a3b0c9e4a6b8d7c6e5f4a3b2c1d\n",
    "etc/os-release": "ID=bare\n",
    "etc/hermesd/api_key": "a-key-of-the-test\n",
    "etc/systemd/system/bare.target": "[Unit]\nDescription=Bare\nRequires=basic.target\nAfter=basic.target\n",
    "etc/systemd/system/doomed.service": "[Service]\nType=oneshot\nExecStart=/usr/bin/false\n",
    "etc/systemd/system/loop.service": "[Unit]\nStartLimitIntervalSec=0\n"
    "[Service]\nExecStart=/usr/bin/sleep 0.1\nRestart=always\nRestartSec=100ms\n",
    "etc/hermesd/conf.d/sources/units.toml.d/test.toml": "interval_s = 1\n",
    "etc/hermesd/conf.d/sources/health.toml": 'kind = "health"\ninterval_s = 1\n'
    '[[check]]\nname = "doomed"\nurl = "unit:doomed.service"\n'
    '[[check]]\nname = "journal"\nurl = "unit:systemd-journald.service"\n',
}
FOLDERS = (
    *("usr", "proc", "sys", "dev", "run", "root", "opt", "tmp", "var", "var/lib", "var/log", "var/tmp"),
    *("etc", "etc/hermesd", "etc/hermesd/conf.d", "etc/hermesd/conf.d/sources"),
    *("etc/hermesd/conf.d/sources/units.toml.d", "etc/systemd", "etc/systemd/system", "var/log/journal"),
)
# The units as shipped, but for where the program lies and how long a hung one is waited for.
PROGRAM = """
[Service]
Environment=PYTHONPATH=/opt/checkout:/opt/site PYTHONDONTWRITEBYTECODE=1
ExecStart=
ExecStart=/usr/bin/python3 -m hermesd --conf /opt/checkout/conf.d --conf /etc/hermesd/conf.d {command}
WatchdogSec=3
"""
CAPABLE = [
    *("--cap-add", "ALL", "--cap-drop", "SYS_RESOURCE", "--cgroupns=private"),
    *("--security-opt", "seccomp=unconfined", "--security-opt", "systempaths=unconfined"),
]


def bare_root() -> bytes:
    """Return a root file system without a single program: what `/usr` holds is mounted."""
    out = BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:

        def add(name, mode=0o755, kind=tarfile.DIRTYPE, data=b"", link=""):
            entry = tarfile.TarInfo(name)
            entry.type, entry.mode, entry.size, entry.linkname = kind, mode, len(data), link
            tar.addfile(entry, BytesIO(data))

        for name in FOLDERS:
            add(name, 0o1777 if name.endswith("tmp") else 0o755)
        for name in ("bin", "lib", "lib64", "sbin"):
            add(name, kind=tarfile.SYMTYPE, link=f"usr/{name}")
        for name, text in FILES.items():
            add(name, 0o600 if name.endswith("api_key") else 0o644, tarfile.REGTYPE, text.encode())
        for unit, command in (("hermesd", "run"), ("hermesd-executor", "executor")):
            text = (ROOT / "systemd" / f"{unit}.service").read_bytes()
            add(f"etc/systemd/system/{unit}.service", 0o644, tarfile.REGTYPE, text)
            drop_in = PROGRAM.format(command=command).encode()
            add(f"etc/systemd/system/{unit}.service.d/test.conf", 0o644, tarfile.REGTYPE, drop_in)
        for kind in ("sysusers.d", "tmpfiles.d"):
            text = (ROOT / "systemd" / kind / "hermesd.conf").read_bytes()
            add(f"etc/{kind}/hermesd.conf", 0o644, tarfile.REGTYPE, text)
    return out.getvalue()


class Machine:
    """A container in which systemd is the first process."""

    def __init__(self, engine: str, name: str) -> None:
        self._docker = ["docker", "-H", engine]
        self.name = name

    def run(self, *argv: str, check: bool = True) -> str:
        done = subprocess.run(
            [*self._docker, "exec", self.name, *argv], capture_output=True, text=True, check=False, timeout=60
        )
        if check and done.returncode:
            pytest.fail(f"{argv}: {done.stdout}{done.stderr}\n{self.journal()}")
        return done.stdout + done.stderr

    def journal(self) -> str:
        return self.run("journalctl", "--no-pager", "-o", "cat", "-n", "60", check=False)

    def shown(self, unit: str, name: str) -> str:
        return self.run("systemctl", "show", "--value", f"--property={name}", unit).strip()

    def until(self, look, what: str, seconds: float = 30.0):
        """Return the first true answer of ``look``."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if found := look():
                return found
            time.sleep(0.1)
        return pytest.fail(f"not within {seconds:g} s: {what}\n{self.journal()}")


@pytest.fixture(scope="module")
def engine(needs):
    needs(os.geteuid() == 0, "root")
    needs(shutil.which("dockerd") and shutil.which("docker"), "dockerd (Debian package docker.io)")
    folder = Path(tempfile.mkdtemp(prefix="hermesd-systemd-", dir="/var/tmp"))
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [
                *("dockerd", "-H", f"unix://{folder}/docker.sock", "--data-root", f"{folder}/data"),
                *("--exec-root", f"{folder}/exec", "--pidfile", f"{folder}/pid", "--bridge=none"),
                *("--iptables=false", "--ip6tables=false"),
            ],
            stdout=log,
            stderr=log,
        )
        try:
            end = time.monotonic() + 30
            while b"API listen" not in (folder / "log").read_bytes():
                needs(process.poll() is None and time.monotonic() < end, "a dockerd that starts")
                time.sleep(0.05)
            yield f"unix://{folder}/docker.sock"
        finally:
            process.terminate()
            process.wait(30)
            for mount in (folder / "exec" / "netns").glob("*"):
                subprocess.run(["umount", mount], check=False, capture_output=True)
            shutil.rmtree(folder)


@pytest.fixture(scope="module")
def machine(engine, needs):
    needs(Path(INIT).exists(), "systemd (Debian package systemd)")
    needs(Path("/usr/lib/systemd/system/dbus.socket").exists(), "the system bus (Debian package dbus)")
    needs(shutil.which("bwrap"), "bubblewrap")
    system = subprocess.run(
        ["/usr/bin/python3", "-c", "import sys; print(*sys.version_info[:2])"],
        capture_output=True,
        text=True,
        check=False,
    )
    needs(system.stdout.split() == [str(n) for n in sys.version_info[:2]], "a .venv of /usr/bin/python3")

    docker = ["docker", "-H", engine]
    image = subprocess.run([*docker, "import", "-"], input=bare_root(), capture_output=True, check=True)
    mounts = [
        *("-v", "/usr:/usr:ro", "-v", f"{ROOT}:/opt/checkout:ro"),
        *("-v", f"{sysconfig.get_path('purelib')}:/opt/site:ro"),
        *("--tmpfs", "/run", "--tmpfs", "/run/lock"),
    ]
    # Where control groups are of version 2 the engine mounts them read-only, and systemd needs to write.
    boot = f"mount -o remount,rw /sys/fs/cgroup 2>/dev/null; exec {INIT} --unit=bare.target"
    start = [*docker, "run", "-d", "--network", "none", *CAPABLE, *mounts, "-e", "container=docker"]
    started = subprocess.run(
        [*start, image.stdout.decode().strip(), "/bin/sh", "-c", boot],
        capture_output=True,
        text=True,
        check=False,
    )
    made = Machine(engine, started.stdout.strip())
    end = time.monotonic() + 30
    while made.run("systemctl", "is-active", "bare.target", check=False).strip() != "active":
        if started.returncode or time.monotonic() > end:
            pytest.skip(f"systemd does not boot in a container here: {started.stderr}")
        time.sleep(0.2)
    made.run("systemd-sysusers")
    made.run("systemd-tmpfiles", "--create", "/etc/tmpfiles.d/hermesd.conf")
    yield made
    subprocess.run([*docker, "rm", "-f", made.name], check=False, capture_output=True)


@pytest.fixture
def running(machine):
    """Both units, started; whatever a test did to them is undone by the next start."""
    machine.run("rm", "-rf", "/etc/hermesd/conf.d/rules/wrong.toml")
    machine.run("systemctl", "reset-failed", check=False)
    machine.run("systemctl", "start", "hermesd-executor", "hermesd")
    return machine


def test_both_units_say_ready_with_all_their_hardening_on_and_a_sandbox_that_holds(running):
    assert running.shown("hermesd", "ActiveState") == "active"
    assert running.shown("hermesd-executor", "StatusText") == "bubblewrap passed its self-test"


def test_the_processes_are_two_users_and_the_key_is_seen_by_one(running):
    pids = {unit: running.shown(unit, "MainPID") for unit in ("hermesd", "hermesd-executor")}
    users = {unit: running.run("stat", "-c", "%U", f"/proc/{pid}").strip() for unit, pid in pids.items()}
    assert users == {"hermesd": "hermesd", "hermesd-executor": "hermesd-executor"}
    environ = {unit: running.run("cat", f"/proc/{pid}/environ").split("\0") for unit, pid in pids.items()}
    assert any(entry.startswith("CREDENTIALS_DIRECTORY=") for entry in environ["hermesd"])
    assert not any("CREDENTIALS" in entry for entry in environ["hermesd-executor"])
    for path in ("/etc/hermesd/api_key", "/var/lib/hermesd"):
        look = running.run("nsenter", "-t", pids["hermesd-executor"], "-m", "ls", "-ld", path)
        assert look.startswith(("----------", "d---------")), look


def test_the_executor_has_no_network_but_loopback(running):
    pid = running.shown("hermesd-executor", "MainPID")
    interfaces = running.run("cat", f"/proc/{pid}/net/dev").splitlines()[2:]
    assert [line.split(":")[0].strip() for line in interfaces] == ["lo"]


def test_the_two_talk_and_a_person_is_answered(running):
    status = ["env", "PYTHONPATH=/opt/checkout:/opt/site", "/usr/bin/python3", "-m", "hermesd.ctl", "status"]
    look = lambda: '"reachable": true' in running.run(*status, "--json", check=False)  # noqa: E731
    running.until(look, "the agent reaches the executor")


def asked(machine, *words):
    """Return what hermesctl says of it, None as long as it says nothing."""
    ask = ["env", "PYTHONPATH=/opt/checkout:/opt/site", "/usr/bin/python3", "-m", "hermesd.ctl"]
    try:
        return json.loads(machine.run(*ask, *words, "--json", check=False))
    except ValueError:
        return None


def open_incidents(machine):
    found = (asked(machine, "incidents") or {}).get("incidents", [])
    return {one["title"].partition(" on ")[0] for one in found if one["status"] != "resolved"}


def test_the_host_and_its_units_are_measured_with_all_the_hardening_on(running):
    def heard():
        sources = (asked(running, "status") or {"daemon": {"sources": []}})["daemon"]["sources"]
        return {one["name"] for one in sources if one["state"] == "running" and one["last_event_at"]}

    # What units has to tell is that nothing keeps the clock of this container.
    running.until(lambda: {"host", "units"} <= heard(), "the host and its units have told something")
    assert "is not measured" not in running.journal()


def test_a_failed_unit_and_a_restart_loop_are_incidents_until_they_end(running):
    running.run("systemctl", "start", "doomed", check=False)
    running.run("systemctl", "start", "loop")
    wanted = {
        "Unit doomed.service",
        "Service loop.service",
        "Health check doomed is down: unit:doomed.service",
    }
    running.until(lambda: wanted <= open_incidents(running), "the incidents are open", 40)
    assert not any("journal" in title for title in open_incidents(running))
    running.run("systemctl", "stop", "loop")
    running.run("systemctl", "reset-failed", "doomed")
    running.until(lambda: "Unit doomed.service" not in open_incidents(running), "it ended", 20)


APPROVE = """
import sys, time
from pathlib import Path
from hermesd.ipc.client import BlockingClient

def ask(kind, **payload):
    with BlockingClient(Path("/run/hermesd-executor/operator.sock"), 30) as client:
        *_, last = client.ask(kind, payload)
    return last["payload"]

end = time.monotonic() + 20
while not (waiting := ask("approvals")["operations"]) and time.monotonic() < end:
    time.sleep(0.1)
shown = ask("approve.show", id=waiting[0]["id"])
ended = ask("approve.redeem", id=shown["id"], token=shown["token"], second=shown["second_word"])
print(shown["id"], ended["outcome"], shown["text"])
"""


def test_what_a_cleanup_removes_is_kept_where_the_guide_says_and_comes_back(running):
    python = ["env", "PYTHONPATH=/opt/checkout:/opt/site", "/usr/bin/python3"]
    running.run("mkdir", "-p", "/srv", "/mnt/spare")
    running.run("mount", "-t", "tmpfs", "-o", "size=8m", "spare", "/mnt/spare")
    owned = ["install", "-d", "-o", "hermesd-executor", "-g", "hermesd-executor", "-m"]
    running.run(*owned, "0700", "/mnt/spare/hermesd")
    running.run(*owned, "0755", "/srv/app", "/srv/app/cache")
    file = "/srv/app/cache/a.tmp"
    running.run("install", "-o", "hermesd-executor", "-m", "0640", "/etc/machine-id", file)
    running.run("touch", "-d", "2001-01-01", file)
    before = running.run("stat", "-c", "%a %s %U %Y", file) + running.run("cat", file)
    for path, text in (
        ("/etc/hermesd/conf.d/permissions.toml.d/app.toml", '[reach]\nwritable_roots = ["/srv/app"]\n'),
        (
            "/etc/hermesd/conf.d/permissions.toml.d/quarantine.toml",
            '[quarantine]\nfolder = "/mnt/spare/hermesd"\n',
        ),
        (
            "/etc/systemd/system/hermesd-executor.service.d/paths.conf",
            "[Service]\nReadWritePaths=/srv/app /mnt/spare/hermesd\n",
        ),
    ):
        running.run("mkdir", "-p", str(Path(path).parent))
        running.run("sh", "-c", f"printf '%s' '{text}' > {path}")
    running.run("systemctl", "daemon-reload")
    running.run("systemctl", "restart", "hermesd-executor", "hermesd")
    running.run(*python, "-m", "hermesd.ctl", "ask", "--no-wait", "clean up /srv/app")
    operation, outcome, text = running.run(*python, "-c", APPROVE).split(" ", 2)
    assert outcome == "succeeded", text
    assert "can be undone for 72 h" in text
    assert running.run("ls", "/srv/app/cache") == ""
    running.run(*python, "-m", "hermesd.ctl", "undo", operation, "--no-wait")
    assert running.run(*python, "-c", APPROVE).split(" ", 2)[1] == "succeeded"
    assert running.run("stat", "-c", "%a %s %U %Y", file) + running.run("cat", file) == before


def test_a_reload_takes_the_new_files_and_a_wrong_one_changes_nothing(running):
    running.run("systemctl", "reload", "hermesd")
    running.until(lambda: running.shown("hermesd", "StatusText").startswith("reloaded"), "reloaded")
    running.run("sh", "-c", "echo 'no_such_key = 1' > /etc/hermesd/conf.d/rules/wrong.toml")
    running.run("systemctl", "reload", "hermesd", check=False)
    refused = "reload refused, the old configuration stays"
    running.until(lambda: running.shown("hermesd", "StatusText") == refused, refused)
    assert "wrong.toml" in running.journal()
    assert running.shown("hermesd", "ActiveState") == "active"


def test_a_wrong_file_at_the_start_is_not_tried_again(running):
    running.run("systemctl", "stop", "hermesd")
    running.run("sh", "-c", "echo 'no_such_key = 1' > /etc/hermesd/conf.d/rules/wrong.toml")
    running.run("systemctl", "start", "hermesd", check=False)
    running.until(lambda: running.shown("hermesd", "ActiveState") == "failed", "failed")
    assert running.shown("hermesd", "ExecMainStatus") == "78"
    assert running.shown("hermesd", "NRestarts") == "0"


@pytest.mark.parametrize("unit", ["hermesd", "hermesd-executor"])
def test_a_process_that_hangs_is_ended_by_the_watchdog_and_started_again(running, unit):
    hung = running.shown(unit, "MainPID")
    running.run("kill", "-STOP", hung)

    def again():
        return (
            running.shown(unit, "MainPID") not in ("0", hung)
            and running.shown(unit, "ActiveState") == "active"
        )

    running.until(again, f"{unit} is started again", 40)


def test_a_stop_is_clean_and_within_its_budget(running):
    began = time.monotonic()
    running.run("systemctl", "stop", "hermesd", "hermesd-executor")
    assert time.monotonic() - began < 20
    for unit in ("hermesd", "hermesd-executor"):
        assert running.shown(unit, "Result") == "success", running.journal()


HELPERS = """
[reach]
writable_roots = ["/srv/app", "/srv/rooted"]
[helpers.web-restart]
command = "unit:restart"
args = { unit = "web.service" }
[helpers.web-reload]
command = "unit:reload"
args = { unit = "web.service" }
[helpers.slow-restart]
command = "unit:restart"
args = { unit = "slow.service" }
[helpers.broken-reset]
command = "unit:reset_failed"
args = { unit = "broken.service" }
[helpers.journal]
command = "journal:vacuum"
args = { keep_mb = 50 }
[helpers.packages]
command = "package:clean_cache"
[helpers.web-logs]
command = "log:rotate"
args = { name = "web" }
[helpers.rooted]
command = "fs:cleanup"
args = { path = "/srv/rooted/cache" }
"""
WEB = """
[Service]
ExecStart=/usr/bin/sleep infinity
ExecReload=/usr/bin/touch /run/web-reloaded
"""
SLOW = """
[Service]
ExecStartPre=/bin/sh -c 'echo started >> /run/slow-starts; sleep 4'
ExecStart=/usr/bin/sleep infinity
"""
ROTATION = "/var/log/web.log {\n  rotate 2\n  create 0640 hermesd hermesd\n}\n"
# As the agent asks, and as a person confirms; what is run between seeing and confirming is `between`.
ASK = """
import sys, json
from pathlib import Path
from hermesd.ipc.client import BlockingClient
request_id, command, args = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
request = dict(request_id=request_id, task_id="t1", intent="a test", command=command, args=args)
with BlockingClient(Path("/run/hermesd-executor/agent.sock"), 60) as client:
    *_, last = client.ask("command.request", request, "t1")
print(json.dumps(last["payload"]))
"""
CONFIRM = """
import subprocess, sys, time
from pathlib import Path
from hermesd.ipc.client import BlockingClient

def ask(kind, **payload):
    with BlockingClient(Path("/run/hermesd-executor/operator.sock"), 60) as client:
        *_, last = client.ask(kind, payload)
    return last["payload"]

end = time.monotonic() + 20
while not (waiting := ask("approvals")["operations"]) and time.monotonic() < end:
    time.sleep(0.05)
shown = ask("approve.show", id=waiting[0]["id"])
subprocess.run(["/bin/sh", "-c", sys.argv[1]], check=True)
ask("approve.redeem", id=shown["id"], token=shown["token"], second=shown["second_word"])
print(shown["text"])
"""
PYTHON = ["env", "PYTHONPATH=/opt/checkout:/opt/site", "/usr/bin/python3"]
NOBODY = ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups"]
AGENT = ["setpriv", "--reuid=hermesd", "--regid=hermesd", "--clear-groups"]
HERMESD = ["-m", "hermesd", "--conf", "/opt/checkout/conf.d", "--conf", "/etc/hermesd/conf.d"]


def put(machine, path, text):
    machine.run("mkdir", "-p", str(Path(path).parent))
    machine.run("sh", "-c", 'printf %s "$0" > "$1"', text, path)


@pytest.fixture(scope="module")
def installed(machine):
    """A machine whose administrator installed helpers, by what the page about them says."""
    put(machine, "/etc/hermesd/conf.d/permissions.toml.d/zz-helpers.toml", HELPERS)
    put(machine, "/etc/systemd/system/web.service", WEB)
    put(machine, "/etc/systemd/system/slow.service", SLOW)
    put(machine, "/etc/systemd/system/broken.service", "[Service]\nExecStart=/usr/bin/false\n")
    machine.run("systemctl", "start", "hermesd-executor")
    said = machine.run(*PYTHON, *HERMESD, "units", "sync")
    for command in [line.split() for line in said.splitlines() if line.startswith("  systemctl ")]:
        machine.run(*command)
    machine.run("systemctl", "start", "web")
    yield machine
    machine.run("rm", "/etc/hermesd/conf.d/permissions.toml.d/zz-helpers.toml")
    machine.run(*PYTHON, *HERMESD, "units", "sync")
    machine.run("systemctl", "daemon-reload")


@pytest.fixture
def helped(installed):
    """The executor with its helpers; the agent is stopped, since the test asks in its place."""
    installed.run("systemctl", "stop", "hermesd")
    installed.run("systemctl", "start", "hermesd-executor")
    return installed


def asking(machine, request_id, command, **args):
    """Ask as the agent, and wait for the answer in another process."""
    ask = [*machine._docker, "exec", machine.name, *AGENT, *PYTHON, "-c", ASK]
    return subprocess.Popen([*ask, request_id, command, json.dumps(args)], stdout=subprocess.PIPE)


def confirmed(machine, request_id, command, between="true", **args):
    """Ask as the agent and confirm as root; return the result and what the person was shown."""
    with asking(machine, request_id, command, **args) as asked_for:
        try:
            shown = machine.run(*PYTHON, "-c", CONFIRM, between)
            return json.loads(asked_for.communicate(timeout=60)[0]), shown
        finally:
            asked_for.kill()


def test_a_unit_is_restarted_and_reloaded_by_its_helper_after_a_person_saw_its_state(helped):
    before = helped.shown("web", "MainPID")
    result, shown = confirmed(helped, "h.1", "unit:restart", unit="web.service")
    assert result["status"] == "succeeded", result
    assert "web.service: active (running)" in shown
    assert "systemctl --no-ask-password --no-pager restart -- web.service as root" in shown
    assert helped.shown("web", "MainPID") not in ("0", before)
    result, _shown = confirmed(helped, "h.2", "unit:reload", unit="web.service")
    assert result["status"] == "succeeded", result
    helped.run("test", "-e", "/run/web-reloaded")


def test_a_failure_is_forgotten_by_its_helper(helped):
    helped.run("systemctl", "start", "broken")
    helped.until(lambda: helped.shown("broken", "ActiveState") == "failed", "failed")
    result, shown = confirmed(helped, "h.3", "unit:reset_failed", unit="broken.service")
    assert result["status"] == "succeeded", result
    assert "broken.service: failed" in shown
    assert helped.shown("broken", "ActiveState") == "inactive"


def test_an_executor_that_is_killed_amid_a_helpers_work_does_not_know_and_does_not_ask_again(helped):
    with asking(helped, "h.10", "unit:restart", unit="slow.service") as asked_for:
        confirming = [*helped._docker, "exec", helped.name, *PYTHON, "-c", CONFIRM, "true"]
        with subprocess.Popen(confirming, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as person:
            helped.until(lambda: helped.shown("slow", "ActiveState") == "activating", "it is restarted")
            helped.run("kill", "-9", helped.shown("hermesd-executor", "MainPID"))
            person.wait(30)
        asked_for.kill()
    helped.until(lambda: helped.shown("hermesd-executor", "ActiveState") == "active", "it is there again")
    with asking(helped, "h.10", "unit:restart", unit="slow.service") as again:
        result = json.loads(again.communicate(timeout=30)[0])
    assert result["status"] == "unknown", result
    helped.until(lambda: helped.shown("slow", "ActiveState") == "active", "the restart went on by itself")
    assert helped.run("cat", "/run/slow-starts") == "started\n"


def test_what_has_no_helper_is_a_ticket(helped):
    request = json.dumps({"unit": "dbus.service"})
    said = helped.run(*AGENT, *PYTHON, "-c", ASK, "h.4", "unit:restart", request)
    assert json.loads(said)["status"] == "ticketed"


def test_nobody_but_the_executor_reaches_a_helper(helped):
    connect = "import socket; socket.socket(socket.AF_UNIX).connect('/run/hermesd-do/web-restart.sock')"
    for who in (NOBODY, AGENT):
        said = helped.run(*who, "/usr/bin/python3", "-c", connect, check=False)
        assert "PermissionError: [Errno 13]" in said, said
    assert helped.run("stat", "-c", "%U:%G %a", "/run/hermesd-do/web-restart.sock").split() == [
        "root:hermesd-executor",
        "660",
    ]


def test_a_removal_in_a_folder_of_root_takes_what_was_shown_and_skips_what_was_swapped(helped):
    for name in ("a.tmp", "b.tmp", "kept.txt"):
        put(helped, f"/srv/rooted/cache/deep/{name}", "x" * 5000)
    put(helped, "/srv/rooted/precious", "not yours")
    helped.run("sh", "-c", "touch -d 2001-01-01 /srv/rooted/cache/deep/*")
    helped.run("sh", "-c", "cd /srv/rooted/cache/deep; chmod 0640 *; mv kept.txt live.log")
    swap = "ln -sf /srv/rooted/precious /srv/rooted/cache/deep/b.tmp"
    result, shown = confirmed(
        helped, "h.5", "fs:cleanup", swap, path="/srv/rooted/cache", kinds=["temporary"], older_than_s=0
    )
    assert result["status"] == "succeeded", result
    assert "2 files under /srv/rooted/cache" in shown
    assert (result["gain"]["files_removed"], result["gain"]["files_skipped"]) == (1, 1)
    assert helped.run("ls", "/srv/rooted/cache/deep").split() == ["b.tmp", "live.log"]
    assert helped.run("cat", "/srv/rooted/precious") == "not yours"


def test_the_journal_is_vacuumed_the_package_cache_cleaned_and_one_log_rotated(helped, needs):
    result, _shown = confirmed(helped, "h.6", "journal:vacuum", keep_mb=50)
    assert result["status"] == "succeeded", result
    assert "Vacuuming done" in result["output"] or "freed" in result["output"], result
    put(helped, "/var/cache/apt/archives/old_1.0_all.deb", "x")
    put(helped, "/var/cache/apt/archives/partial/part.deb", "x")
    helped.run("chown", "-R", "nobody", "/var/cache/apt/archives/partial")
    helped.run("chmod", "0700", "/var/cache/apt/archives/partial")
    result, _shown = confirmed(helped, "h.7", "package:clean_cache")
    assert result["status"] == "succeeded", result
    assert helped.run("sh", "-c", "find /var/cache/apt/archives -name '*.deb'") == ""
    needs(Path("/usr/sbin/logrotate").exists(), "logrotate (Debian package logrotate)")
    put(helped, "/etc/logrotate.d/web", ROTATION)
    put(helped, "/var/log/web.log", "a line\n")
    helped.run("mkdir", "-p", "/var/lib/logrotate")
    result, _shown = confirmed(helped, "h.8", "log:rotate", name="web")
    assert result["status"] == "succeeded", result
    assert helped.run("cat", "/var/log/web.log.1") == "a line\n"
    assert helped.run("stat", "-c", "%U %a %s", "/var/log/web.log").split() == ["hermesd", "640", "0"]


def test_a_helper_is_exposed_little_as_the_running_systemd_judges_it(helped):
    for unit in ("web-restart", "rooted", "packages", "web-logs"):
        said = helped.run("systemd-analyze", "security", "--no-pager", f"hermesd-do-{unit}@1.service")
        found = re.search(r"exposure level for \S+: ([\d.]+)", said)
        assert found, said
        assert float(found[1]) <= 1.6, said


def test_check_says_which_file_is_not_what_the_policy_says(helped):
    unit = "/etc/systemd/system/hermesd-do-packages@.service"
    assert "hermesd-do" not in helped.run(*PYTHON, *HERMESD, "check", check=False)
    helped.run("sed", "-i", "s/apt-get clean/apt-get check/", unit)
    assert f"{unit} is not what permissions.toml says" in helped.run(*PYTHON, *HERMESD, "check", check=False)
    helped.run("systemctl", "daemon-reload")
    result, _shown = confirmed(helped, "h.9", "package:clean_cache")
    assert result["status"] == "failed", result
    assert "installed for something else" in result["reason"]
    helped.run(*PYTHON, *HERMESD, "units", "sync")
    helped.run("systemctl", "daemon-reload")
