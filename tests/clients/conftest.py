"""The front that a test points its client at, and the clients."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import aiohttp
import pytest

from support.clients import Client
from support.fronts import KINDS, Front, Fronts


@pytest.fixture(scope="session")
def fronts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fronts]:
    shared = Fronts(tmp_path_factory.mktemp("fronts"))
    yield shared
    shared.stop()


@pytest.fixture(scope="session", params=KINDS)
def front_kind(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def client(request: pytest.FixtureRequest, fronts: Fronts, front_kind: str, tmp_path: Path) -> Client:
    """The client that the test's module names, told the address of the front."""
    return Client(request.module.CLIENT, fronts.url(front_kind), tmp_path)


@pytest.fixture
async def front(client: Client, front_kind: str) -> AsyncIterator[Front]:
    """The front, idle, with nothing of this test left behind afterwards."""
    async with aiohttp.ClientSession() as session:
        ready = Front(session, client.url, servers=2 if front_kind == "sim-fleet" else 1)
        if not (await ready.get("/object_info/Sleep")).body:
            pytest.skip("the server has no node Sleep, see docs/clients.md")
        await ready.idle()
        yield ready
        await ready.clear()
