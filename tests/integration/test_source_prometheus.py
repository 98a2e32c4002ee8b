"""A real Prometheus with the alerts that users have, and a real Alertmanager, in front of the webhook."""

import asyncio
import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from hermesd.sources.settings import Secret, WebhookSettings
from hermesd.sources.settings_webhook import Basic
from hermesd.sources.webhook import WebhookSource
from hermesd.telemetry import Metrics

pytestmark = pytest.mark.slow

ALERTS = Path(__file__).parents[1] / "data" / "prometheus" / "host-alerts.yml"
SECONDS = 40


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as found:
        return found.getsockname()[1]


class Host:
    """What a node exporter would say of two units, as the test wills it."""

    def __init__(self):
        self.failed = set()
        self.port = 0

    async def metrics(self, _request):
        lines = [
            f'node_systemd_unit_state{{name="{name}",state="failed"}} {int(name in self.failed)}'
            for name in ("nginx.service", "postgresql.service")
        ]
        return web.Response(text="\n".join(lines) + "\n")

    @contextlib.asynccontextmanager
    async def serving(self):
        application = web.Application()
        application.router.add_get("/metrics", self.metrics)
        runner = web.AppRunner(application, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        self.port = runner.addresses[0][1]
        try:
            yield
        finally:
            await runner.cleanup()


class Inbox:
    """Keeps events by their key of idempotency, and what each delivery had."""

    def __init__(self):
        self.events = {}
        self.deliveries = []
        self.changed = asyncio.Event()

    async def deliver(self, events):
        self.events |= {(one.source, one.id): one for one in events}
        self.deliveries.append(events)
        self.changed.set()

    async def until(self, condition):
        async with asyncio.timeout(SECONDS):
            while not condition():
                self.changed.clear()
                await self.changed.wait()

    def of(self, unit, status):
        return [
            one for one in self.events.values() if one.labels.get("name") == unit and one.status == status
        ]


@contextlib.contextmanager
def program(folder, *argv):
    with (folder / f"{argv[0]}.log").open("wb") as log:
        process = subprocess.Popen(argv, cwd=folder, stdout=log, stderr=log)
    try:
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextlib.asynccontextmanager
async def served(source, inbox):
    task = asyncio.create_task(source.run(inbox.deliver))
    try:
        async with asyncio.timeout(5):
            await source.listening.wait()
        yield
    finally:
        task.cancel()
        await asyncio.wait({task})


def configure(folder, host, webhook_port):
    """Write both configurations; return the ports of Prometheus and of Alertmanager."""
    prometheus, alertmanager = free_port(), free_port()
    shutil.copy(ALERTS, folder / "host-alerts.yml")
    route = {
        "receiver": "hermesd",
        "group_by": ["alertname"],
        "group_wait": "1s",
        "group_interval": "1s",
        "repeat_interval": "2s",
    }
    hook = {
        "url": f"http://127.0.0.1:{webhook_port}/alertmanager",
        "send_resolved": True,
        "http_config": {"basic_auth": {"username": "am", "password": "s3cret"}},
    }
    receivers = [{"name": "hermesd", "webhook_configs": [hook]}]
    (folder / "am.yml").write_text(json.dumps({"route": route, "receivers": receivers}))
    targets = [{"static_configs": [{"targets": [f"127.0.0.1:{alertmanager}"]}]}]
    scraped = {"job_name": "node", "static_configs": [{"targets": [f"127.0.0.1:{host.port}"]}]}
    settings = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s", "external_labels": {"site": "lab"}},
        "alerting": {"alertmanagers": targets},
        "rule_files": ["host-alerts.yml"],
        "scrape_configs": [scraped],
    }
    (folder / "prom.yml").write_text(json.dumps(settings))
    return prometheus, alertmanager


async def loaded_rules(port):
    """Return how many alerts the running Prometheus has, once it answers."""
    async with aiohttp.ClientSession() as session, asyncio.timeout(SECONDS):
        while True:
            with contextlib.suppress(aiohttp.ClientError, KeyError):
                async with session.get(f"http://127.0.0.1:{port}/api/v1/rules") as answer:
                    groups = (await answer.json())["data"]["groups"]
                    if groups:
                        return sum(len(group["rules"]) for group in groups)
            await asyncio.sleep(0.1)


async def test_real_alerts_fire_group_repeat_and_resolve_and_each_is_one_event(tmp_path, needs):
    needs(shutil.which("prometheus"), "prometheus")
    needs(shutil.which("prometheus-alertmanager"), "prometheus-alertmanager")
    (tmp_path / "password").write_text("s3cret")
    basic = Basic(username="am", password=Secret(file=str(tmp_path / "password")))
    settings = WebhookSettings(kind="webhook", name="alerts", port=0, basic=basic)
    source = WebhookSource(settings, Metrics(), environ=dict(os.environ))
    host, inbox = Host(), Inbox()
    async with host.serving(), served(source, inbox):
        prometheus, alertmanager = configure(tmp_path, host, source.port)
        with (
            program(
                tmp_path,
                "prometheus-alertmanager",
                "--config.file=am.yml",
                "--storage.path=am",
                f"--web.listen-address=127.0.0.1:{alertmanager}",
                "--cluster.listen-address=",
            ),
            program(
                tmp_path,
                "prometheus",
                "--config.file=prom.yml",
                "--storage.tsdb.path=prom",
                f"--web.listen-address=127.0.0.1:{prometheus}",
            ),
        ):
            assert await loaded_rules(prometheus) == 35

            host.failed = {"nginx.service"}
            await inbox.until(lambda: inbox.of("nginx.service", "firing"))
            (fired,) = inbox.of("nginx.service", "firing")
            assert (fired.type, fired.labels["alertname"]) == (
                "alertmanager.alert",
                "HostSystemdServiceCrashed",
            )
            assert (fired.labels["site"], fired.severity) == ("lab", "warning")
            assert "Host systemd service crashed" in fired.text

            host.failed |= {"postgresql.service"}
            await inbox.until(lambda: inbox.of("postgresql.service", "firing"))
            await inbox.until(lambda: any(len(events) == 2 for events in inbox.deliveries))

            sent = len(inbox.deliveries)
            await inbox.until(lambda: len(inbox.deliveries) >= sent + 2)
            assert len(inbox.events) == 2, "sent again it is no new event"

            host.failed = {"postgresql.service"}
            await inbox.until(lambda: inbox.of("nginx.service", "resolved"))
            assert inbox.of("postgresql.service", "resolved") == []
            assert len(inbox.events) == 3
