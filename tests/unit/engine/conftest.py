from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from comfyui_agent.pools import Pool
from support.engine import Room, run_here


@pytest.fixture
async def make_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Callable[..., Room]]:
    """Rooms whose agents use no threads: everything happens when the test moves the clock."""
    monkeypatch.setattr(Pool, "run", run_here)
    rooms: list[Room] = []

    def make(*servers: str, **settings: Any) -> Room:
        rooms.append(Room(tmp_path, servers, **settings) if servers else Room(tmp_path, **settings))
        return rooms[-1]

    yield make
    for room in rooms:
        await room.close()


@pytest.fixture
def room(make_room: Callable[..., Room]) -> Room:
    return make_room()
