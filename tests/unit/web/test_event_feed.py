"""Events are told in order to whoever listens; whoever does not read is let go and misses nothing in the end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from comfyui_agent.access.problem import Problem
from comfyui_agent.domain.events import Event
from comfyui_agent.store.errors import DatabaseAway
from comfyui_agent.web import event_feed
from comfyui_agent.web.event_feed import EventFeed, as_sent
from support.stores import ScriptedStore
from support.web import eventually

FIRST = b": events of E3\nretry: 2000\n\n"


class Memory(ScriptedStore):
    """Events by number."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.error: Exception | None = None

    def happen(self, count: int = 1, batch_id: str | None = None) -> None:
        for _ in range(count):
            number = len(self.events) + 1
            facts: dict[str, Any] = {"id": number, "name": "job.done", "batch_id": batch_id}
            self.events.append(Event(**{**EMPTY, **facts}))

    async def newest_event(self) -> int:
        return len(self.events)

    async def events_after(self, after: int, most: int) -> list[Event]:
        if self.error is not None:
            raise self.error
        return self.events[after : after + most]


EMPTY: dict[str, Any] = dict.fromkeys(Event.__dataclass_fields__) | {"timestamp": "2025-11-16 02:08:00.000"}


@pytest.fixture
def memory() -> Memory:
    return Memory()


async def begun(memory: Any, on_event: Callable[[Event], None] = lambda _: None) -> EventFeed:
    made = EventFeed(memory, on_event)
    await made.begin()
    return made


async def heard(stream: AsyncIterator[bytes], count: int) -> list[bytes]:
    return [await asyncio.wait_for(anext(stream), 5) for _ in range(count)]


def numbers(parts: list[bytes]) -> list[int]:
    return [int(part.split(b"\n")[0].removeprefix(b"id: ")) for part in parts]


def test_an_event_is_written_with_its_number_its_name_and_one_line_of_facts() -> None:
    event = Event(**{**EMPTY, "id": 7, "name": "job.failed", "config_name": "a\nb\u2028\ud800é"})
    lines = as_sent(event).decode("utf-8").split("\n")
    assert lines[:2] == ["id: 7", "event: job.failed"]
    assert lines[2].startswith("data: {")
    assert lines[3:] == ["", ""]


async def test_listeners_hear_what_comes_and_not_what_was(memory: Memory) -> None:
    memory.happen(5)
    told = await begun(memory)
    stream = told.listen(None)
    assert await heard(stream, 1) == [FIRST]
    memory.happen(3)
    await told.catch_up()
    assert numbers(await heard(stream, 3)) == [6, 7, 8]
    await stream.aclose()


async def test_what_happens_while_someone_catches_up_is_reported_once_and_behind_it(memory: Memory) -> None:
    memory.happen(1200)
    told = await begun(memory)
    stream = told.listen(1000)
    await heard(stream, 1)
    found = numbers(await heard(stream, 150))
    memory.happen(10)
    await told.catch_up()
    found += numbers(await heard(stream, 60))
    assert found == list(range(1001, 1211))
    await stream.aclose()


async def test_what_a_listener_has_is_not_reported_again_even_if_it_is_reported_to_others_only_now(
    memory: Memory,
) -> None:
    told = await begun(memory)
    memory.happen(3)
    stream = told.listen(3)
    await heard(stream, 1)
    waiting = asyncio.create_task(heard(stream, 1))
    await asyncio.sleep(0)
    await told.catch_up()
    memory.happen()
    await told.catch_up()
    assert numbers(await waiting) == [4]
    await stream.aclose()


async def test_a_listener_that_does_not_read_is_let_go_and_comes_back_where_it_was(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_feed, "MOST_BEHIND", 20)
    told = await begun(memory)
    slow, quick = told.listen(None), told.listen(None)
    await heard(slow, 1)
    await heard(quick, 1)
    memory.happen(10)
    await told.catch_up()
    assert numbers(await heard(slow, 2)) == [1, 2]
    assert numbers(await heard(quick, 10)) == list(range(1, 11))
    memory.happen(15)
    await told.catch_up()
    assert numbers(await heard(quick, 15)) == list(range(11, 26))
    assert [part async for part in slow] == []
    again = told.listen(2)
    await heard(again, 1)
    assert numbers(await heard(again, 23)) == list(range(3, 26))
    for stream in (again, quick):
        await stream.aclose()
    assert not told._listeners


