"""Long polling: requests that wait until a job or a batch has ended, woken by the events that are followed anyway."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Annotated

from fastapi import Query, Request

from comfyui_agent.access.gate import Caller
from comfyui_agent.access.problem import ended_early
from comfyui_agent.clock import SYSTEM_CLOCK
from comfyui_agent.web.event_feed import EventFeed

MOST_SECONDS = 50
LOOK_SECONDS = 2.0
"""How often a waiting request looks whether its caller is gone."""
Seconds = Annotated[int, Query(ge=0, le=MOST_SECONDS, description="It answers after this time, ended or not.")]


async def until_ended(
    feed: EventFeed,
    request: Request,
    caller: Caller,
    subject: int | str,
    has_ended: Callable[[], Awaitable[bool]],
    seconds: int,
) -> bool:
    """Wait until the job with this id, or the batch, has ended, and say whether it has.

    The database is asked at first, and at an event of it. A page that stops ends the waiting.
    """
    request.state.end_turn()  # others of its address are answered meanwhile
    until = time.monotonic() + seconds
    with feed.waiting_for(subject, caller.scope) as woken:
        while not await has_ended():
            while not woken.is_set():
                left = until - time.monotonic()
                if left <= 0 or feed.is_closed:
                    return False
                if await request.is_disconnected():
                    raise ended_early()
                await SYSTEM_CLOCK.wait_for(woken, min(left, LOOK_SECONDS))
            if feed.is_closed:
                return False
            woken.clear()
    return True
