"""Simulators as child processes: one that all tests of a file's kind share, and fresh ones with switches."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from support.children import keep
from support.servers import ServerProcess, simulator
from support.wire import Wire

Connect = Callable[[ServerProcess], AbstractAsyncContextManager[Wire]]
Start = Callable[..., ServerProcess]


@asynccontextmanager
async def connected(server: ServerProcess) -> AsyncIterator[Wire]:
    async with aiohttp.ClientSession() as session:
        yield Wire(session, server.url)


@pytest.fixture
def connect() -> Connect:
    """`async with connect(server) as wire`."""
    return connected


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts simulators with switches, all on one output folder; they are gone after the test."""
    started: list[ServerProcess] = []

    def begin(*switches: str) -> ServerProcess:
        started.append(simulator(tmp_path, *switches))
        return started[-1].start()

    yield begin
    for server in started:
        server.kill()


class Shared:
    """Simulators that many tests use, by their switches."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._servers: dict[tuple[str, ...], ServerProcess] = {}

    def get(self, *switches: str) -> ServerProcess:
        known = self._servers.get(switches)
        if known is None or known.process is None or known.process.poll() is not None:
            folder = self._folder / f"{len(self._servers)}"
            self._servers[switches] = known = simulator(folder, *switches).start()
            keep(known.process)
        return known

    def stop(self) -> None:
        for server in self._servers.values():
            server.kill()


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    servers = Shared(tmp_path_factory.mktemp("shared"))
    yield servers
    servers.stop()


@pytest.fixture
def plain_server(shared: Shared) -> ServerProcess:
    return shared.get()


@pytest.fixture
async def plain(plain_server: ServerProcess) -> AsyncIterator[Wire]:
    """A simulator without switches; what hostile tests must leave alive and idle."""
    async with connected(plain_server) as wire:
        yield wire
        await wire.idle()
