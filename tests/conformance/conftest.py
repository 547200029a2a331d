"""Raw access to the servers: requests and frames, with nothing of E3's client in between."""

from __future__ import annotations

from collections.abc import AsyncIterator

import aiohttp
import pytest

from support.running import Servers
from support.wire import Wire


@pytest.fixture
async def wire(servers: Servers, server_kind: str) -> AsyncIterator[Wire]:
    """The server, idle, with nothing of this test left behind afterwards."""
    async for ready in _idle_wire(servers.url(server_kind)):
        yield ready


@pytest.fixture
async def slow_wire(servers: Servers, server_kind: str) -> AsyncIterator[Wire]:
    """The server on which sampling takes long enough to be looked at."""
    async for ready in _idle_wire(servers.url(server_kind, slow=True)):
        yield ready


async def _idle_wire(url: str) -> AsyncIterator[Wire]:
    async with aiohttp.ClientSession() as session:
        ready = Wire(session, url)
        await ready.idle()
        yield ready
        await ready.leave()
