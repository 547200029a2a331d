"""What a prompt carries to its server besides its graph."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

import pytest

from comfyui_agent.engine.live_runs import PREVIEWS_WANTED, WANTED_SECONDS, want_previews
from comfyui_agent.engine.sender import WITH_PREVIEWS
from support.engine import Room


@pytest.mark.parametrize(
    ("setting", "asked"),
    [
        ("watched", [None, WITH_PREVIEWS, None]),
        ("always", [WITH_PREVIEWS] * 3),
        ("never", [None] * 3),
        (True, [WITH_PREVIEWS] * 3),
        (False, [None] * 3),
    ],
)
async def test_previews_are_asked_for_by_who_looks_when_a_prompt_is_sent(
    make_room: Callable[..., Room], setting: object, asked: list[object]
) -> None:
    """Nobody looks at first, then someone does, then they are gone."""
    room = make_room(ui={"previews": setting})
    folder = room.workspace.locks
    await room.start()

    async def send(name: str) -> None:
        await room.clock.advance(1)
        await room.submit(name)
        await room.clock.advance(0.1)
        room.comfy.render()
        await room.clock.advance(2)

    await send("a")
    want_previews(folder)
    await send("b")
    os.utime(folder / PREVIEWS_WANTED, (time.time() - WANTED_SECONDS - 1,) * 2)
    await send("c")
    assert room.comfy.extra_data == asked
