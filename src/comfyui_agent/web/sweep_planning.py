"""Plans sweeps for callers: one at a time, in a thread, for a bounded time, and only while the caller waits."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from fastapi import Request

from comfyui_agent.access.gate import EVERYONE
from comfyui_agent.access.limits import Turns
from comfyui_agent.access.problem import TOO_MUCH, Problem, ended_early, short_of
from comfyui_agent.pools import Pool
from comfyui_agent.usecases.sweeps import CheckCancelled

T = TypeVar("T")

SECONDS = 10.0
MOST_WAITING = 8
MOST_EACH = 4


class _Ended(Exception):
    """The caller is gone, or the time is over."""


class Planning:
    """Has one thread. Callers take turns; only a few may wait, and only some of them for the same caller."""

    def __init__(self) -> None:
        self._thread = Pool("e3-plan", 1)
        self._turns = Turns(at_once=1)
        self._waiting: Counter[str] = Counter()

    async def run(self, work: Callable[[CheckCancelled], T], scope: str, request: Request) -> T:
        """Do the work. Problem if too many wait already, if it takes too long, or if the caller is gone."""
        if self._waiting.total() >= MOST_WAITING:
            raise short_of(f"too many sweeps are being planned: {MOST_WAITING} wait already", seconds=2)
        if scope != EVERYONE and self._waiting[scope] >= MOST_EACH:
            raise short_of(f"too many of your sweeps are being planned: {MOST_EACH} wait already", seconds=2)
        ends, has_begun = threading.Event(), threading.Event()

        def look_up() -> None:
            if ends.is_set():
                raise _Ended

        def begin() -> T:
            has_begun.set()
            look_up()
            return work(look_up)

        async def in_turn() -> T:
            async with self._turns.turn(scope):
                return await self._thread.run(begin)

        self._waiting[scope] += 1
        planning = asyncio.ensure_future(in_turn())
        leaving = asyncio.ensure_future(_left(request))
        try:
            await asyncio.wait({planning, leaving}, timeout=SECONDS, return_when=asyncio.FIRST_COMPLETED)
            if planning.done():
                return planning.result()
        finally:
            ends.set()
            planning.cancel()
            leaving.cancel()
            self._waiting[scope] -= 1
        if leaving.done() and not leaving.cancelled():
            raise ended_early()
        if not has_begun.is_set():
            raise short_of(f"too many sweeps are being planned: this one had no turn for {SECONDS:.0f} s")
        raise Problem(
            409,
            f"planning this sweep takes longer than {SECONDS:.0f} s",
            "Give fewer values, or queue it with e3 sweep.",
            kind=TOO_MUCH,
        )


@dataclass(frozen=True)
class CallersPlanner:
    planning: Planning
    scope: str
    request: Request

    async def run(self, work: Callable[[CheckCancelled], T]) -> T:
        return await self.planning.run(work, self.scope, self.request)


async def _left(request: Request) -> None:
    """Wait until the caller is gone. The body has been read, so nothing else can come."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
