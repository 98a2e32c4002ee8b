"""What the settings of every kind of source are built from: names, switches, places of secrets.

This module must never know a kind of source, and never open what it names.
"""

from __future__ import annotations

from typing import Annotated, Final, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

SourceName = Annotated[str, StringConstraints(pattern=r"\A[a-z0-9][a-z0-9_-]{0,47}\z")]
AbsolutePath = Annotated[str, StringConstraints(pattern=r"\A/[^\x00]*\z")]
EventType = Annotated[str, StringConstraints(pattern=r"\A[A-Za-z0-9][A-Za-z0-9._/-]{0,127}\z")]

RESERVED: Final = frozenset({"schedule", "deadman", "hermesctl"})
"""Names under which the daemon itself tells events: no file may give one to a source."""


class Settings(BaseModel):
    """Frozen, and a fault for every key that it does not know."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class NamedSource(Settings):
    """What every source has: a name (the file's, unless it says another) and a switch."""

    name: SourceName
    enabled: bool = True

    @model_validator(mode="after")
    def _not_the_daemons_own(self) -> Self:
        if self.name in RESERVED:
            raise ValueError(f"{self.name} is a name of the daemon's own: events under it are told by itself")
        return self


class Secret(Settings):
    """Where a secret stands: a file, or a credential that systemd passes. Never the secret itself."""

    file: str = ""
    credential: str = Field(default="", pattern=r"^[A-Za-z0-9_.-]*$")

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        if bool(self.file) == bool(self.credential):
            raise ValueError("a secret stands either in a file or in a credential: name exactly one")
        return self
