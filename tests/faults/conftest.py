"""A client behind a proxy that misbehaves, in front of the simulator or a real ComfyUI."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from yarl import URL

from comfyui_agent.comfy.client import ComfyClient
from comfyui_agent.comfy.limits import Limits
from comfyui_agent.lab.fault_proxy import FaultProxy
from support.shared_servers import Servers
from support.wire import Wire

QUICK = Limits(
    answer_seconds=2.0,
    poll_seconds=0.25,
    look_again_seconds=0.75,
    retry_pause_seconds=0.05,
    socket_quiet_seconds=0.75,
    silent_download_seconds=2.0,
)


@pytest.fixture
async def proxy(wire: Wire) -> AsyncIterator[FaultProxy]:
    url = URL(wire.url)
    async with FaultProxy(url.host or "", url.port or 0) as proxy:
        yield proxy


@pytest.fixture
async def comfy(proxy: FaultProxy) -> AsyncIterator[ComfyClient]:
    async with ComfyClient(proxy.url, limits=QUICK) as client:
        yield client


@pytest.fixture
async def deaf_comfy(proxy: FaultProxy) -> AsyncIterator[ComfyClient]:
    """A client without a websocket."""
    async with ComfyClient(proxy.url, limits=QUICK, listen=False) as client:
        yield client


@pytest.fixture
async def slow_comfy(slow_wire: Wire) -> AsyncIterator[ComfyClient]:
    """A client of the server on which sampling takes long enough to be looked at."""
    async with ComfyClient(slow_wire.url, limits=QUICK) as client:
        yield client


@pytest.fixture
def output_dir(servers: Servers, server_kind: str, wire: Wire) -> Path:
    """The server's output folder, where its process was started here."""
    process = servers.started.get(server_kind)
    if process is None:
        pytest.skip("the files of a server known only by E3_COMFYUI_URL cannot be reached")
    return process.output_dir
