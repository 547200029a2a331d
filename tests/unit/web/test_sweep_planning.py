"""Planning for callers: one at a time, a few waiting, for a bounded time, and only while they are there."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from comfyui_agent.access.problem import Problem
from comfyui_agent.web import sweep_planning
from comfyui_agent.web.sweep_planning import Planning
from support.web import eventually


class Asking:
    """A request whose caller can leave."""

    def __init__(self) -> None:
        self.gone = asyncio.Event()

    async def receive(self) -> dict[str, str]:
        await self.gone.wait()
        return {"type": "http.disconnect"}


class Work:
    """Goes on until it is told to end."""

    def __init__(self) -> None:
        self.began = threading.Event()
        self.ended = threading.Event()

    def __call__(self, look_up: Callable[[], None]) -> None:
        self.began.set()
        try:
            while not self.ended.wait(0.001):
                look_up()
        finally:
            self.ended.set()


def planned(made: Planning, work: Any, asking: Asking | None = None, who: str = "everyone") -> asyncio.Task[Any]:
    return asyncio.ensure_future(made.run(work, who, asking or Asking()))  # type: ignore[arg-type]


async def refused(task: asyncio.Task[Any]) -> Problem:
    with pytest.raises(Problem) as found:
        await asyncio.wait_for(task, 10)
    return found.value


async def test_a_plan_is_made_and_its_errors_come_back() -> None:
    made = Planning()
    assert await planned(made, lambda _: 7) == 7
    with pytest.raises(ZeroDivisionError):
        await planned(made, lambda _: 1 // 0)
    assert not made._waiting.total()


async def test_it_ends_when_its_caller_is_gone() -> None:
    made, asking, work = Planning(), Asking(), Work()
    task = planned(made, work, asking)
    await eventually(work.began.is_set, "the work")
    asking.gone.set()
    assert (await refused(task)).status == 400
    await eventually(work.ended.is_set, "the end of the work")
    assert await planned(made, lambda _: "next") == "next"


async def test_it_ends_after_its_time_and_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep_planning, "SECONDS", 0.05)
    made, work = Planning(), Work()
    task = planned(made, work)
    problem = await refused(task)
    if work.began.is_set():
        assert (problem.status, "takes longer than" in problem.detail) == (409, True)
        await eventually(work.ended.is_set, "the end of the work")


async def test_callers_take_turns() -> None:
    made, may, order = Planning(), threading.Event(), list[str]()

    def work(who: str) -> Callable[[Any], Any]:
        return lambda _: may.wait(60) and order.append(who)

    waiting = [planned(made, work(who), who=who) for who in ("token 1", "token 1", "token 1", "token 2", "token 2")]
    await asyncio.sleep(0.02)
    may.set()
    await asyncio.gather(*waiting)
    assert order == ["token 1", "token 2", "token 1", "token 2", "token 1"]


async def test_one_that_waits_too_long_for_its_turn_says_what_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    made, may = Planning(), threading.Event()
    busy = planned(made, lambda _: may.wait(60))
    await asyncio.sleep(0)
    monkeypatch.setattr(sweep_planning, "SECONDS", 0.02)
    problem = await refused(planned(made, lambda _: None))
    assert (problem.status, problem.headers["Retry-After"]) == (503, "5")
    assert "too many sweeps are being planned" in problem.detail
    may.set()
    await busy


async def test_a_few_may_wait_and_one_caller_leaves_places_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep_planning, "MOST_WAITING", 4)
    monkeypatch.setattr(sweep_planning, "MOST_EACH", 3)
    made, may = Planning(), threading.Event()
    waiting = [planned(made, lambda _: may.wait(60), who="token 1") for _ in range(3)]
    await asyncio.sleep(0)
    assert "too many of your sweeps" in (await refused(planned(made, int, who="token 1"))).detail
    waiting.append(planned(made, lambda _: may.wait(60), who="token 2"))
    await asyncio.sleep(0)
    problem = await refused(planned(made, int, who="token 3"))
    assert (problem.status, "4 wait already" in problem.detail) == (503, True)
    may.set()
    await asyncio.gather(*waiting)
