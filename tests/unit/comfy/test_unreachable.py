"""A server that is not there is unreachable, and the message says why."""

from __future__ import annotations

import socket

import pytest

from comfyui_agent.comfy.client import ComfyClient
from comfyui_agent.comfy.errors import Unreachable
from comfyui_agent.comfy.limits import Limits


async def test_a_closed_port_is_unreachable() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    async with ComfyClient(f"http://127.0.0.1:{port}", limits=Limits(retries=0), listen=False) as comfy:
        with pytest.raises(Unreachable, match=rf"127\.0\.0\.1:{port} cannot be reached \(connection refused\)"):
            await comfy.queue()
