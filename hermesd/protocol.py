"""The words that both processes share: what may be asked, and what is answered.

The agent process and the executor trust each other with nothing but these shapes. Every model is
frozen, strict (no coercion: ``"12"`` is not ``12``) and refuses unknown fields, and bytes from a
peer become a model only through :func:`decode_envelope` and :func:`read_payload`, which refuse
duplicate keys, non-finite numbers and depth before pydantic sees them.

This module must never read a file, a clock or the environment, and must never grow behaviour:
it says what the words mean, and nothing of what is done with them.
"""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Annotated, Final, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError, model_validator

from hermesd.strict_json import MAX_DEPTH as MAX_DEPTH
from hermesd.strict_json import ProtocolError as ProtocolError
from hermesd.strict_json import check_json as check_json

PROTOCOL_VERSION: Final = 1

MAX_MESSAGE_BYTES: Final = 1 << 20
"""One envelope on the wire, newline included. A longer line is refused unread."""

Identifier = Annotated[str, Field(pattern=r"\A[A-Za-z0-9][A-Za-z0-9_.:-]{0,95}\z")]
CommandName = Annotated[str, Field(pattern=r"\A[a-z][a-z0-9_]{0,31}:[a-z][a-z0-9_]{0,31}\z")]
ArgumentName = Annotated[str, Field(pattern=r"\A[a-z][a-z0-9_]{0,31}\z")]


class Word(BaseModel):
    """Base of every shape that crosses the wall: frozen, strict, nothing unknown."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")


class Status(StrEnum):
    """Where the work that an envelope speaks of stands."""

    CREATED = "created"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"


class Stage(StrEnum):
    """The timed parts of a run, in the order in which they first occur."""

    RECEIVE = "receive"
    BRIEF = "brief"
    PLAN = "plan"
    VALIDATE = "validate"
    CONFIRM = "confirm"
    PREPARE = "prepare"
    EXECUTE = "execute"
    REVIEW = "review"
    REPORT = "report"


class StageOutcome(StrEnum):
    """How one occurrence of a stage ended. A clock that ran out is ``timeout``, never ``failed``."""

    OK = "ok"
    REFUSED = "refused"
    FAILED = "failed"
    TIMEOUT = "timeout"
    CANCELLED = "cancelled"


class RunKind(StrEnum):
    """What started a run. Roles are given to kinds, so this is part of what may be done."""

    EVENT = "event"
    SCHEDULE = "schedule"
    PERSON = "person"


class Effect(StrEnum):
    """What a command does to the world. Only ``read`` may ever run without a person's word."""

    READ = "read"
    CHANGE = "change"
    DESTROY = "destroy"
    SEND = "send"


class Permission(StrEnum):
    """Who decides that a command runs: nobody (public), a person (internal), only a person's own hands."""

    PUBLIC = "public"
    INTERNAL = "internal"
    CONFIDENTIAL = "confidential"


