"""Silences as people make, list and end them. Each change is in the audit log before it is in force.

This module must never let a silence be without an end, a reason and the uid of who made it.
"""

from __future__ import annotations

import secrets
from datetime import timedelta
from typing import Any, Final

from hermesd.durations import parse_duration
from hermesd.ipc.messages import Code
from hermesd.ipc.server import Peer, RequestError
from hermesd.pipeline.asked import text_in
from hermesd.pipeline.kit import Kit
from hermesd.rules.matcher import parse_matcher
from hermesd.state.silences import SilenceRow, active_silences, expire_silence, insert_silence, list_silences

MAX_MATCHERS: Final = 32
MAX_REASON: Final = 500
LISTED: Final = 200


class Silencing:
    """Answers requests about silences."""

    def __init__(self, kit: Kit) -> None:
        self._kit = kit

    async def add(self, peer: Peer, payload: dict[str, Any]) -> dict[str, Any]:
        """Silence what the matchers match, from now on. Raise RequestError."""
        now = self._kit.now()
        made = SilenceRow(
            id=f"sil-{secrets.token_hex(4)}",
            matchers=_matchers(payload),
            author=f"uid {peer.uid}",
            reason=_reason(payload),
            created_at=now,
            ends_at=now + timedelta(seconds=_seconds(payload)),
        )
        await self._kit.audit.record(
            "silence.added",
            silence=made.id,
            uid=peer.uid,
            matchers=list(made.matchers),
            ends_at=made.ends_at.isoformat(),
        )
        await self._kit.store.write(lambda connection: insert_silence(connection, made))
        return _record(made)

    async def end(self, peer: Peer, payload: dict[str, Any]) -> dict[str, Any]:
        """End a silence before its time. Raise RequestError."""
        silence_id = text_in(payload, "id")
        now = self._kit.now()
        await self._kit.audit.record("silence.end_asked", silence=silence_id, uid=peer.uid)
        ended = await self._kit.store.write(lambda connection: expire_silence(connection, silence_id, now))
        if not ended:
            raise RequestError(Code.NOT_FOUND, f"no silence {silence_id[:40]} is in force")
        return {"id": silence_id}

    async def list(self, payload: dict[str, Any]) -> dict[str, Any]:
        """Return the silences in force; with ``all`` those that ended too."""
        now = self._kit.now()
        if payload.get("all") is True:
            rows = await self._kit.store.read(lambda connection: list_silences(connection, LISTED))
        else:
            rows = await self._kit.store.read(lambda connection: active_silences(connection, now))
        return {"silences": [{**_record(row), "in_force": now < row.ends_at} for row in rows]}


def _matchers(payload: dict[str, Any]) -> tuple[str, ...]:
    given = payload.get("matchers")
    if not isinstance(given, list) or not 1 <= len(given) <= MAX_MATCHERS:
        raise RequestError(Code.BAD_REQUEST, f"matchers: 1 to {MAX_MATCHERS} are needed, as alertname=Down")
    try:
        return tuple(str(parse_matcher(text)) for text in given)
    except ValueError as error:
        raise RequestError(Code.BAD_REQUEST, str(error)) from None


def _reason(payload: dict[str, Any]) -> str:
    reason = text_in(payload, "reason", longest=MAX_REASON).strip()
    if not reason:
        raise RequestError(Code.BAD_REQUEST, "reason: say why, for whoever wonders later")
    return reason


def _seconds(payload: dict[str, Any]) -> float:
    try:
        seconds = parse_duration(payload.get("for"))
    except ValueError as error:
        raise RequestError(Code.BAD_REQUEST, f"for: {error}") from None
    if seconds <= 0:
        raise RequestError(Code.BAD_REQUEST, "for: a silence lasts longer than no time")
    return seconds


def _record(row: SilenceRow) -> dict[str, Any]:
    return {
        "id": row.id,
        "matchers": list(row.matchers),
        "author": row.author,
        "reason": row.reason,
        "created_at": row.created_at.isoformat(),
        "ends_at": row.ends_at.isoformat(),
    }
