"""Builds sources from their settings, and imports what each kind needs only when it is wanted.

aiohttp costs a fifth of a second and aiomqtt a tenth: a host that uses neither pays for neither.
This module must never start anything: the supervisor does.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType

from hermesd.sources.base import Source
from hermesd.sources.bulletin import Bulletin
from hermesd.sources.health_found import Found, no_commands
from hermesd.sources.host import HostSource
from hermesd.sources.probe import Probe
from hermesd.sources.sessions import Forgetful, Memory, Sessions
from hermesd.sources.settings import (
    BuiltIn,
    Check,
    HealthSettings,
    HostSettings,
    MqttSettings,
    SourceSettings,
    UnitsSettings,
)
from hermesd.sources.supervisor import Make
from hermesd.sources.zygote import Zygote
from hermesd.telemetry import Metrics


def source_maker(
    zygote: Zygote,
    host: str,
    metrics: Metrics,
    environ: Mapping[str, str],
    built_in: Mapping[str, Callable[[], Source]] = MappingProxyType({}),
    *,
    sessions: Sessions | None = None,
    bulletin: Bulletin | None = None,
    run_command: Callable[[Check], Awaitable[Found]] = no_commands,
    memory: Callable[[str], Memory] = Forgetful,
) -> Make:
    """Return the supervisor's ``make``. ``host`` labels events; ``environ`` names systemd's credentials.

    ``built_in`` makes the sources of the daemon's own, by their kind. ``bulletin`` is what those tell
    that speak to others too. ``run_command`` runs a health check's command through the gate;
    ``memory`` gives what a source remembers over restarts, by its name.
    """
    kept, news = sessions or Sessions(), bulletin or Bulletin()

    def make(settings: SourceSettings) -> Source:
        if isinstance(settings, BuiltIn):
            return built_in[settings.kind]()
        if isinstance(settings, HostSettings):
            return HostSource(settings, Probe(zygote), host, memory=memory(f"source.{settings.name}"))
        if isinstance(settings, MqttSettings):
            from hermesd.sources.mqtt import MqttSource  # noqa: PLC0415 - see above

            return MqttSource(settings, host, metrics, environ=environ, sessions=kept, bulletin=news)
        if isinstance(settings, UnitsSettings):
            from hermesd.sources.bus import SystemBus  # noqa: PLC0415 - see above
            from hermesd.sources.units import UnitsSource  # noqa: PLC0415 - see above

            return UnitsSource(settings, host, SystemBus, memory(f"source.{settings.name}"))
        if isinstance(settings, HealthSettings):
            from hermesd.sources.health import HealthSource  # noqa: PLC0415 - see above

            return HealthSource(settings, host, run_command=run_command)
        from hermesd.sources.webhook import WebhookSource  # noqa: PLC0415 - see above

        return WebhookSource(settings, metrics, environ=environ)

    return make
