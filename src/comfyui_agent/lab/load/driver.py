"""Sends the prompts of a level: so many at once, so many a minute, or so many books."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any, Protocol, TypeVar

from comfyui_agent.comfy.tasks import end_tasks
from comfyui_agent.domain.failures import FailureClass
from comfyui_agent.lab.load.measurement import LevelRun
from comfyui_agent.lab.load.plan import LoadPlan, Mode
from comfyui_agent.lab.load.prompt_runner import REJECTED, Rendering, Target, rejection, take_all_back
from comfyui_agent.lab.reports.load import Row

GIVE_UP_SECONDS = 30.0
Result = TypeVar("Result")


class Onlooker(Protocol):
    """Is called when a level begins and ends, and for each prompt that is sent and that ends."""

    def began(self, level: float, jobs: int | None) -> None: ...

    def sent(self) -> None: ...

    def ended(self, row: Row) -> None: ...

    def ended_level(self, run: LevelRun) -> None: ...


class Driver:
    """Drives the levels of one plan. The rows of a level that was cancelled stay in `rows`."""

    def __init__(self, plan: LoadPlan, targets: Sequence[Target], rendering: Rendering, onlooker: Onlooker) -> None:
        self._plan = plan
        self._targets = targets
        self._rendering = rendering
        self._onlooker = onlooker
        self._arrivals = random.Random(plan.seed + 1)
        self._index = 0
        self._turn = 0
        self._completed = 0
        self.left: list[str] = []
        """Ids of prompts that could not be taken back."""
        self.rows: list[Row] = []
        self.levels: list[LevelRun] = []
        self.lateness: list[float] = []
        """By how much each arrival of an open loop was sent too late."""
        self._answered_at = 0.0
        self.gave_up = False
        """Whether every server was lost for so long that the rest was not sent."""

    @property
    def unfinished(self) -> int:
        """Prompts that were sent and did not end."""
        return self._index - sum(len(level.rows) for level in self.levels) - len(self.rows)

    async def drive(self, level: float) -> LevelRun:
        self.rows = []
        began = self._answered_at = time.monotonic()
        is_whole = False
        try:
            await self._send_level(level)
            is_whole = not self.gave_up
        finally:
            self.left += await take_all_back(self._targets)
            rows = tuple(sorted(self.rows, key=lambda row: row.index))
            start = self._rendering.clock.seconds_of(began)
            wall = max((row.ended_seconds for row in rows), default=start) - start
            run = LevelRun(level, rows, wall, is_whole)
            self.levels.append(run)
            self.rows = []
        return run

    async def _send_level(self, level: float) -> None:
        if self._plan.mode is Mode.OPEN:
            await self._arrive(level)
        elif self._plan.mode is Mode.BOOKS:
            pages = 1 if self._plan.parallel_pages else self._plan.pages
            queues = int(level) * self._plan.pages // pages
            await run_together(self._work_off(Countdown(pages, None), level) for _ in range(queues))
        else:
            jobs = self._plan.jobs_of(level)
            left = Countdown(jobs, self._plan.duration)
            workers = int(level) if jobs is None else min(int(level), jobs)
            await run_together(self._work_off(left, level) for _ in range(workers))

    async def _work_off(self, left: Countdown, level: float) -> None:
        while not self.gave_up and left.take():
            await self._one(level)

    async def _arrive(self, per_minute: float) -> None:
        """Send prompts at their times, whatever becomes of the others."""
        left = Countdown(self._plan.jobs_of(per_minute), self._plan.duration)
        gap = 60.0 / per_minute
        due = time.monotonic()
        tasks: set[asyncio.Task[None]] = set()
        failed: list[asyncio.Task[None]] = []

        def reap(task: asyncio.Task[None]) -> None:
            tasks.discard(task)
            if not task.cancelled() and task.exception() is not None:
                failed.append(task)

        try:
            while left.take(due) and not failed:
                await asyncio.sleep(max(0.0, due - time.monotonic()))
                self.lateness.append(max(0.0, time.monotonic() - due))
                task = asyncio.create_task(self._one(per_minute))
                tasks.add(task)
                task.add_done_callback(reap)
                due += gap if self._plan.even_arrivals else self._arrivals.expovariate(1.0 / gap)
            await asyncio.gather(*failed, *tasks)
        finally:
            await end_tasks([*tasks])

    async def _one(self, level: float) -> None:
        await self._until_one_is_ready()
        if self.gave_up:
            return
        index, self._index = self._index, self._index + 1
        target = self._next_target()
        self._onlooker.sent()
        row = await self._rendering.render(target, index, level)
        self._completed += row.is_completed
        if row.failure_class != FailureClass.SERVER_LOST.value:
            self._answered_at = time.monotonic()
        if self._plan.warmup == 0 and not self._completed and row.failure_class in REJECTED:
            raise rejection(row)
        self.rows.append(row)
        self._onlooker.ended(row)

    def _next_target(self) -> Target:
        """The server with the least to do, of those that were not lost just now. Equals take turns."""
        now = time.monotonic()
        ready = [target for target in self._targets if target.rests_until <= now] or self._targets
        least = min(len(target.open) for target in ready)
        self._turn += 1
        order = [ready[(self._turn + number) % len(ready)] for number in range(len(ready))]
        return next(target for target in order if len(target.open) == least)

    async def _until_one_is_ready(self) -> None:
        """In a closed loop, wait while all servers are lost. An open loop sends all the same."""
        soonest = min(target.rests_until for target in self._targets)
        if self._plan.mode is Mode.OPEN or soonest <= time.monotonic():
            return
        if time.monotonic() - self._answered_at > GIVE_UP_SECONDS:
            self.gave_up = True
        else:
            await asyncio.sleep(soonest - time.monotonic())


async def run_together(works: Iterable[Coroutine[Any, Any, Result]]) -> list[Result]:
    """Run all at once. If one fails, or this is cancelled, all of them end."""
    tasks = [asyncio.create_task(work) for work in works]
    try:
        return await asyncio.gather(*tasks)
    finally:
        await end_tasks(tasks)


class Countdown:
    """How many prompts are left: by number, by time, or by whichever ends first."""

    def __init__(self, count: int | None, seconds: float | None, now: Callable[[], float] = time.monotonic) -> None:
        self._left = count
        self._now = now
        self._until = None if seconds is None else now() + seconds

    def take(self, due: float | None = None) -> bool:
        """Whether one more may be sent, now or at `due`."""
        if self._until is not None and max(self._now(), due or 0.0) >= self._until:
            return False
        if self._left is None:
            return self._until is not None
        self._left -= 1
        return self._left >= 0
