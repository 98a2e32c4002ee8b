"""The agent's configuration: read `conf.d/`, validate all of it, freeze it, replace it as a whole.

Each part defines its own models (a rule in `rules`, a source in `sources`, a runbook in `agent`);
here they are only gathered. A load either returns a complete `Config` or raises ConfigError with
every fault it found: at start nothing runs then, on reload the old one stays.

This module must never supply a default that a file could silently fail to set, and never reads
the executor's permissions: how far anything may reach is not the agent's to know.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from hermesd.agent.runbook import Runbook
from hermesd.agent.settings import ModelSettings
from hermesd.clocks import StageBudgets
from hermesd.confd import ConfigError, Document, Fault, named, read_file, read_folder
from hermesd.protocol import describe
from hermesd.rules.maintenance import Maintenance, MaintenanceFile
from hermesd.rules.rule import Rule
from hermesd.sources.schedule_file import Schedule
from hermesd.sources.settings import BuiltIn, SourceSettings, read_source

DAEMON_SECTIONS: Final = frozenset({"stages", "limits", "agent", "executor", "model"})

M = TypeVar("M", bound=BaseModel)


class Limits(BaseModel):
    """`[limits]` of daemon.toml: what bounds a run and what is kept. Figures are the design's."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    max_rounds: int = Field(default=10, ge=1, le=100)
    max_actions: int = Field(default=15, ge=1, le=200)
    malformed_answers: int = Field(default=5, ge=1)
    refused_plans: int = Field(default=3, ge=1)
    repeated_actions: int = Field(default=3, ge=1)
    repeated_thoughts: int = Field(default=3, ge=2)
    max_tokens: int = Field(default=100_000, ge=0)
    max_cost: float = Field(default=0.0, ge=0)
    network_retries: int = Field(default=2, ge=0)
    parallel_runs: int = Field(default=4, ge=1, le=64)
    inbox_events: int = Field(default=100_000, ge=100)
    event_days: int = Field(default=30, ge=1)


