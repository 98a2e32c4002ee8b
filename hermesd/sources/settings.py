"""What `conf.d/sources/*.toml` may say: one model for each kind of source.

A file names its `kind`; the rest of it is read by that kind's model, and anything that the model
does not know is a fault with its line. This module must never read a secret or touch the network:
it says what is wanted, and nothing is opened here.
"""

from __future__ import annotations

from typing import Final, Literal

from hermesd.confd import ConfigError, Document
from hermesd.sources.settings_base import RESERVED, Secret, Settings
from hermesd.sources.settings_health import Check, HealthSettings
from hermesd.sources.settings_host import Filesystems, Folder, HostSettings, Level
from hermesd.sources.settings_mqtt import MqttSettings, Topic
from hermesd.sources.settings_units import UnitsSettings
from hermesd.sources.settings_webhook import WebhookSettings

__all__ = [
    "RESERVED",
    "BuiltIn",
    "Check",
    "Filesystems",
    "Folder",
    "HealthSettings",
    "HostSettings",
    "Level",
    "MqttSettings",
    "Secret",
    "SourceSettings",
    "Topic",
    "UnitsSettings",
    "WebhookSettings",
    "read_source",
]


class BuiltIn(Settings):
    """A source of the daemon's own, which no file names: it is there when something needs it."""

    name: str
    kind: Literal["schedule", "deadman"]
    enabled: bool = True


Named = HostSettings | MqttSettings | WebhookSettings | HealthSettings | UnitsSettings
SourceSettings = Named | BuiltIn

_KINDS: Final[dict[str, type[Named]]] = {
    "host": HostSettings,
    "mqtt": MqttSettings,
    "webhook": WebhookSettings,
    "health": HealthSettings,
    "units": UnitsSettings,
}


def read_source(document: Document) -> SourceSettings:
    """Return the settings that the file gives. Raise ConfigError with file and line."""
    kind = document.data.get("kind")
    model = _KINDS.get(kind) if isinstance(kind, str) else None
    if model is None:
        wanted = ", ".join(_KINDS)
        raise ConfigError([document.fault(("kind",), f"kind: want one of {wanted}")])
    return document.read(model, {"name": document.name, **document.data})
