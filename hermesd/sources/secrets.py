"""Reading secrets where the administrator put them: a file, or a credential that systemd passes.

This module must never log what it read, and never keep it: whoever needs a secret reads it when it
is needed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from hermesd.sources.base import SourceFailed
from hermesd.sources.settings import Secret

MAX_SECRET_BYTES: Final = 64 << 10


async def read_secret(secret: Secret, environ: Mapping[str, str]) -> str:
    """Return the secret without the line break at its end. Raise SourceFailed, naming the place alone."""
    place = _place(secret, environ)
    try:
        text = await asyncio.to_thread(_read, place)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise SourceFailed(f"the secret in {place} cannot be read: {reason}") from None
    if not text:
        raise SourceFailed(f"the secret in {place} is empty")
    return text


def _place(secret: Secret, environ: Mapping[str, str]) -> Path:
    if secret.file:
        return Path(secret.file)
    folder = environ.get("CREDENTIALS_DIRECTORY", "")
    if not folder:
        raise SourceFailed(f"credential {secret.credential}: systemd passed none (see LoadCredential)")
    return Path(folder) / secret.credential


def _read(place: Path) -> str:
    with place.open("rb") as file:
        return file.read(MAX_SECRET_BYTES).decode().rstrip("\r\n")
