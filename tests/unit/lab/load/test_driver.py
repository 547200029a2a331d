"""Driving: never more at once than was asked for, arrivals that wait for nothing, and an end that leaves nothing."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from comfyui_agent.lab.load import driver
from comfyui_agent.lab.load.driver import Countdown, Driver
from comfyui_agent.lab.load.plan import LoadPlan, Mode
from comfyui_agent.lab.load.prompt_runner import Rendering, Target
from comfyui_agent.lab.measurement.machine import RunClock
from comfyui_agent.lab.payloads import Payload
from comfyui_agent.lab.reports.load import Row, RowStatus

PAGE = Payload.of("page", {"1": {"class_type": "X", "inputs": {"seed": 1}}})


def target(name: str = "http://x") -> Target:
    return Target(Client(name), (PAGE,))  # type: ignore[arg-type]


class Client:
    """A server that takes everything back and does nothing else."""

    def __init__(self, name: str) -> None:
        self.address = name
        self.cancelled: list[str] = []

    async def cancel_all(self, prompt_ids: Any, timeout: float = 0.0) -> frozenset[str]:
        del timeout
        self.cancelled += sorted(prompt_ids)
        return frozenset()

    async def cancel(self, prompt_id: str, timeout: float = 0.0) -> None:
        del timeout
        self.cancelled.append(prompt_id)


@dataclass
class Fake:
    """Renders in no time, or as told; it knows how much went on at once."""

    work: Callable[[int], Awaitable[Any]] = lambda _: asyncio.sleep(0)
    clock: RunClock = field(default_factory=RunClock)
    now: int = 0
    most: int = 0
    sent: list[tuple[float, int, str]] = field(default_factory=list)

    async def render(self, target: Target, index: int, level: float = 0.0) -> Row:
        began = time.monotonic()
        self.sent.append((began, index, target.name))
        target.open.add(f"id{index}")  # type: ignore[arg-type]
        self.now += 1
        self.most = max(self.most, self.now)
        await self.work(index)
        self.now -= 1
        target.open.discard(f"id{index}")  # type: ignore[arg-type]
        ended = time.monotonic() - began
        seconds = self.clock.seconds_of(began)
        return Row(
            index=index,
            prompt_id=f"id{index}",
            status=RowStatus.COMPLETED,
            duration_sec=ended,
            server=target.name,
            level=level,
            seconds=seconds,
        )


class Nobody:
    def sent(self) -> None: ...

    def ended(self, row: Row) -> None: ...


def driver_of(fake: Any, *targets: Target, watcher: Any = None, **plan: Any) -> Driver:
    targets = targets or (target(),)
    made = LoadPlan(tuple(each.name for each in targets), (PAGE,), **plan)
    return Driver(made, targets, fake, watcher or Nobody())


async def until(condition: Callable[[], bool], turns: int = 100_000) -> None:
    """Let the others work, a turn of the loop at a time: what is over in this turn is seen in the next."""
    for _ in range(turns):
        if condition():
            return
        await asyncio.sleep(0)
    pytest.fail("it never came to that")


async def end_soon(task: asyncio.Task[Any], seconds: float = 1.0) -> None:
    """Cancel as a signal does, once, and see that it ends."""
    task.cancel()
    _, pending = await asyncio.wait({task}, timeout=seconds)
    if pending:
        while not task.done():
            task.cancel()
            await asyncio.wait({task}, timeout=0.1)
        pytest.fail("it did not end when it was told to")


async def test_a_closed_loop_keeps_its_number_at_work_and_sends_what_was_asked_for() -> None:
    fake = Fake()
    run = await driver_of(fake, jobs=100, levels=(7.0,)).drive(7.0)
    assert fake.most == 7
    assert [row.index for row in run.rows] == list(range(100))
    assert {row.level for row in run.rows} == {7.0}


async def test_fewer_jobs_than_workers_are_that_many() -> None:
    fake = Fake()
    run = await driver_of(fake, jobs=3).drive(50.0)
    assert (len(run.rows), fake.most) == (3, 3)


@pytest.mark.slow
@pytest.mark.timing
async def test_a_huge_number_at_once_costs_no_more_than_the_jobs_there_are() -> None:
    began = time.process_time()
    await driver_of(Fake(), jobs=3).drive(50_000.0)
    assert time.process_time() - began < 0.2


async def test_a_duration_ends_a_closed_loop_and_what_is_at_work_is_waited_for() -> None:
    fake = Fake(lambda _: asyncio.sleep(0.02))
    run = await driver_of(fake, duration=0.1).drive(2.0)
    assert 4 <= len(run.rows) <= 12
    assert fake.now == 0
    assert run.wall_clock_sec >= 0.1


async def test_arrivals_wait_for_no_answer() -> None:
    """Nothing ends before all have arrived: coordinated omission would send one."""
    everyone = asyncio.Event()
    fake = Fake()

    async def until_all_are_there(_: int) -> None:
        if fake.now == 20:
            everyone.set()
        await asyncio.wait_for(everyone.wait(), 20)

    fake.work = until_all_are_there
    run = await driver_of(fake, mode=Mode.OPEN, jobs=20, even_arrivals=True).drive(60_000.0)
    assert (len(run.rows), fake.most) == (20, 20)


@pytest.mark.slow
@pytest.mark.timing
async def test_even_arrivals_keep_their_distance_and_late_ones_are_not_lost() -> None:
    fake = Fake()
    pressing = driver_of(fake, mode=Mode.OPEN, jobs=20, even_arrivals=True)
    await pressing.drive(6000.0)  # 10 ms
    times = [moment for moment, _, _ in fake.sent]
    assert times[-1] - times[0] == pytest.approx(0.19, abs=0.08)
    assert len(pressing.lateness) == 20


@pytest.mark.slow
@pytest.mark.timing
async def test_a_stalled_loop_sends_what_was_due_and_knows_how_late_it_was() -> None:
    fake = Fake()

    async def block_once(index: int) -> None:
        if index == 0:
            time.sleep(0.1)  # noqa: ASYNC251 - it shall stall the loop

    fake.work = block_once
    pressing = driver_of(fake, mode=Mode.OPEN, jobs=10, even_arrivals=True)
    await pressing.drive(6000.0)
    assert len(fake.sent) == 10
    assert max(pressing.lateness) >= 0.05
    assert fake.sent[-1][0] - fake.sent[0][0] < 0.25  # not pushed back by the stall


async def test_arrivals_by_chance_come_at_the_rate_that_was_asked_for() -> None:
    sleeps: list[float] = []

    async def at_once(_: int) -> None: ...

    pressing = driver_of(Fake(at_once), mode=Mode.OPEN, jobs=400, seed=5)
    clock = Clock(sleeps)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(driver, "time", clock)
        patch.setattr(driver.asyncio, "sleep", clock.sleep)
        await pressing._arrive(60.0)
    mean = clock.now / 399
    assert mean == pytest.approx(1.0, rel=0.15)
    spread = (sum((each - mean) ** 2 for each in sleeps[1:]) / 399) ** 0.5
    assert spread == pytest.approx(mean, rel=0.25)  # as distances by chance have it


class Clock:
    """A clock that goes as far as one sleeps."""

    def __init__(self, sleeps: list[float]) -> None:
        self.now = 0.0
        self._sleeps = sleeps
        self._pause = asyncio.sleep

    def monotonic(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self._sleeps.append(seconds)
        self.now += seconds
        await self._pause(0)


@pytest.mark.slow
@pytest.mark.timing
async def test_nothing_arrives_after_the_duration_is_over() -> None:
    began = time.monotonic()
    run = await driver_of(Fake(), mode=Mode.OPEN, duration=0.05, even_arrivals=True).drive(60.0)  # one a second
    assert len(run.rows) == 1
    assert time.monotonic() - began < 0.8


async def test_serial_books_have_their_pages_one_at_a_time() -> None:
    fake = Fake()
    run = await driver_of(fake, mode=Mode.BOOKS, pages=5, parallel_pages=False).drive(3.0)
    assert (len(run.rows), fake.most) == (15, 3)


async def test_usually_all_pages_of_all_books_are_in_flight() -> None:
    fake = Fake()
    run = await driver_of(fake, mode=Mode.BOOKS, pages=5).drive(3.0)
    assert (len(run.rows), fake.most) == (15, 15)


async def test_the_server_with_the_least_to_do_comes_next_and_of_equals_each_in_its_turn() -> None:
    quick, slow = target("http://quick"), target("http://slow")
    fake = Fake()
    await driver_of(fake, quick, slow, jobs=10).drive(1.0)
    assert [name for _, _, name in fake.sent].count("http://quick") == 5
    slow.open |= {f"other{number}" for number in range(5)}  # type: ignore[arg-type]
    fake.sent.clear()
    await driver_of(fake, quick, slow, jobs=10).drive(2.0)
    assert {name for _, _, name in fake.sent} == {"http://quick"}


async def test_what_was_measured_before_the_end_is_kept_and_the_rest_taken_back() -> None:
    async def stay(index: int) -> None:
        if index >= 4:
            await asyncio.sleep(60)

    where = target()
    pressing = driver_of(Fake(stay), where, jobs=100)
    task = asyncio.create_task(pressing.drive(2.0))
    await until(lambda: pressing.unfinished == 2 and len(pressing.rows) == 4)
    await end_soon(task)
    assert [row.index for row in pressing.levels[0].rows] == [0, 1, 2, 3]
    assert pressing.unfinished == 2
    assert sorted(where.client.cancelled) == ["id4", "id5"]  # type: ignore[attr-defined]


async def test_an_open_loop_that_is_ended_leaves_nothing_running() -> None:
    where = target()
    pressing = driver_of(Fake(lambda _: asyncio.sleep(60)), where, mode=Mode.OPEN, jobs=1000, even_arrivals=True)
    task = asyncio.create_task(pressing.drive(60_000.0))
    await until(lambda: pressing.unfinished >= 5)
    await end_soon(task)
    assert len(where.client.cancelled) >= 5  # type: ignore[attr-defined]
    assert not where.open
    assert len(asyncio.all_tasks()) == 1


class Outcome:
    """A prompt that succeeded without a result to fetch."""

    class results:  # noqa: N801 - as the outcome has it
        kept = ()

    cached_nodes: frozenset[str] = frozenset()
    seconds = 0.0


class Meeting(Client):
    """Its prompts end in the very moment in which somebody cancels who waits for them."""

    def __init__(self) -> None:
        super().__init__("http://meeting")
        self.submitted = 0
        self.ends: list[asyncio.Future[Any]] = []

    async def submit(self, graph: Any, prompt_id: str) -> Any:
        del graph, prompt_id
        self.submitted += 1
        end = asyncio.get_running_loop().create_future()
        self.ends.append(end)

        class Watch:
            class heard:  # noqa: N801
                start, end, moments = False, True, ()

            running_since = None

            async def outcome(self) -> Any:
                return await end

        return Watch()


async def test_a_stop_that_meets_the_end_of_a_prompt_is_not_swallowed() -> None:
    """Before Python 3.12 `wait_for` gives the result and forgets that it was cancelled."""
    client = Meeting()
    where = Target(client, (PAGE,))  # type: ignore[arg-type]
    how = Rendering(RunClock(), "run", random.Random(1), 60.0)
    pressing = driver_of(how, where, jobs=1000)
    task = asyncio.create_task(pressing.drive(1.0))
    await until(lambda: bool(client.ends))
    for _ in range(5):
        await asyncio.sleep(0)
    followed = [each for each in asyncio.all_tasks() if "_follow" in repr(each)]
    client.ends[0].set_result(Outcome())
    await until(lambda: all(each.done() for each in followed))
    await end_soon(task)
    assert client.submitted <= 2


async def test_an_error_that_nobody_foresaw_ends_the_run_and_everything_of_it() -> None:
    class Broken(Nobody):
        def ended(self, row: Row) -> None:
            if row.index == 3:
                raise RuntimeError("no")

    for mode in (Mode.CLOSED, Mode.OPEN):
        fake = Fake(lambda _: asyncio.sleep(0.01))
        pressing = driver_of(fake, mode=mode, jobs=50, even_arrivals=True, watcher=Broken())
        with pytest.raises(RuntimeError, match="no"):
            await pressing.drive(4.0 if mode is Mode.CLOSED else 60_000.0)
        left = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        assert not left


def test_the_countdown_ends_by_number_by_time_or_by_whichever_is_first() -> None:
    moment = [0.0]

    def now() -> float:
        return moment[0]

    by_number = Countdown(2, None, now)
    assert [by_number.take() for _ in range(4)] == [True, True, False, False]
    by_time = Countdown(None, 5.0, now)
    both = Countdown(1, 5.0, now)
    assert by_time.take()
    assert both.take()
    assert not both.take()
    moment[0] = 5.0
    assert not by_time.take()
    assert not Countdown(None, None, now).take()
