"""/api/v1/events: everything that is committed is told in its order, once to each, and nothing is missed."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import pytest_asyncio

from comfyui_agent.store import operations as ops
from comfyui_agent.web import event_feed
from support.store_batches import queue
from support.stores import wish
from support.web import Frame, Served, eventually, served, watching
from support.workspaces import call_e3, job_text

pytestmark = pytest.mark.asyncio(loop_scope="module")

EVENTS = "/api/v1/events"


@pytest_asyncio.fixture(autouse=True, loop_scope="module")
async def nobody_listens_any_more(house: Served, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[None]:
    """Events are looked for often. When a test is over, whoever listened is forgotten."""
    monkeypatch.setattr(event_feed, "PAUSE", 0.02)
    yield
    await eventually(lambda: not house.context.event_feed._listeners, "listeners that have left to be forgotten")


def names(frames: list[Frame]) -> list[tuple[str, str]]:
    return [(frame.event, frame.value.get("config_name", "")) for frame in frames]


async def told(house: Served) -> None:
    """Wait until everything that has happened was told to whoever listens."""
    newest = await house.store.run(ops.newest_event)
    await eventually(lambda: house.context.event_feed._last_id >= newest, "the events to be told")


async def test_what_happens_is_reported_in_the_order_of_commits_with_its_number_and_its_facts(house: Served) -> None:
    async with watching(house, EVENTS) as stream:
        await house.job("told", priority=-9)
        [leased] = await house.lease()
        await house.finish(leased)
        frames = await stream.events(3)
    assert names(frames) == [("job.submitted", "told"), ("job.started", "told"), ("job.done", "told")]
    numbers = [int(frame.id) for frame in frames]
    assert numbers == sorted(set(numbers))
    done = frames[-1].value
    assert done["event"] == "job.done"
    assert (done["job_id"], done["duration_sec"]) == (leased.lease.job_id, 1.5)
    assert done["timestamp"]


async def test_what_happened_before_is_not_reported_unless_it_is_asked_for(house: Served) -> None:
    await house.job("earlier")
    await told(house)
    async with watching(house, EVENTS) as stream:
        await house.job("later")
        [frame] = await stream.events(1)
    assert names([frame]) == [("job.submitted", "later")]


async def test_a_listener_that_resumes_misses_nothing_and_hears_nothing_twice(house: Served) -> None:
    async with watching(house, EVENTS) as stream:
        await house.job("first")
        [first] = await stream.events(1)
    await house.job("meanwhile-1")
    await house.job("meanwhile-2")
    for question, headers in (("", {"Last_Event_ID": first.id}), (f"?after={first.id}", {})):
        async with watching(house, EVENTS + question, **headers) as stream:
            frames = await stream.events(2)
            await house.job(f"now-{len(question)}")
            frames += await stream.events(2 if question else 1)
        assert [name for _, name in names(frames)][:3] == ["meanwhile-1", "meanwhile-2", "now-0"]


async def test_the_header_of_a_browser_that_comes_back_is_newer_than_the_address_that_it_began_with(
    house: Served,
) -> None:
    async with watching(house, EVENTS) as stream:
        await house.job("old")
        await house.job("new")
        old, new = await stream.events(2)
    async with watching(house, f"{EVENTS}?after={int(old.id) - 1}", Last_Event_ID=old.id) as stream:
        assert (await stream.events(1))[0].id == new.id


@pytest.mark.parametrize("last", ["", "x", "-1", "1.5", "1 2", "9" * 30, "\u0661"])
async def test_a_number_that_is_none_is_as_good_as_none(house: Served, last: str) -> None:
    await house.job(f"before-{last[:9].encode().hex()}-{len(last)}")
    await told(house)
    async with watching(house, EVENTS, Last_Event_ID=last) as stream:
        await house.job(f"heard-{last[:9].encode().hex()}-{len(last)}")
        [frame] = await stream.events(1)
    assert frame.value["config_name"].startswith("heard-")


async def test_a_number_that_another_database_reported_does_not_silence_this_one(house: Served) -> None:
    async with watching(house, EVENTS, Last_Event_ID="1000000000") as stream:
        await house.job("spoken")
        [frame] = await stream.events(1)
    assert frame.value["config_name"] == "spoken"


async def test_only_events_of_one_batch_are_reported_if_that_is_asked_for(house: Served) -> None:
    async with watching(house, f"{EVENTS}?batch=fox_7") as stream, watching(house, EVENTS) as everything:
        await queue(house.store, 2, "hare_7")
        await queue(house.store, 2, "fox_7")
        await house.job("lonely")
        await everything.until(lambda frame: "lonely" in frame.data)
        frames = await stream.events(3)
    assert {frame.value["batch_id"] for frame in frames} == {"fox_7"}
    assert sorted(frame.event for frame in frames) == ["batch.created", "job.submitted", "job.submitted"]
    async with watching(house, f"{EVENTS}?batch=fox_7&after={int(frames[0].id) - 1}") as again:
        assert [frame.id for frame in await again.events(3)] == [frame.id for frame in frames]


async def test_what_another_process_does_is_reported_too(house: Served) -> None:
    file = house.workspace.root / "other.yaml"
    file.write_text(job_text(3))
    async with watching(house, EVENTS) as stream:
        await asyncio.to_thread(call_e3, "add", str(file), "-C", str(house.workspace.root))
        [frame] = await stream.events(1)
    assert names([frame]) == [("job.submitted", "other.yaml")]


async def test_many_listeners_hear_the_same_bytes_and_each_event_is_written_once(
    house: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[int] = []
    as_sent = event_feed.as_sent
    monkeypatch.setattr(event_feed, "as_sent", lambda event: written.append(event.id) or as_sent(event))
    heard = []

    async def listen() -> None:
        async with watching(house, EVENTS) as stream:
            ready.release()
            await stream.until(lambda frame: "crowd-19" in frame.data)
            heard.append(stream.heard)

    ready = asyncio.Semaphore(0)
    listeners = [asyncio.create_task(listen()) for _ in range(12)]
    for _ in listeners:
        await ready.acquire()
    await house.store.run(ops.submit_jobs, [wish(f"crowd-{number:02}") for number in range(20)])
    await asyncio.gather(*listeners)
    assert len(heard) == 12
    assert len(set(heard)) == 1
    assert len(written) == len(set(written)) == 20


async def test_a_stream_on_which_nothing_happens_says_that_all_is_well(
    house: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_feed, "HEARTBEAT", 0.05)
    async with watching(house, EVENTS) as stream:
        for _ in range(2):
            frame = await stream.next()
            assert frame == Frame(comment="still here")


async def test_a_stream_of_one_batch_says_that_all_is_well_while_others_are_busy(
    house: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_feed, "HEARTBEAT", 0.4)
    is_over = False

    async def busy() -> None:
        number = 0
        while not is_over:
            await house.job(f"busy-{(number := number + 1)}")
            await asyncio.sleep(0.05)

    working = asyncio.create_task(busy())
    try:
        async with watching(house, f"{EVENTS}?batch=quiet_1") as stream:
            assert await stream.next(timeout=5) == Frame(comment="still here")
    finally:
        is_over = True
        await working


@asynccontextmanager
async def deaf(house: Served, path: str) -> AsyncIterator[socket.socket]:
    """Someone who asks, and then does not read."""
    address = urlsplit(house.url)
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    made.setblocking(False)
    loop = asyncio.get_running_loop()
    try:
        await loop.sock_connect(made, (address.hostname, address.port))
        await loop.sock_sendall(made, f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
        yield made
    finally:
        made.close()


async def test_a_listener_that_does_not_read_is_let_go_and_can_come_back_where_it_was(
    house: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_feed, "MOST_BEHIND", 50)
    monkeypatch.setattr(event_feed, "AT_ONCE", 10)
    long = "x" * 60_000
    listening = house.context.event_feed
    async with deaf(house, EVENTS) as reader:
        await eventually(lambda: listening._listeners, "the listener to be known")
        for number in range(1000):
            await house.store.run(ops.submit_jobs, [wish(f"flood-{number}-{each}-{long}") for each in range(20)])
            await told(house)
            if not listening._listeners:
                break
        assert not listening._listeners, "it was never let go"
        heard = b""
        loop = asyncio.get_running_loop()
        while part := await asyncio.wait_for(loop.sock_recv(reader, 1 << 20), 10):
            heard += part
    last = [int(line[4:]) for line in heard.split(b"\n") if line.startswith(b"id: ")]
    assert last == sorted(set(last))
    newest = await house.store.run(ops.newest_event)
    async with watching(house, EVENTS, Last_Event_ID=str(last[-1])) as stream:
        rest = await stream.until(lambda frame: frame.id == str(newest))
    numbers = [int(frame.id) for frame in rest if frame.id]
    assert [*last, *numbers] == list(range(last[0], newest + 1))


async def test_a_listener_resumes_across_a_restart_of_the_page(tmp_path: Path) -> None:
    async with served(tmp_path / "house") as before, watching(before, EVENTS) as stream:
        await before.job("one")
        [one] = await stream.events(1)
        await before.job("two")
    async with served(tmp_path / "house") as after:
        await after.job("three")
        async with watching(after, EVENTS, Last_Event_ID=one.id) as stream:
            frames = await stream.events(2)
            await after.job("four")
            frames += await stream.events(1)
    assert [name for _, name in names(frames)] == ["two", "three", "four"]


@pytest.mark.timing
async def test_a_listener_hears_of_the_end_at_the_end(tmp_path: Path) -> None:
    async with served(tmp_path / "house") as place:
        streams = [watching(place, EVENTS) for _ in range(3)]
        opened = [await stream.__aenter__() for stream in streams]
        began = time.monotonic()
    assert time.monotonic() - began < 2
    for stream in opened:
        assert await stream.rest(timeout=2) == []
    for each in streams:
        await each.__aexit__(None, None, None)