class ResultStatus(StrEnum):
    """How a CommandRequest ended. Exactly one of these; each has its own words for people."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"  # it ran and said no: an exit status other than 0
    REFUSED = "refused"  # the gate stopped it before anything happened
    DENIED = "denied"  # a person said no
    EXPIRED = "expired"  # nobody decided within the life of a pending operation
    PLAN_CHANGED = "plan_changed"  # the world no longer is what the person was shown
    UNDELIVERABLE = "undeliverable"  # there is nobody who could be asked
    TAKEN_OVER = "taken_over"  # a person has the run or its target: nothing is changed there
    TICKETED = "ticketed"  # only a person may do it: it waits in the queue
    TIMED_OUT = "timed_out"  # a stage's clock ran out; see `stages`
    UNAVAILABLE = "unavailable"  # no usable sandbox, or the executor cannot be reached
    CANCELLED = "cancelled"  # a person or the run's end withdrew it before its effect
    UNKNOWN = "unknown"  # a crash fell between intent and result; never run again by itself


class Envelope(Word):
    """Every message between parts. ``anchor`` is the head of the sender's audit log (``seq:hash``).

    Carrying the head on every message anchors each process's log in the other's: a log whose tail
    was cut no longer contains what its peer has written down.
    """

    version: int = Field(default=PROTOCOL_VERSION, ge=PROTOCOL_VERSION, le=PROTOCOL_VERSION)
    task_id: Identifier
    sender: Identifier
    receiver: Identifier
    kind: Identifier
    payload: dict[str, JsonValue] = Field(default_factory=dict)
    status: Status = Status.CREATED
    anchor: str = Field(default="", max_length=96)


class StageTiming(Word):
    """One occurrence of a stage. ``ms`` is wall time; ``budget_ms`` is what its clock allowed."""

    name: Stage
    round: int = Field(ge=0)
    ms: float = Field(ge=0)
    budget_ms: int = Field(ge=0)
    outcome: StageOutcome


class CommandRequest(Word):
    """The only way to act: a command of the catalogue, by name, with typed arguments.

    ``request_id`` is chosen by the asker and is run at most once, ever: sent again, it is answered
    with what became of it. ``timeout_ms`` may shorten the command's own limit and never lengthens it.
    ``extra_confirmations`` only raises what the executor asks for by itself. ``origin`` is the kind of
    the run and ``asked_by`` the uid of the person behind it, if there is one: roles go by them.
    """

    request_id: Identifier
    task_id: Identifier
    intent: str = Field(min_length=1, max_length=500)
    command: CommandName
    args: dict[ArgumentName, JsonValue] = Field(default_factory=dict, max_length=32)
    timeout_ms: int | None = Field(default=None, ge=1, le=3_600_000)
    extra_confirmations: int = Field(default=0, ge=0, le=3)
    origin: RunKind = RunKind.EVENT
    asked_by: int | None = Field(default=None, ge=0)
    dry_run: bool = False


class Rejection(Word):
    """One thing that validation stopped: where, and why in words a person can act on."""

    field: str
    reason: str


class Impact(Word):
    """What a confirmed operation would do, counted by its preview and never by the model.

    ``reversible``: it can be undone for ``undo_h`` hours (0: no end). Else ``undo`` says why not, by a word
    for programs: `none`, `missing`, `same`, `too_large`, `full`, `no_room`, `denied`, `helper`.
    """

    files: int = Field(ge=0)
    size_bytes: int = Field(ge=0)
    root: str
    sample: tuple[str, ...] = ()
    reversible: bool = False
    undo: str = ""
    undo_h: int = Field(default=0, ge=0)
    manifest_digest: str = ""
    text: str


class Gain(Word):
    """What an operation really did: files removed or skipped, and bytes the file system got back."""

    files_removed: int = Field(ge=0)
    files_skipped: int = Field(ge=0)
    size_bytes: int = Field(ge=0)
    freed_bytes: int


class CommandResult(Word):
    """The answer to a CommandRequest.

    ``output`` is text, decoded with replacement and cut at the command's limit (``truncated``);
    ``digest`` is the SHA-256 of the whole output, cleaned and without secrets, as it is kept; ``rows`` is
    the output as the command's parser read it; ``summary`` is one line for people and for planners.
    """

    request_id: Identifier
    task_id: Identifier
    command: str = Field(max_length=96)
    status: ResultStatus
    reason: str = ""
    rejected: tuple[Rejection, ...] = ()
    exit_status: int | None = None
    output: str = ""
    output_bytes: int = Field(default=0, ge=0)
    truncated: bool = False
    digest: str = ""
    rows: tuple[dict[str, JsonValue], ...] = ()
    summary: str = ""
    stages: tuple[StageTiming, ...] = ()
    impact: Impact | None = None
    gain: Gain | None = None


class Progress(Word):
    """Sent by the executor while a request is under way: a stage began, and how long it may take.

    In ``confirm`` it names the pending operation and its impact, so that the run can tell a person.
    """

    request_id: Identifier
    stage: Stage
    budget_ms: int = Field(ge=0)
    operation_id: str = ""
    impact: Impact | None = None


class CommandInfo(Word):
    """What a planner may know of a catalogue entry. ``args_schema`` is JSON Schema, made from the file.

    ``runs`` is for people: the program with its arguments' places, or what they are to run themselves.
    """

    name: CommandName
    description: str
    effect: Effect
    permission: Permission
    scenes: tuple[str, ...] = ()
    args_schema: dict[str, JsonValue]
    timeout_ms: int
    concurrency_safe: bool = False
    retryable: bool = False
    fallback: str = ""
    preview: str = ""
    runs: str = ""
    priority: int = 50
    usable: bool = True
    unusable_reason: str = ""


class CatalogueView(Word):
    """The executor's answer to ``catalogue``: what may be proposed, and how far it may reach."""

    policy_version: str
    sandbox: str
    sandbox_reason: str = ""
    degraded: tuple[str, ...] = ()
    readable_roots: tuple[str, ...] = ()
    writable_roots: tuple[str, ...] = ()
    commands: tuple[CommandInfo, ...] = ()


