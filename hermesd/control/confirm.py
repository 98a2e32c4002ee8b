"""Confirmation: what a person must type, and how long it is worth anything.

A token is minted when a person asks to see one operation, is bound to everything shown and to the
uid that saw it, lives two minutes of the monotonic clock (setting the clock back gains nothing), and
is gone at the first attempt to use it, right or wrong. Tokens live in memory alone: a restart voids
them. This module must never let anything but the exact typed text through, and knows no sockets.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic
from typing import Final

_ALPHABET: Final = "ABCDEFGHJKMNPQRSTUVWXYZ23456789"
"""Without 0, O, 1, I and L: a person types this from one place of the screen to another."""

_WORDS: Final = (
    "anchor", "basalt", "cedar", "delta", "ember", "fjord", "garnet", "harbor", "indigo", "juniper",
    "kestrel", "lagoon", "meadow", "nectar", "opal", "pebble", "quartz", "raven", "saffron", "tundra",
    "umber", "velvet", "willow", "yarrow", "zephyr",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Minted:
    """What a person is shown: the token to type, and after it a word for each further confirmation.

    ``second_word`` holds them with blanks in between, "" when none is asked.
    """

    token: str
    second_word: str


@dataclass(frozen=True, slots=True)
class _Waiting:
    token_hash: bytes
    second_word: str
    uid: int
    binding: str
    ends_at: float


class Tokens:
    """The tokens that are out. At most one per operation: showing it again voids the one before."""

    def __init__(self, life_seconds: float, now: Callable[[], float] = monotonic) -> None:
        self.life_seconds = life_seconds
        self._now = now
        self._waiting: dict[str, _Waiting] = {}

    def mint(self, operation_id: str, uid: int, binding: str, *, words: int) -> Minted:
        """Return a new token for the operation, worth something to ``uid`` alone, and so many words."""
        token = "-".join("".join(secrets.choice(_ALPHABET) for _ in range(4)) for _ in range(2))
        word = " ".join(secrets.choice(_WORDS) for _ in range(words))
        self._waiting[operation_id] = _Waiting(
            _hash(token), word, uid, binding, self._now() + self.life_seconds
        )
        return Minted(token, word)

    def redeem(self, operation_id: str, uid: int, token: str, second: str, binding: str) -> str:
        """Use the token up. Return "" when everything fits, else the reason for people."""
        waiting = self._waiting.pop(operation_id, None)
        if waiting is None:
            return "no token is out for this operation (it was used, or never shown); ask to see it again"
        if waiting.uid != uid:
            return "the token was shown to somebody else"
        if self._now() >= waiting.ends_at:
            return "the token has expired; ask to see the operation again"
        if not hmac.compare_digest(_hash(token), waiting.token_hash):
            return "that is not the token that was shown; ask to see the operation again"
        if waiting.second_word and not hmac.compare_digest(second.encode(), waiting.second_word.encode()):
            return "that is not the word that was shown; ask to see the operation again"
        if waiting.binding != binding:
            return "what was shown is not what would run now; ask to see the operation again"
        return ""

    def void(self, operation_id: str) -> None:
        """Take back the operation's token."""
        self._waiting.pop(operation_id, None)


def _hash(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
