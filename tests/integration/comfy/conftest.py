"""A client of the simulator or of a real ComfyUI, with nothing in between."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from comfyui_agent.comfy.client import ComfyClient
from comfyui_agent.comfy.limits import Limits
from support.wire import Wire

QUICK = Limits(poll_seconds=0.3, look_again_seconds=0.75)


@pytest.fixture
async def comfy(wire: Wire) -> AsyncIterator[ComfyClient]:
    async with ComfyClient(wire.url, limits=QUICK) as client:
        yield client


@pytest.fixture
async def slow_comfy(slow_wire: Wire) -> AsyncIterator[ComfyClient]:
    """A client of the server on which sampling takes long enough to be looked at."""
    async with ComfyClient(slow_wire.url, limits=QUICK) as client:
        yield client
