"""The kinds of messages on hermesd's three sockets, and how a line is made and read.

`control.sock`, in the agent process, for operators: status, incidents, runs, show, ask, follow,
pause, resume, cancel, undo, reload, audit.verify and what `Kind` lists beside them.

`agent.sock`, in the executor, for the agent's uid alone: catalogue, command.request, command.cancel.

`operator.sock`, in the executor, for operators and never for the agent's uid: status, commands,
approvals, approve.show, approve.redeem, deny, queue, queue.take, queue.close, release, kept, removed,
audit.verify.

Every request is one envelope with status `created`. It is answered by any number of envelopes of
status `running` and then exactly one of `succeeded` or `failed`; a failed one carries
`{"reason": ..., "code": ...}`. One connection carries one request after another.

hermesctl starts in the time of this module, so it must never import more than the standard library.
"""

from __future__ import annotations

import json
import uuid
from enum import StrEnum
from typing import Any, Final

VERSION: Final = 1
MAX_LINE_BYTES: Final = 1 << 20


class Kind(StrEnum):
    """What an envelope is about."""

    STATUS = "status"
    INCIDENTS = "incidents"
    RUNS = "runs"
    SHOW = "show"
    ASK = "ask"
    FOLLOW = "follow"
    PAUSE = "pause"
    RESUME = "resume"
    CANCEL = "cancel"
    RELOAD = "reload"
    EMIT = "emit"
    EXPLAIN = "explain"
    SCHEDULES = "schedules"
    SILENCES = "silences"
    SILENCE_ADD = "silence.add"
    SILENCE_END = "silence.end"
    AUDIT_VERIFY = "audit.verify"
    CATALOGUE = "catalogue"
    COMMAND_REQUEST = "command.request"
    COMMAND_PROGRESS = "command.progress"
    COMMAND_RESULT = "command.result"
    COMMAND_CANCEL = "command.cancel"
    COMMANDS = "commands"
    APPROVALS = "approvals"
    APPROVE_SHOW = "approve.show"
    APPROVE_REDEEM = "approve.redeem"
    DENY = "deny"
    QUEUE = "queue"
    QUEUE_TAKE = "queue.take"
    QUEUE_CLOSE = "queue.close"
    RELEASE = "release"
    KEPT = "kept"
    REMOVED = "removed"
    UNDO = "undo"
    ERROR = "error"


class Code(StrEnum):
    """Why a request was answered with `failed`, for programs; `reason` says it for people."""

    BAD_REQUEST = "bad_request"
    NOT_FOUND = "not_found"
    REFUSED = "refused"
    NOT_NOW = "not_now"
    INTERNAL = "internal"


def request_line(
    kind: str, payload: dict[str, Any], *, sender: str, receiver: str, task_id: str = ""
) -> bytes:
    """Return one request as a line, newline included. ``payload`` holds plain JSON values."""
    envelope = {
        "version": VERSION,
        "task_id": task_id or f"ctl-{uuid.uuid4().hex[:12]}",
        "sender": sender,
        "receiver": receiver,
        "kind": kind,
        "payload": payload,
        "status": "created",
    }
    return json.dumps(envelope, ensure_ascii=False).encode("utf-8", "surrogateescape") + b"\n"


def read_line(line: bytes) -> dict[str, Any]:
    """Return an answer's envelope as plain values. Raise ValueError when it is not one."""
    envelope = json.loads(line)
    if not isinstance(envelope, dict) or not isinstance(envelope.get("payload"), dict):
        raise ValueError("not an envelope")  # noqa: TRY004 - one error for whatever a stranger sends
    return envelope
