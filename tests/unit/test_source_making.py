import subprocess
import sys

import pytest

from hermesd.sources.making import source_maker
from hermesd.sources.settings import (
    Check,
    HealthSettings,
    HostSettings,
    MqttSettings,
    Topic,
    WebhookSettings,
)
from hermesd.telemetry import Metrics


@pytest.mark.parametrize(
    "settings",
    [
        HostSettings(kind="host", name="h"),
        MqttSettings(kind="mqtt", name="m", topic=(Topic(filter="a"),)),
        WebhookSettings(kind="webhook", name="w"),
        HealthSettings(kind="health", name="c", check=(Check(name="x", url="http://x"),)),
    ],
)
def test_each_kind_of_settings_makes_a_source_of_its_name_and_kind(settings):
    source = source_maker(None, "web1", Metrics(), {})(settings)
    assert (source.name, source.kind) == (settings.name, settings.kind)


def test_a_host_that_uses_neither_http_nor_mqtt_loads_neither():
    script = """
import sys
from hermesd.sources.making import source_maker
from hermesd.sources.settings import HostSettings
from hermesd.telemetry import Metrics
source_maker(None, "h", Metrics(), {})(HostSettings(kind="host", name="h"))
print([name for name in ("aiohttp", "aiomqtt", "paho", "psutil") if name in sys.modules])
"""
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_forking_the_zygote_loads_nothing_that_holds_secrets_or_takes_long():
    script = """
import sys
import hermesd.sources.zygote
print([name for name in ("pydantic", "aiohttp", "asyncio", "psutil", "sqlite3") if name in sys.modules])
"""
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
