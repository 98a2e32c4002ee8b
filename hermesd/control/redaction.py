"""The one place where secrets are taken out of what commands print.

It works on a whole bounded output, never on chunks, so that no secret can lie across a border. Two
kinds are known: what looks like a secret wherever it stands (keys, tokens, passwords beside their
names), and hermesd's own, given as a list, in the forms in which programs print them (as they stand,
base64 at any place of a longer text, hexadecimal, URL-encoded), also with line breaks in between.
Nothing of a command's output may be answered, written down or kept before it went through here. It is
a net and not a proof: what only its owner knows to be secret passes.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable
from typing import Final
from urllib.parse import quote, quote_plus

from pydantic import JsonValue

REDACTED: Final = "[redacted]"
SHORTEST_OWN: Final = 6
"""A shorter secret of our own would stand in every second word; it is not looked for."""

SHORTEST_BEGINNING: Final = 4
"""Where an output was ended within a secret of our own, so much of it and more is taken out."""

_LOOKUPS: Final = r"(?!(?:files|compat|systemd|sss|db|nis|ldap|winbind|dns)\b)"
_SURE: Final = r"passw(?:or)?d|passwd|passphrase|passcode|pwd|client_?secret|secret_?key|private_?key"
_LIKELY: Final = (
    r"secret|token|api[_-]?key|apikey|access[_-]?key|auth[_-]?key|account[_-]?key|shared[_-]?key|encryption[_-]?key"
    r"|signature|credential|session[_-]?id|master[_-]?key|salt"
)
_TO: Final = r"""[\w.-]{0,24}\\?["']?\s{0,4}(?:=>|:=|[:=])\s{0,4}"""
_QUOTED: Final = r"""\\?"(?:[^"\\\n]|\\.){1,2000}"|'[^'\n]{1,2000}'"""

_PATTERNS: Final[tuple[tuple[tuple[str, ...], re.Pattern[str], str], ...]] = tuple(
    (words, re.compile(pattern, re.ASCII), instead)
    for words, pattern, instead in (
        (
            ("private key",),
            (
                r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----(?s:.*?)"
                r"(?:-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----|\Z)"
            ),
            REDACTED,
        ),
        ((), r"(?m)^ {0,8}(?=[^\n]{0,80}[a-z])(?=[^\n]{0,80}[A-Z])[A-Za-z0-9+/]{60,76}={0,2}$", REDACTED),
        (
            ("bearer", "basic"),
            r"(?i)\b(bearer|basic)(\s{1,4})[A-Za-z0-9._~+/=-]{8,}",
            rf"\1\2{REDACTED}",
        ),
        (("cookie",), r"(?i)\b((?:set-)?cookie\s{0,4}:\s{0,4})[^\n]+", rf"\1{REDACTED}"),
        (
            ("pass", "pwd", "secret", "private"),
            rf"(?i)({_SURE})({_TO}){_LOOKUPS}(?:{_QUOTED}|[^\s\"',;&\\]+)",
            rf"\1\2{REDACTED}",
        ),
        (
            ("secret", "token", "key", "signature", "credential", "session", "salt"),
            rf"(?i)({_LIKELY})({_TO})(?:{_QUOTED}|(?!\d{{1,7}}\b)[^\s\"',;&\\]{{6,}})",
            rf"\1\2{REDACTED}",
        ),
        (
            ("pass", "secret", "token", "key"),
            (
                r"(?i)(--?[a-z-]{0,24}(?:password|passwd|passphrase|secret|token|api-?key)[a-z-]{0,12}\s{1,4})"
                r"(?!-)[^\s\"']+"
            ),
            rf"\1{REDACTED}",
        ),
        (
            ("requirepass", "masterauth", "bindpw", "password", "secret"),
            r"(?im)^(\s{0,16}(?:requirepass|masterauth|bindpw|rootpw|password|secret)[ \t]{1,16})[^\s=:]\S*",
            rf"\1{REDACTED}",
        ),
        (("://",), r"(?i)\b([a-z][a-z0-9+.-]{1,20}://[^\s:/@]{0,100}:)[^\s@/]{1,300}@", rf"\1{REDACTED}@"),
        (("akia", "asia"), r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b", REDACTED),
        (
            ("sk-", "sk_", "pk_", "rk_", "gh", "glpat-", "xox", "aiza", "npm_", "hf_"),
            (
                r"\b(?:[spr]k[-_][A-Za-z0-9_-]{16,}|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}"
                r"|xox[abeprs]-[\w-]{10,}|AIza[\w-]{30,}|npm_[A-Za-z0-9]{30,}|hf_[A-Za-z0-9]{20,})"
            ),
            REDACTED,
        ),
        (("eyj",), r"\beyJ[\w-]{4,}\.[\w-]{4,}\.[\w-]*", REDACTED),
        (("$",), r"\$(?:1|2[abxy]?|5|6|7|y|gy|argon2i?d?)\$[^\s:'\"]{8,}", REDACTED),
    )
)
_KEY: Final = re.compile(rf"(?i).{{0,60}}(?:{_SURE}|{_LIKELY}).{{0,24}}", re.ASCII)


class Redactor:
    """Takes secrets out of texts and rows. ``secrets`` are hermesd's own, as they stand."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        forms = {form for secret in secrets if len(secret) >= SHORTEST_OWN for form in _forms(secret)}
        longest_first = sorted(forms, key=lambda form: (-len(form), form))
        self._forms = tuple(longest_first)
        self._own = re.compile("|".join(_broken(form) for form in longest_first)) if forms else None

    def text(self, text: str) -> str:
        """Return a text without what is secret in it."""
        if self._own is not None:
            text = self._own.sub(REDACTED, text)
        lowered = text.lower()
        for words, pattern, instead in _PATTERNS:
            if not words or any(word in lowered for word in words):
                text = pattern.sub(instead, text)
        return text

    def cut_off(self, text: str) -> str:
        """Return a text that was ended somewhere, without what may begin a secret of our own."""
        most = max(
            (
                length
                for form in self._forms
                for length in range(SHORTEST_BEGINNING, len(form))
                if text.endswith(form[:length])
            ),
            default=0,
        )
        return text[: len(text) - most] + REDACTED if most else text

    def row(self, row: dict[str, JsonValue]) -> dict[str, JsonValue]:
        """Return a row without what is secret in it; its shape stays."""
        return {self.text(name): self._value(value, name) for name, value in row.items()}

    def _value(self, value: JsonValue, name: str = "") -> JsonValue:
        if isinstance(value, str):
            return REDACTED if value and name and _KEY.fullmatch(name) else self.text(value)
        if isinstance(value, list):
            return [self._value(item, name) for item in value]
        return self.row(value) if isinstance(value, dict) else value


def _forms(secret: str) -> Iterable[str]:
    """Yield the spellings of a secret; of base64 at any place, what does not depend on its neighbours."""
    data = secret.encode()
    yield from (secret, quote(secret, safe=""), quote_plus(secret), quote(secret))
    yield re.sub(r"%[0-9A-F]{2}", lambda found: found[0].lower(), quote(secret, safe=""))
    yield from (data.hex(), data.hex().upper(), data.hex(" "), data.hex(":"))
    yield secret.replace("\\", "\\\\").replace('"', '\\"').replace("/", "\\/")
    for shift in range(3):
        whole = base64.b64encode(bytes(shift) + data).decode().rstrip("=")
        sure = whole[(0, 2, 3)[shift] : len(whole) - 1]
        if len(sure) >= SHORTEST_OWN:
            yield from (sure, sure.replace("+", "-").replace("/", "_"))


def _broken(form: str) -> str:
    """Return a pattern for a form, line breaks and the indentation after them in between."""
    return r"(?:\n {0,16})?".join(re.escape(char) for char in form)