class AgentSettings(BaseModel):
    """`[agent]` of daemon.toml: where the agent process lives and who may steer it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    state_dir: str = "/var/lib/hermesd"
    control_socket: str = "/run/hermesd/control.sock"
    executor_socket: str = "/run/hermesd-executor/agent.sock"
    operator_group: str = "hermesd-operators"
    operator_uids: tuple[int, ...] = ()
    language: str = Field(default="en", pattern="^(en|zh)$")
    log_level: str = Field(default="info", pattern="^(debug|info|warning|error)$")

    @property
    def store_file(self) -> Path:
        """Where the store of the agent process is."""
        return Path(self.state_dir) / "state.sqlite3"


@dataclass(frozen=True, slots=True)
class Config:
    """All that the agent process runs by. ``digest`` names this content; a run keeps its own."""

    digest: str
    stages: StageBudgets
    limits: Limits
    agent: AgentSettings
    model: ModelSettings
    sources: tuple[SourceSettings, ...]
    rules: tuple[Rule, ...]
    runbooks: Mapping[str, Runbook]
    schedules: tuple[Schedule, ...] = ()
    maintenance: tuple[Maintenance, ...] = ()


def load_config(layers: Sequence[Path], environ: Mapping[str, str] | None = None) -> Config:
    """Read every file of the agent. Raise ConfigError with all faults.

    ``environ`` gives the model's `MODEL_NAME`, `API_BASE`, `API_KEY` and `CREDENTIALS_DIRECTORY`.
    """
    faults: list[Fault] = []
    documents: list[Document] = []

    def gather(read: Callable[[], list[Document]]) -> list[Document]:
        try:
            found = read()
        except ConfigError as error:
            faults.extend(error.faults)
            return []
        documents.extend(found)
        return found

    daemon = next(iter(gather(lambda: _one(layers, "daemon.toml"))), None)
    sections = _sections(daemon, faults)
    stages = _section(daemon, sections, "stages", StageBudgets, faults)
    limits = _section(daemon, sections, "limits", Limits, faults)
    agent = _section(daemon, sections, "agent", AgentSettings, faults)
    model = _section(daemon, sections, "model", ModelSettings, faults)
    sources = _each(gather(lambda: read_folder(layers, "sources")), read_source, faults)
    rules = _each(gather(lambda: read_folder(layers, "rules")), lambda file: named(file).read(Rule), faults)
    runbooks = _each(
        gather(lambda: read_folder(layers, "runbooks")), lambda file: named(file).read(Runbook), faults
    )
    schedules = _each(
        gather(lambda: read_folder(layers, "schedules")), lambda file: named(file).read(Schedule), faults
    )
    windows = gather(lambda: _one(layers, "maintenance.toml"))
    maintenance = next(iter(_each(windows, lambda file: file.read(MaintenanceFile), faults)), None)
    model = _with_environment(model or ModelSettings(), os.environ if environ is None else environ, faults)
    faults.extend(_names_given_twice(documents))
    wanted: list[_Mention] = [
        (rule.name, "rules", ("run", "runbook"), rule.run.runbook) for rule in rules if rule.run
    ]
    wanted += [(schedule.name, "schedules", ("runbook",), schedule.runbook) for schedule in schedules]
    faults.extend(_dangling_runbooks(documents, wanted, runbooks))
    faults.extend(_dangling_inhibitions(documents, rules))
    if faults:
        raise ConfigError(faults)
    return Config(
        digest=_digest(documents),
        stages=stages or StageBudgets(),
        limits=limits or Limits(),
        agent=agent or AgentSettings(),
        model=model,
        sources=(*sources, *_built_in(schedules)),
        rules=tuple(rules),
        runbooks={runbook.name: runbook for runbook in runbooks},
        schedules=tuple(schedules),
        maintenance=maintenance.window if maintenance else (),
    )


def _built_in(schedules: Sequence[Schedule]) -> list[BuiltIn]:
    """Return the sources that no file of `sources/` names: they are there when something needs them."""
    found = [BuiltIn(name="deadman", kind="deadman")]  # always: who is not expected any more is told too
    if any(one.enabled for one in schedules):
        found.append(BuiltIn(name="schedule", kind="schedule"))
    return found


def _one(layers: Sequence[Path], name: str) -> list[Document]:
    document = read_file(layers, name)
    return [document] if document else []


def _sections(daemon: Document | None, faults: list[Fault]) -> dict[str, Any]:
    if daemon is None:
        return {}
    faults.extend(
        daemon.fault((name,), f"{name}: there is no such section")
        for name in daemon.data
        if name not in DAEMON_SECTIONS
    )
    return daemon.data


def _section(
    daemon: Document | None, data: dict[str, Any], name: str, model: type[M], faults: list[Fault]
) -> M | None:
    if daemon is None or name not in data:
        return None
    try:
        return daemon.read(model, data[name], (name,))
    except ConfigError as error:
        faults.extend(error.faults)
        return None


def _with_environment(model: ModelSettings, environ: Mapping[str, str], faults: list[Fault]) -> ModelSettings:
    try:
        return model.with_environment(environ, _read_credential)
    except ValidationError as error:
        faults.append(Fault(Path("environment"), 0, f"the model's settings: {describe(error)}"))
        return model


T = TypeVar("T")


def _each(documents: list[Document], read: Callable[[Document], T], faults: list[Fault]) -> list[T]:
    values: list[T] = []
    for document in documents:
        try:
            values.append(read(document))
        except ConfigError as error:
            faults.extend(error.faults)
    return values


def _names_given_twice(documents: list[Document]) -> list[Fault]:
    """Find files of one folder that claim the same name: one of them would silently stand for both."""
    faults: list[Fault] = []
    first: dict[tuple[str, str], str] = {}
    for document in documents:
        name = str(document.data.get("name", document.name))
        known = first.setdefault((document.path.parent.name, name), document.path.name)
        if known != document.path.name:
            faults.append(document.fault(("name",), f"name: {name!r} is the name of {known} already"))
    return faults


_Mention = tuple[str, str, tuple[str, ...], str]
"""Who mentions a runbook (name and folder), at which key, and which runbook."""


def _dangling_runbooks(
    documents: list[Document], wanted: Sequence[_Mention], runbooks: list[Runbook]
) -> list[Fault]:
    """Find mentions of runbooks that do not exist."""
    known = {runbook.name for runbook in runbooks}
    files = {(file.path.parent.name, file.data.get("name", file.name)): file for file in documents}
    return [
        files[folder, name].fault(key, f"{'.'.join(key)}: there is no runbook {runbook!r}")
        for name, folder, key, runbook in wanted
        if runbook and runbook not in known
    ]


def _dangling_inhibitions(documents: list[Document], rules: list[Rule]) -> list[Fault]:
    """Find rules that are to be inhibited by a rule that is not there: they would never be."""
    known = {rule.name for rule in rules}
    files = {
        document.data.get("name", document.name): document
        for document in documents
        if document.path.parent.name == "rules"
    }
    return [
        files[rule.name].fault(("inhibit", number, "by"), f"inhibit.by: there is no rule {entry.by!r}")
        for rule in rules
        for number, entry in enumerate(rule.inhibit)
        if entry.by not in known
    ]


def _digest(documents: list[Document]) -> str:
    digest = hashlib.sha256()
    for document in documents:
        for _path, text in document.texts:
            digest.update(text.encode())
            digest.update(b"\0")
    return digest.hexdigest()[:16]


def _read_credential(folder: str, name: str) -> str | None:
    """Return a systemd credential's text, None when there is none."""
    try:
        return (Path(folder) / name).read_text(encoding="utf-8").strip()
    except OSError:
        return None
