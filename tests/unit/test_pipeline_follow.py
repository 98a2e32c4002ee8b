"""Followers hear what happens from when they listen, and never slow a run down."""

from __future__ import annotations

import asyncio

from hermesd.pipeline.follow import MAX_LINES, Followers, Line
from hermesd.pipeline.resolutions import Resolutions


async def test_a_follower_hears_its_run_alone_until_its_end():
    followers = Followers()
    with followers.following("a") as follower:
        followers.tell(Line("b", "not ours"))
        followers.tell(Line("a", "one"))
        followers.tell(Line("a", "two", last=True))
        assert [line.line async for line in follower.lines()] == ["one", "two"]


async def test_a_follower_that_does_not_read_loses_the_oldest_and_is_told():
    followers = Followers()
    with followers.following("a") as follower:
        for number in range(MAX_LINES + 10):
            followers.tell(Line("a", str(number)))
        followers.tell(Line("a", "end", last=True))
        lines = [line.line async for line in follower.lines()]
    assert lines[0] == "(11 lines were not read in time)"
    assert lines[1] == "11"
    assert len(lines) == MAX_LINES + 1


async def test_giving_up_on_a_line_loses_none():
    followers = Followers()
    with followers.following("a") as follower:
        waiting = asyncio.create_task(follower.next_line())
        await asyncio.sleep(0)
        waiting.cancel()
        followers.tell(Line("a", "one"))
        assert (await follower.next_line()).line == "one"


async def test_who_no_longer_follows_is_forgotten():
    followers = Followers()
    with followers.following("a"):
        pass
    followers.tell(Line("a", "one"))
    assert not followers._by_run


async def test_news_of_an_incident_wakes_who_waits_for_it_and_nobody_else():
    news = Resolutions()
    with news.listening("i") as heard, news.listening("j") as other:
        news.publish("i")
        assert heard.is_set()
        assert not other.is_set()
    news.publish("i")
    assert not news._waiting
