"""What a file of `kind = "units"` may say: which of systemd's units are watched, and how often.

This module must never reach the bus: it says what is wanted.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from hermesd.sources.settings_base import NamedSource


class UnitsSettings(NamedSource):
    """`kind = "units"`: failed units, services that systemd starts again and again, a clock that is not kept.

    ``only`` and ``exclude`` are units' names or shell patterns; ``exclude`` wins. What is wrong is told
    again each ``refresh_s``.
    """

    kind: Literal["units"]
    interval_s: float = Field(default=30.0, ge=0.2, le=86_400)
    refresh_s: float = Field(default=300.0, ge=0.2)
    only: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    clock: bool = True
