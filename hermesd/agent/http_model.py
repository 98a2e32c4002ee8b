"""The model over HTTP: one shared session to a server that speaks the chat completions protocol.

Whatever the server does (hangs, hangs up, answers with a page, with half an answer, with a hundred
megabytes), the caller gets a text or PlannerUnavailable, within its clock and with bounded memory.
The key goes into one header and nowhere else: no error quotes a server's answer, redirects are not
followed, and the environment's proxies are not used.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Any, Final

import aiohttp

from hermesd.agent.model_planner import PLAN_SECONDS
from hermesd.agent.planner import PlannerUnavailable, Unavailability
from hermesd.agent.prompts import Message
from hermesd.agent.settings import ModelSettings
from hermesd.protocol import ProtocolError, check_json

MAX_ANSWER_BYTES: Final = 1 << 20
NETWORK_RETRIES: Final = 2
FIRST_PAUSE_SECONDS: Final = 0.25

_OK: Final = 200
_TOO_MANY: Final = 429
_SERVER_FAULTS: Final = 500
_MAX_ERROR: Final = 160
_MAX_DIGITS: Final = 6


@dataclass(frozen=True, slots=True)
class _Passing:
    """A fault that asking again may cure. ``wait_seconds`` is the server's own wish, None without one."""

    text: str
    wait_seconds: float | None = None


class HttpModel:
    """A ChatModel. ``timeout_seconds`` bounds one answer with all its retries. Close it at the end."""

    def __init__(
        self,
        settings: ModelSettings,
        *,
        timeout_seconds: float = PLAN_SECONDS,
        retries: int = NETWORK_RETRIES,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._settings = settings
        self._timeout_seconds = timeout_seconds
        self._retries = retries
        self._jitter = jitter
        self._places = asyncio.Semaphore(settings.max_concurrent)
        self._shared: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        """End the session. It is opened anew when a model is asked again."""
        session, self._shared = self._shared, None
        if session is not None:
            await session.close()

    async def complete(self, messages: Sequence[Message]) -> str:
        """Return the model's answer. Raise PlannerUnavailable: late, down or nonsense."""
        ends = monotonic() + self._timeout_seconds
        try:
            async with asyncio.timeout(self._timeout_seconds) as clock, self._places:
                return await self._with_retries(messages, ends)
        except TimeoutError as error:
            if not clock.expired():
                raise
            text = f"the model did not answer within {self._timeout_seconds:g} s"
            raise PlannerUnavailable(Unavailability.LATE, text) from error

    async def _with_retries(self, messages: Sequence[Message], ends: float) -> str:
        fault = await self._once(messages)
        for attempt in range(self._retries):
            if isinstance(fault, str):
                return fault
            pause = fault.wait_seconds
            if pause is None:
                pause = FIRST_PAUSE_SECONDS * 2**attempt * (0.5 + self._jitter())
            if monotonic() + pause >= ends:
                raise _down(f"{fault.text}, and there is no time left to ask again")
            await asyncio.sleep(pause)
            fault = await self._once(messages)
        if isinstance(fault, str):
            return fault
        raise _down(f"{fault.text} (asked {self._retries + 1} times)")

    async def _once(self, messages: Sequence[Message]) -> str | _Passing:
        try:
            async with self._session().post(
                f"{self._settings.api_base}/chat/completions",
                data=self._body(messages),
                headers=self._headers(),
                allow_redirects=False,
            ) as response:
                fault = _judge_status(response)
                return fault or _answer_in(await _read(response))
        except (aiohttp.ClientError, OSError) as error:
            if isinstance(error, aiohttp.InvalidURL):
                raise _down("the model's address cannot be used") from None
            return _Passing(f"the model's server cannot be reached ({type(error).__name__})")

    def _session(self) -> aiohttp.ClientSession:
        if self._shared is None:
            # The clock of `complete` is the one that counts, so the session has none of its own.
            timeout = aiohttp.ClientTimeout(total=None, sock_connect=None)
            self._shared = aiohttp.ClientSession(timeout=timeout, trust_env=False)
        return self._shared

    def _headers(self) -> dict[str, str]:
        headers = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
        key = self._settings.api_key.get_secret_value()
        return {**headers, "Authorization": f"Bearer {key}"} if key else headers

    def _body(self, messages: Sequence[Message]) -> bytes:
        body: dict[str, Any] = {
            "model": self._settings.model_name,
            "messages": list(messages),
            "temperature": self._settings.temperature,
            "max_tokens": self._settings.max_tokens,
            "stream": False,
        }
        if self._settings.json_mode:
            body["response_format"] = {"type": "json_object"}
        return json.dumps(body).encode()


def _judge_status(response: aiohttp.ClientResponse) -> _Passing | None:
    status = response.status
    if status == _OK:
        return None
    if status == _TOO_MANY:
        return _Passing("the model's server is busy (429)", _wait_of(response.headers.get("Retry-After", "")))
    if status >= _SERVER_FAULTS:
        return _Passing(f"the model's server has a fault ({status})")
    if status in (401, 403):
        raise _down(f"the model's server refuses the key ({status})")
    raise _down(f"the model's server refuses the request ({status})")


def _wait_of(retry_after: str) -> float | None:
    """Return the seconds that the header asks for; a date or anything else counts as no wish."""
    plain = retry_after.isascii() and retry_after.isdecimal() and len(retry_after) <= _MAX_DIGITS
    return float(retry_after) if plain else None


async def _read(response: aiohttp.ClientResponse) -> bytes:
    """Return the whole body. Raise PlannerUnavailable(nonsense) as soon as it is too long."""
    body = bytearray()
    async for chunk in response.content.iter_chunked(1 << 16):
        body += chunk
        if len(body) > MAX_ANSWER_BYTES:
            response.close()
            raise _nonsense(f"the model's answer is longer than {MAX_ANSWER_BYTES} bytes")
    return bytes(body)


def _answer_in(body: bytes) -> str:
    """Return the text of the first choice. Raise PlannerUnavailable(nonsense)."""
    try:
        value = check_json(body)
        content = value["choices"][0]["message"]["content"]
    except ProtocolError as error:
        raise _nonsense(f"the model's server answered with something else ({error})"[:_MAX_ERROR]) from None
    except (KeyError, IndexError, TypeError):
        raise _nonsense("the model's server answered without a choice and its message") from None
    if not isinstance(content, str):
        raise _nonsense("the model's server answered with a message that is no text")
    return content


def _down(text: str) -> PlannerUnavailable:
    return PlannerUnavailable(Unavailability.DOWN, text)


def _nonsense(text: str) -> PlannerUnavailable:
    return PlannerUnavailable(Unavailability.NONSENSE, text)
