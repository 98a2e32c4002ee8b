"""The owner's half of a talk, over a link that says whatever a test wants."""

import asyncio

import pytest

from hermesd.control.sandbox.base import Job, SandboxError
from hermesd.control.sandbox.dialogue import Dialogue


def frame(tag, payload):
    return tag + len(payload).to_bytes(4, "big") + payload


class SaidLink:
    """A link whose other side has already said everything, or says it after the word to go."""

    def __init__(self, *frames):
        self.reader = asyncio.StreamReader()
        self.written = b""
        for data in frames:
            self.reader.feed_data(data)

    async def read_exactly(self, count):
        return await self.reader.readexactly(count)

    async def write(self, data):
        self.written += data

    def says(self, *frames):
        for data in frames:
            self.reader.feed_data(data)


async def talk(*frames, **job):
    link = SaidLink(frame(b"H", b"1"), frame(b"P", b""))
    dialogue = Dialogue(link, {})
    assert await dialogue.hello(1) == 1
    await dialogue.resolve(Job((b"/usr/bin/true",), **job))
    nonce = link.written[8 : 8 + 16]
    link.says(*(part(nonce) if callable(part) else part for part in frames))
    return dialogue


def ended(text):
    return lambda nonce: frame(b"X", nonce + text)


async def test_output_and_end_become_a_result():
    dialogue = await talk(
        frame(b"O", b"out"), frame(b"E", b"err"), frame(b"O", b"put"), ended(b"exited 3 1.5")
    )
    result = await dialogue.run()

    assert (result.exit_status, result.stdout, result.stderr, result.ms) == (3, b"output", b"err", 1.5)


async def test_the_first_byte_of_output_has_its_time_and_no_output_has_none():
    spoken = await (await talk(frame(b"O", b"x"), ended(b"exited 0 9.0"))).run()
    silent = await (await talk(ended(b"exited 0 9.0"))).run()

    assert spoken.first_ms is not None
    assert spoken.first_ms >= 0
    assert silent.first_ms is None


@pytest.mark.parametrize(("how", "flag"), [(b"timeout", "timed_out"), (b"truncated", "truncated")])
async def test_a_command_that_was_ended_has_no_exit_status(how, flag):
    result = await (await talk(frame(b"O", b"x"), ended(how + b" 0 1.0"))).run()

    assert result.exit_status is None
    assert getattr(result, flag)
    assert result.stdout == b"x"


@pytest.mark.parametrize(
    "said",
    [frame(b"O", b"12345"), frame(b"Q", b""), frame(b"H", b"1"), frame(b"X", b"m" * 16 + b"exited 0 1.0")],
    ids=["more than was allowed", "an unknown tag", "a word out of place", "another nonce"],
)
async def test_what_no_stub_says_ends_the_talk(said):
    dialogue = await talk(said, output_bytes=4)

    with pytest.raises(SandboxError):
        await dialogue.run()


async def test_a_container_that_dies_is_an_error_and_not_a_result():
    link = SaidLink(frame(b"H", b"1"), frame(b"P", b""))
    dialogue = Dialogue(link, {})
    await dialogue.hello(1)
    await dialogue.resolve(Job((b"/usr/bin/true",)))
    link.reader.feed_eof()

    with pytest.raises(SandboxError, match="ended before its command"):
        await dialogue.run()


async def test_a_stub_that_says_nothing_is_not_waited_for():
    with pytest.raises(SandboxError, match="did not become ready in time"):
        await Dialogue(SaidLink(), {}).hello(0.01)


async def test_a_stub_that_never_ends_is_given_up_after_deadline_and_grace():
    dialogue = await talk(frame(b"O", b"so far"), timeout_ms=1)
    result = await dialogue.run()

    assert result.timed_out
    assert result.stdout == b"so far"
    assert 2000 <= result.ms < 4000
