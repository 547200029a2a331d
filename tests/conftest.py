"""The servers that tests talk to: the simulator always, a real ComfyUI where one is named."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Iterator

import aiohttp
import hypothesis
import pytest

from support.children import (  # noqa: F401
    pytest_configure,
    pytest_runtest_call,
    pytest_runtest_teardown,
    pytest_sessionfinish,
    pytest_terminal_summary,
    pytest_testnodedown,
)
from support.hosts import network  # noqa: F401
from support.new_databases import install as install_new_databases
from support.object_stores import bucket, moto, object_stores, rclone  # noqa: F401
from support.servers import REAL_DIR, ServerProcess
from support.shared_servers import BEHIND, KINDS, Servers, server_process
from support.versions import AT_GATEWAY, skip_other_versions
from support.wire import Wire

pytest_plugins = ["comfyui_agent.sim.pytest_plugin"]

install_new_databases()
hypothesis.settings.register_profile("e3", deadline=None)  # a busy machine is no error
hypothesis.settings.load_profile("e3")

os.environ.setdefault("E3_UI__ENABLED", "false")
os.environ.setdefault("E3_UI__PREVIEWS", "false")
os.environ.setdefault("E3_PATHS__KEEP_FREE_GB", "0")
"""Agents of most tests serve no page and ask for no previews: a page takes a second to load, previews slow renders.
They use the last of a disk, too, however small it is."""


@pytest.fixture(scope="session")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    shared = Servers(tmp_path_factory.mktemp("servers"))
    yield shared
    shared.stop()


@pytest.fixture(scope="session", autouse=True)
def _postgres_ends_with_the_run() -> Iterator[None]:
    """The PostgreSQL of this worker, if a test has started one."""
    yield
    if "support.postgres" in sys.modules:
        sys.modules["support.postgres"].stop_shared()


@pytest.fixture(scope="session", params=KINDS)
def server_kind(request: pytest.FixtureRequest) -> str:
    """Which server a test runs against: sim or real."""
    name: str = request.param
    return name


@pytest.fixture
async def wire(servers: Servers, server_kind: str, request: pytest.FixtureRequest) -> AsyncIterator[Wire]:
    """The server, idle, with nothing of this test left behind afterwards."""
    async for ready in _idle_wire(servers.url(server_kind), request):
        yield ready


@pytest.fixture
async def slow_wire(servers: Servers, server_kind: str, request: pytest.FixtureRequest) -> AsyncIterator[Wire]:
    """The server on which sampling takes long enough to be looked at."""
    async for ready in _idle_wire(servers.url(server_kind, slow=True), request):
        yield ready


async def _idle_wire(url: str, request: pytest.FixtureRequest) -> AsyncIterator[Wire]:
    async with aiohttp.ClientSession() as session:
        ready = Wire(session, url)
        await ready.learn_version()
        if request.getfixturevalue("server_kind") in BEHIND and request.node.get_closest_marker("of_the_wire"):
            ready.version = AT_GATEWAY
        skip_other_versions(request, ready.version)
        await ready.idle()
        yield ready
        await ready.leave()


@pytest.fixture(scope="module")
def own_server(server_kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server of this module's own, not started, to be killed and started at will."""
    if server_kind == "real" and not REAL_DIR:
        pytest.skip("a server known only by E3_COMFYUI_URL cannot be restarted from here")
    folder = tmp_path_factory.mktemp(f"own-{server_kind}")
    process = server_process(server_kind, folder, slow=True)
    yield process
    process.kill()