class Action(Word):
    """One proposed step of a decision. ``needs`` names steps of the same decision that come first.

    ``confirm`` asks that a person confirms it even if its command would not need it. ``sources`` says of
    an argument where its value came from: ``goal``, ``event``, ``incident``, ``facts``, or a step's name.
    """

    step: Identifier
    command: CommandName
    args: dict[ArgumentName, JsonValue] = Field(default_factory=dict, max_length=32)
    intent: str = Field(min_length=1, max_length=500)
    needs: tuple[Identifier, ...] = ()
    confirm: bool = False
    sources: dict[ArgumentName, Annotated[str, Field(max_length=96)]] = Field(
        default_factory=dict, max_length=32
    )


class Finish(Word):
    """A planner's word that nothing more is to be done: the cause as found, and the report's text."""

    cause: str = Field(default="", max_length=2000)
    report: str = Field(min_length=1, max_length=8000)


class Decision(Word):
    """What a planner returns: a thought, and either one to four actions or a finish."""

    thought: str = Field(max_length=2000)
    actions: tuple[Action, ...] = Field(default=(), max_length=4)
    finish: Finish | None = None

    @model_validator(mode="after")
    def _one_of_two(self) -> Self:
        if bool(self.actions) == (self.finish is not None):
            raise ValueError("a decision has either actions or a finish, exactly one of the two")
        return self


W = TypeVar("W", bound=Word)


def encode(word: Word) -> bytes:
    """Return the word as one line of JSON, newline included."""
    return word.model_dump_json().encode() + b"\n"


def decode_envelope(line: bytes) -> Envelope:
    """Read one line from a peer. Raise ProtocolError with a reason that can be sent back."""
    if len(line) > MAX_MESSAGE_BYTES:
        raise ProtocolError(f"message longer than {MAX_MESSAGE_BYTES} bytes")
    check_json(line)
    return _validate_json(Envelope, line)


def read_payload(kind: type[W], payload: dict[str, JsonValue]) -> W:
    """Read an envelope's payload as the given word. Raise ProtocolError with a reason."""
    return _validate_json(kind, json.dumps(payload).encode())


def payload_of(word: Word) -> dict[str, JsonValue]:
    """Return the word as an envelope's payload: plain JSON values."""
    dumped: dict[str, JsonValue] = word.model_dump(mode="json")
    return dumped


def _validate_json(kind: type[W], text: bytes) -> W:
    try:
        return kind.model_validate_json(text)
    except ValidationError as error:
        raise ProtocolError(describe(error)) from None


def describe(error: ValidationError) -> str:
    """Return a validation error in one line: each field with its reason, without the input's values."""
    found = error.errors(include_url=False, include_context=False, include_input=False)
    return "; ".join(
        f"{'.'.join(str(part) for part in item['loc']) or 'message'}: {item['msg']}" for item in found[:8]
    )
