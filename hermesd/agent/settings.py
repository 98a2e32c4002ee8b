"""`[model]` of daemon.toml, and what the environment adds to it: which model, where, with which key.

The key comes from a credential or from the environment, never from a file of `conf.d/`, and no form
of printing these settings shows it. This module must never read a file by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Self
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator

ReadCredential = Callable[[str, str], str | None]
"""Called with the credentials' folder and a name; returns the credential's text or None."""

CREDENTIAL: Final = "api_key"
NOT_IN_A_FILE: Final = "a key does not belong in this file: give it as the credential api_key or as API_KEY"


class ModelSettings(BaseModel):
    """`[model]` of daemon.toml. Without a name and a base address no model is asked: runbooks plan."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    model_name: str = Field(default="", max_length=200)
    api_base: str = Field(default="", max_length=500)
    api_key: SecretStr = Field(default=SecretStr(""), exclude=True)
    max_concurrent: int = Field(default=2, ge=1, le=64)
    max_tokens: int = Field(default=1024, ge=64, le=32_768)
    temperature: float = Field(default=0.0, ge=0, le=2)
    json_mode: bool = False

    @property
    def enabled(self) -> bool:
        """Whether there is a model to ask."""
        return bool(self.model_name and self.api_base)

    @field_validator("api_key", mode="before")
    @classmethod
    def _key_is_not_in_a_file(cls, key: Any) -> Any:
        if not isinstance(key, SecretStr):
            raise ValueError(NOT_IN_A_FILE)  # noqa: TRY004 - pydantic wants it
        if not all("!" <= char <= "~" for char in key.get_secret_value()):
            raise ValueError("the key holds characters that no key has (blanks, line ends, not ASCII)")
        return key

    @field_validator("api_base")
    @classmethod
    def _base_is_an_address(cls, base: str) -> str:
        if not base:
            return base
        parts = urlsplit(base)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("it must begin with http:// or https:// and name a host")
        if parts.username or parts.password or parts.query or parts.fragment:
            raise ValueError("it must hold no user, password, query or fragment")
        return base.rstrip("/")

    def with_environment(self, environ: Mapping[str, str], read_credential: ReadCredential) -> Self:
        """Return the settings with `MODEL_NAME`, `API_BASE` and the key laid over them.

        The key is the credential `api_key` of `CREDENTIALS_DIRECTORY`, else `API_KEY`. Raise
        pydantic.ValidationError, which shows no value, when one of them cannot be used.
        """
        folder = environ.get("CREDENTIALS_DIRECTORY", "")
        key = (read_credential(folder, CREDENTIAL) if folder else None) or environ.get("API_KEY", "")
        over: dict[str, Any] = {
            "model_name": environ.get("MODEL_NAME") or self.model_name,
            "api_base": environ.get("API_BASE") or self.api_base,
            "api_key": SecretStr(key.strip()) if key else self.api_key,
        }
        return type(self).model_validate({**self.model_dump(), **over})
