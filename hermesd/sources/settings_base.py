"""What the settings of every kind of source are built from: names, switches, places of secrets.

This module must never know a kind of source, and never open what it names.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from hermesd.events import Severity

SourceName = Annotated[str, StringConstraints(pattern=r"\A[a-z0-9][a-z0-9_-]{0,47}\z")]
AbsolutePath = Annotated[str, StringConstraints(pattern=r"\A/[^\x00]*\z")]
EventType = Annotated[str, StringConstraints(pattern=r"\A[A-Za-z0-9][A-Za-z0-9._/-]{0,127}\z")]

RESERVED: Final = frozenset({"schedule", "deadman", "hermesctl"})
"""Names under which the daemon itself tells events: no file may give one to a source."""


class Settings(BaseModel):
    """Frozen, and a fault for every key that it does not know."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Expect(Settings):
    """`[[expect]]`: the source, or a series of it, speaks at least every ``every_s``; else an event says so.

    A series has a ``name`` and is what `type`, `subject` and `labels` of an event say; without a name it is
    the whole source. ``grace_s`` is given on top, and once after each start.
    """

    name: SourceName | Literal[""] = ""
    every_s: float = Field(ge=1, le=31_536_000)
    grace_s: float = Field(default=60.0, ge=0, le=86_400)
    type: EventType | Literal[""] = ""
    subject: str = Field(default="", max_length=1024)
    labels: dict[str, str] = Field(default_factory=dict, max_length=16)
    severity: Severity = Severity.WARNING

    @model_validator(mode="after")
    def _a_series_is_named(self) -> Self:
        if (self.type or self.subject or self.labels) and not self.name:
            raise ValueError("expect: a series needs a name")
        return self


class NamedSource(Settings):
    """What every source has: a name (the file's, unless it says another), a switch, what is expected."""

    name: SourceName
    enabled: bool = True
    expect: tuple[Expect, ...] = ()

    @model_validator(mode="after")
    def _expectations_differ(self) -> Self:
        if len({one.name for one in self.expect}) < len(self.expect):
            raise ValueError("expect: two have the same name")
        return self

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