async def test_everyone_hears_the_same_bytes_which_are_made_once(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[int] = []
    monkeypatch.setattr(event_feed, "as_sent", lambda event: made.append(event.id) or as_sent(event))
    told = await begun(memory)
    streams = [told.listen(None) for _ in range(5)]
    for stream in streams:
        await heard(stream, 1)
    memory.happen(4)
    await told.catch_up()
    parts = [await heard(stream, 4) for stream in streams]
    assert all(a is b for found in parts for a, b in zip(found, parts[0], strict=True))
    assert made == [1, 2, 3, 4]
    for stream in streams:
        await stream.aclose()
    memory.happen()
    await told.catch_up()
    assert made == [1, 2, 3, 4], "nothing is written for nobody"


async def test_only_one_batch_is_reported_if_that_is_asked_for(memory: Memory) -> None:
    memory.happen(2, "fox")
    memory.happen(2, "hare")
    told = await begun(memory)
    stream = told.listen(0, "hare")
    await heard(stream, 1)
    memory.happen(1, "fox")
    memory.happen(1, "hare")
    await told.catch_up()
    assert numbers(await heard(stream, 3)) == [3, 4, 6]
    await stream.aclose()


async def test_a_number_that_is_not_there_yet_is_taken_for_the_newest(memory: Memory) -> None:
    memory.happen(3)
    told = await begun(memory)
    stream = told.listen(1_000_000)
    await heard(stream, 1)
    memory.happen()
    following = asyncio.create_task(told.catch_up())
    assert numbers(await heard(stream, 1)) == [4]
    await following
    await stream.aclose()


async def test_silence_is_broken_by_a_comment_also_where_others_are_busy(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_feed, "HEARTBEAT", 0.05)
    told = await begun(memory)
    stream = told.listen(None, "hare")
    await heard(stream, 1)
    assert await heard(stream, 1) == [b": still here\n\n"]
    is_over = False

    async def busy() -> None:
        while not is_over:
            memory.happen(1, "fox")
            await told.catch_up()
            await asyncio.sleep(0.01)

    working = asyncio.create_task(busy())
    assert await heard(stream, 2) == [b": still here\n\n"] * 2
    is_over = True
    await working
    await stream.aclose()


async def test_at_the_end_every_stream_ends(memory: Memory) -> None:
    told = await begun(memory)
    streams = [told.listen(None) for _ in range(3)]
    for stream in streams:
        await heard(stream, 1)
    waiting = [asyncio.create_task(anext(stream, b"over")) for stream in streams]
    await asyncio.sleep(0)
    await told.close()
    assert await asyncio.wait_for(asyncio.gather(*waiting), 5) == [b"over"] * 3


async def test_following_goes_on_when_the_database_was_away_and_when_a_hearer_fails(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_feed, "PAUSE", 0.01)
    found: list[int] = []

    def fail_once(event: Event) -> None:
        found.append(event.id)
        if len(found) == 1:
            raise ZeroDivisionError

    told = await begun(memory, fail_once)
    memory.error = DatabaseAway("locked")
    memory.happen(2)
    following = asyncio.create_task(told.follow())
    await asyncio.sleep(0.05)
    assert found == []
    memory.error = None
    await eventually(lambda: len(found) == 2, "both events")
    following.cancel()
    assert found == [1, 2]


async def test_one_caller_leaves_streams_for_others(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_feed, "MOST_LISTENERS", 4)
    told = await begun(memory)
    first = told.listen(None, caller="token 1")
    await anext(first)
    with pytest.raises(Problem, match="too many of your streams of events are open: 1"):
        told.listen(None, caller="token 1")
    others = [told.listen(None, caller=f"token {number}") for number in range(2, 6)]
    assert [await anext(each, None) for each in others] == [FIRST] * 3 + [None]
    with pytest.raises(Problem, match="too many streams of events are open: 4"):
        told.listen(None, caller="token 9")
    for stream in (first, *others):
        await stream.aclose()
