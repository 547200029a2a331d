"""Living pages: rendered once for all, only what has changed, not too often, and never for nobody."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from comfyui_agent.access.problem import Problem
from comfyui_agent.domain.tokens import Role
from comfyui_agent.store.errors import DatabaseAway
from comfyui_agent.web import live_pages
from comfyui_agent.web.live_pages import LivePages
from comfyui_agent.web.screens import Fragment, NoScreen, Screen, View

FIRST = b": a page of E3\nretry: 1000\n\n"


class World:
    """A store and a fleet that change when they are told to, and a screen of them."""

    def __init__(self) -> None:
        self.version = 1
        self.watching = 0
        self.words = {"left": "a", "right": "b"}
        self.keys: dict[str, Any] = {}
        self.error: Exception | None = None
        self.built = 0

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        self.watching += 1
        try:
            yield
        finally:
            self.watching -= 1

    def change(self, **words: str) -> None:
        self.words |= words
        self.version += 1

    async def build(self, view: View) -> Screen:
        self.built += 1
        if self.error is not None:
            raise self.error
        parts = tuple(
            Fragment(name, {"sentence": f"{words} for {view.role}"}, self.keys.get(name), "sentence.html")
            for name, words in self.words.items()
        )
        return Screen("layout.html", "a title", "how it stands", parts)


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
async def rendering(world: World, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[LivePages]:
    monkeypatch.setattr(live_pages, "TICK", 0.01)
    made = LivePages(world, world)  # type: ignore[arg-type]
    task = asyncio.create_task(made.keep_rendering())
    yield made
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def view(path: str = "/queue", role: Role = Role.USER, **query: str) -> View:
    return View(None, role, path, {}, tuple(query.items()))  # type: ignore[arg-type]


async def heard(stream: AsyncIterator[bytes]) -> tuple[str, Any]:
    """The next event, and what it says."""
    part = (await asyncio.wait_for(anext(stream), 5)).decode("utf-8")
    if part.startswith(":"):
        return "", part
    event, data = part.removesuffix("\n\n").split("\n")
    assert "\n" not in data
    return event.removeprefix("event: "), json.loads(data.removeprefix("data: "))


async def parts(stream: AsyncIterator[bytes]) -> dict[str, str]:
    event, said = await heard(stream)
    assert event == "fragments", said
    return {part["id"]: part["html"] for part in said}


async def test_a_page_hears_everything_first_and_then_only_what_has_changed(rendering: LivePages, world: World) -> None:
    stream = rendering.watch(view(), world.build)
    assert await anext(stream) == FIRST
    assert (await parts(stream)).keys() == {"sentence", "left", "right"}
    world.change(left="c")
    assert list(await parts(stream)) == ["left"]
    world.change()
    world.change(right="d")
    assert list(await parts(stream)) == ["right"]
    await stream.aclose()


@pytest.fixture
def rendered(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The id of every part that was rendered."""
    found: list[str] = []
    render = live_pages.render_fragment

    def count(fragment: Fragment, view: View) -> str:
        found.append(fragment.id)
        return render(fragment, view)

    monkeypatch.setattr(live_pages, "render_fragment", count)
    return found


async def test_a_part_whose_key_is_the_same_is_not_rendered_again(
    rendering: LivePages, world: World, rendered: list[str]
) -> None:
    world.keys = {"left": 1}
    stream = rendering.watch(view(), world.build)
    await anext(stream)
    await parts(stream)
    rendered.clear()
    world.change(left="unseen", right="seen")
    assert list(await parts(stream)) == ["right"]
    assert rendered == ["sentence", "right"]
    world.keys = {"left": 2}
    world.change()
    assert "unseen" in (await parts(stream))["left"]
    await stream.aclose()


async def test_many_who_look_at_the_same_cost_as_much_as_one(
    rendering: LivePages, world: World, rendered: list[str]
) -> None:
    streams = [rendering.watch(view(), world.build) for _ in range(50)]
    for stream in streams:
        await anext(stream)
        await parts(stream)
    assert rendering.watchers == 50
    rendered.clear()
    world.change(left="c")
    found = [await anext(stream) for stream in streams]
    assert len(set(found)) == 1
    assert len(rendered) == 3
    for stream in streams:
        await stream.aclose()
    assert rendering.watchers == 0


