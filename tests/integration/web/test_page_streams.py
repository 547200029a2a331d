"""/stream: an open page hears what has changed on it, rendered once for everyone who looks."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio

from comfyui_agent.store.errors import DatabaseAway
from comfyui_agent.web import live_pages, site
from comfyui_agent.web.screens import Fragment, NoScreen, Screen, View
from support.web import Frame, Keys, Served, Stream, check_problem, eventually, served, watching

pytestmark = pytest.mark.asyncio(loop_scope="module")

QUEUE = "/stream?page=/queue"


@pytest_asyncio.fixture(autouse=True, loop_scope="module")
async def nobody_watches_any_more(house: Served) -> AsyncIterator[None]:
    """When a test is over, whoever looked is forgotten, and what they looked at is not rendered any more."""
    yield
    await eventually(lambda: not house.context.live_pages.watchers, "watchers that have left to be forgotten")
    assert not house.context.live_pages._topics


def fragments(frames: list[Frame]) -> dict[str, str]:
    """The newest of each part."""
    return {part["id"]: part["html"] for frame in frames if frame.event == "fragments" for part in frame.value}


async def first(stream: Stream) -> dict[str, str]:
    return fragments(await stream.until(lambda frame: frame.event == "fragments"))


async def until_told(stream: Stream, words: str) -> list[Frame]:
    return await stream.until(lambda frame: words in frame.data)


async def test_an_open_page_hears_every_part_first_and_then_what_has_changed(house: Served) -> None:
    async with watching(house, QUEUE) as stream:
        parts = await first(stream)
        assert "sentence" in parts
        for name in ("one", "two", "three"):
            await house.job(f"queued-{name}")
            frames = await until_told(stream, f"queued-{name}")
            for frame in frames:
                for part in frame.value if frame.event == "fragments" else []:
                    assert parts.get(part["id"]) != part["html"], "what has not changed is not sent"
                    parts[part["id"]] = part["html"]


async def test_a_page_on_which_nothing_happens_comes_to_rest(house: Served) -> None:
    async with watching(house, QUEUE) as stream:
        await first(stream)
        rested = False
        for _ in range(4):  # servers are looked at, too
            try:
                await stream.next(timeout=3 * live_pages.TICK)
            except asyncio.TimeoutError:
                rested = True
                break
        assert rested


async def test_a_part_is_rendered_once_for_everyone_who_looks_at_the_same_page(
    house: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts_rendered: list[str] = []
    render = live_pages.render_fragment

    def render_and_count(fragment: Fragment, view: View) -> str:
        parts_rendered.append(fragment.id)
        return render(fragment, view)

    monkeypatch.setattr(live_pages, "render_fragment", render_and_count)

    async def rendered(count: int, name: str) -> int:
        async with AsyncExitStack() as stack:
            streams = [await stack.enter_async_context(watching(house, QUEUE)) for _ in range(count)]
            seen = [await first(stream) for stream in streams]
            assert all(parts.keys() == seen[0].keys() for parts in seen)
            parts_rendered.clear()
            await house.job(name)
            heard = [await until_told(stream, name) for stream in streams]
            assert len({frame.data for frames in heard for frame in frames[-1:]}) == 1
            return len(parts_rendered)

    alone, together = await rendered(1, "seen-by-one"), await rendered(30, "seen-by-thirty")
    assert 0 < together <= 3 * alone


@pytest.mark.timing
async def test_a_page_is_rendered_at_most_four_times_a_second_however_much_happens(house: Served) -> None:
    async with watching(house, QUEUE) as stream:
        await first(stream)
        is_over = False

        async def busy() -> None:
            number = 0
            while not is_over:
                await house.job(f"hurry-{(number := number + 1):04}")
                await asyncio.sleep(0)

        working = asyncio.create_task(busy())
        began, told = time.monotonic(), 0
        while time.monotonic() - began < 1.5:
            frame = await stream.next()
            told += frame is not None and frame.event == "fragments"
        is_over = True
        passed = time.monotonic() - began
        await working
    assert 1 <= told <= passed * 4 + 1


async def test_users_and_admins_are_shown_each_their_own_page(locked_house: tuple[Served, Keys]) -> None:
    house, keys = locked_house
    page = "/stream?page=/servers"
    async with (
        watching(house, page, Authorization=f"Bearer {keys.user}") as theirs,
        watching(house, page, Authorization=f"Bearer {keys.admin}") as mine,
    ):
        user, admin = await first(theirs), await first(mine)
    assert "/pause" in str(admin)
    assert "/pause" not in str(user)


async def test_filters_of_a_page_are_filters_of_its_stream(house: Served) -> None:
    await house.job("filtered-one")
    await house.job("filtered-two")
    async with watching(house, "/stream?page=/queue%3Fq%3Dfiltered-two") as stream:
        shown = str(await first(stream))
    assert "filtered-two" in shown
    assert "filtered-one" not in shown


async def test_what_cannot_be_shown_any_more_is_said_and_what_can_again_is_shown(
    house: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    errors: list[Exception] = []
    pattern, queue = next((pattern, each) for pattern, each in site.PATTERNS if each.path == "/queue")

    async def build(view: View) -> Screen:
        if errors:
            raise errors[-1]
        return await queue.build(view)

    monkeypatch.setattr(site, "PATTERNS", [(pattern, replace(queue, build=build))])
    async with watching(house, "/stream?page=/queue%3Fq%3Dseen-again") as stream:
        await first(stream)
        for error, event, words in (
            (DatabaseAway("the database is locked"), "trouble", "locked"),
            (NoScreen("the page was torn out"), "gone", "torn out"),
            (ZeroDivisionError("secret"), "trouble", "could not be drawn"),
        ):
            errors.append(error)
            await house.job(f"unseen-{words.replace(' ', '-')}")
            frames = await until_told(stream, words)
            assert frames[-1].event == event
            assert "secret" not in frames[-1].data
        errors.clear()
        await house.job("seen-again")
        await until_told(stream, "seen-again")


async def test_more_pages_than_can_be_served_are_refused(house: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_pages, "MOST_WATCHERS", 1)
    async with watching(house, QUEUE):
        said = check_problem(await house.get(QUEUE), 503)
        assert said["detail"] == "too many pages are open: 1"


async def test_a_page_that_is_quiet_says_that_all_is_well(house: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_pages, "HEARTBEAT", 0.05)
    async with watching(house, QUEUE) as stream:
        await stream.until(lambda frame: frame.event == "beat")


@pytest.mark.timing
async def test_the_page_ends_within_two_seconds_with_fifty_streams_open_and_says_goodbye(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        async with served(tmp_path / "house") as place:
            pages = [await stack.enter_async_context(watching(place, QUEUE)) for _ in range(25)]
            events = [await stack.enter_async_context(watching(place, "/api/v1/events")) for _ in range(25)]
            began = time.monotonic()
        assert time.monotonic() - began < 2
        for stream in pages:
            frames = await stream.rest(timeout=2)
            assert frames[-1].event == "bye"
        for stream in events:
            assert await stream.rest(timeout=2) == []