async def test_another_role_another_page_or_another_filter_is_another_screen(
    rendering: LivePages, world: World
) -> None:
    streams = [
        rendering.watch(each, world.build)
        for each in (view(), view(role=Role.ADMIN), view("/books"), view(status="failed"))
    ]
    for stream in streams:
        await anext(stream)
    found = [await parts(stream) for stream in streams]
    assert "for user" in found[0]["left"]
    assert "for admin" in found[1]["left"]
    assert world.built == 4
    for stream in streams:
        await stream.aclose()


async def test_nothing_is_rendered_for_nobody_and_servers_are_left_alone(rendering: LivePages, world: World) -> None:
    stream = rendering.watch(view(), world.build)
    await anext(stream)
    await parts(stream)
    assert world.watching == 1
    await stream.aclose()
    assert (world.watching, rendering.watchers) == (0, 0)
    before = world.built
    world.change(left="c")
    await asyncio.sleep(0.05)
    assert world.built == before


async def test_nothing_is_built_while_nothing_has_changed_but_now_and_then(
    rendering: LivePages, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = rendering.watch(view(), world.build)
    await anext(stream)
    await parts(stream)
    before = world.built
    await asyncio.sleep(0.1)
    assert world.built == before
    monkeypatch.setattr(live_pages, "ANYWAY_SECONDS", 0.02)
    world.words["left"] = "later"
    assert list(await parts(stream)) == ["left"]
    await stream.aclose()


async def test_a_slow_reader_gets_the_newest_of_each_part_once(rendering: LivePages, world: World) -> None:
    stream, quick = rendering.watch(view(), world.build), rendering.watch(view(), world.build)
    for each in (stream, quick):
        await anext(each)
        await parts(each)
    for number in range(5):
        world.change(left=f"left {number}", right=f"right {number % 2}")
        await parts(quick)
    found = await parts(stream)
    assert found.keys() == {"left", "right"}
    assert "left 4" in found["left"]
    for each in (stream, quick):
        await each.aclose()


async def test_a_late_listener_hears_everything_at_once(rendering: LivePages, world: World) -> None:
    early = rendering.watch(view(), world.build)
    await anext(early)
    await parts(early)
    before = world.built
    late = rendering.watch(view(), world.build)
    await anext(late)
    assert (await parts(late)).keys() == {"sentence", "left", "right"}
    assert world.built == before
    for each in (early, late):
        await each.aclose()


@pytest.mark.parametrize(
    ("error", "event", "words"),
    [
        (DatabaseAway("the database is locked"), "trouble", "the database is locked"),
        (NoScreen("it is gone"), "gone", "it is gone"),
        (ZeroDivisionError("secret"), "trouble", "the page could not be drawn: the log of e3 says more"),
    ],
)
async def test_what_keeps_a_page_from_being_drawn_is_reported_and_passes(
    rendering: LivePages, world: World, error: Exception, event: str, words: str
) -> None:
    stream, other = rendering.watch(view(), world.build), rendering.watch(view("/books"), World().build)
    for each in (stream, other):
        await anext(each)
        await parts(each)
    world.error = error
    world.change(left="c")
    assert await heard(stream) == (event, {"message": words})
    world.error = None
    world.change()
    assert list(await parts(stream)) == ["left"]
    for each in (stream, other):
        await each.aclose()


async def test_a_quiet_page_is_told_that_all_is_well(
    rendering: LivePages, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = rendering.watch(view(), world.build)
    await anext(stream)
    await parts(stream)
    monkeypatch.setattr(live_pages, "HEARTBEAT", 0.02)
    assert await heard(stream) == ("beat", {"behind": 0})
    await stream.aclose()


async def test_at_the_end_every_stream_is_closed_with_goodbye(rendering: LivePages, world: World) -> None:
    streams = [rendering.watch(view(), world.build) for _ in range(3)]
    for stream in streams:
        await anext(stream)
        await parts(stream)
    await rendering.close()
    for stream in streams:
        assert await heard(stream) == ("bye", {})
        assert await anext(stream, None) is None
    late = rendering.watch(view(), world.build)
    assert await anext(late) == FIRST
    assert await heard(late) == ("bye", {})


async def test_more_pages_than_can_be_served_are_refused_before_anything_is_sent(
    rendering: LivePages, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_pages, "MOST_WATCHERS", 2)
    streams = [rendering.watch(view(), world.build) for _ in range(2)]
    for stream in streams:
        await anext(stream)
    with pytest.raises(Problem):
        rendering.watch(view(), world.build)
    for stream in streams:
        await stream.aclose()
    late = rendering.watch(view(), world.build)
    assert await anext(late) == FIRST
    await late.aclose()


async def test_half_characters_and_line_breaks_do_not_break_the_stream(rendering: LivePages, world: World) -> None:
    world.words = {"left": "a\nb\r\u2028\ud800é"}
    stream = rendering.watch(view(), world.build)
    await anext(stream)
    assert "é" in (await parts(stream))["left"]
    await stream.aclose()


@pytest.mark.parametrize(("spent", "pause"), [(0.0, live_pages.TICK), (0.05, 0.2), (0.5, 1.5)])
async def test_rendering_takes_at_most_its_share_of_the_time_and_four_turns_a_second(
    world: World, monkeypatch: pytest.MonkeyPatch, spent: float, pause: float
) -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        raise asyncio.CancelledError

    async def render() -> float:
        return spent

    made = LivePages(world, world)  # type: ignore[arg-type]
    monkeypatch.setattr(made, "_render_due", render)
    monkeypatch.setattr(live_pages.asyncio, "sleep", sleep)
    with pytest.raises(asyncio.CancelledError):
        await made.keep_rendering()
    assert slept == [pytest.approx(pause)]


async def test_where_there_is_not_time_for_all_pages_each_has_its_turn(
    rendering: LivePages, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_pages, "AT_A_TIME", -1.0)
    streams = [rendering.watch(view(f"/{number}"), world.build) for number in range(5)]
    for stream in streams:
        await anext(stream)
    for words in ("c", "d"):
        for stream in streams:
            assert "left" in await parts(stream)
        world.change(left=words)
    for stream in streams:
        await stream.aclose()


async def test_more_kinds_of_pages_than_can_be_served_are_refused_but_not_one_that_is_open(
    rendering: LivePages, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_pages, "MOST_TOPICS", 1)
    first = rendering.watch(view(), world.build)
    await anext(first)
    with pytest.raises(Problem):
        rendering.watch(view("/books"), world.build)
    again = rendering.watch(view(), world.build)
    assert await anext(again) == FIRST
    for stream in (first, again):
        await stream.aclose()


async def test_one_caller_leaves_pages_and_kinds_of_pages_for_others(
    rendering: LivePages, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_pages, "MOST_TOPICS", 8)
    monkeypatch.setattr(live_pages, "MOST_WATCHERS", 16)
    streams = [rendering.watch(view(f"/{number}"), world.build, "token 1") for number in range(2)]
    for stream in streams:
        await anext(stream)
    with pytest.raises(Problem, match="too many different pages of yours are open: 2"):
        rendering.watch(view("/2"), world.build, "token 1")
    streams += [rendering.watch(view("/0"), world.build, "token 1") for _ in range(2)]
    late = rendering.watch(view("/0"), world.build, "token 1")
    for stream in streams[2:]:
        await anext(stream)
    assert await anext(late, None) is None, "others came first"
    with pytest.raises(Problem, match="too many of your pages are open: 4"):
        rendering.watch(view("/0"), world.build, "token 1")
    streams.append(rendering.watch(view("/2"), world.build, "token 2"))
    assert await anext(streams[-1]) == FIRST
    for stream in streams:
        await stream.aclose()
