"""What clients of ComfyUI are pointed at: a server, or the gateway in front of some."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import aiohttp
import pytest

from support.agents import AgentWorkspace
from support.children import keep
from support.clients import CLIENTS_DIR
from support.gateways import start_gateway
from support.node_pack import TEST_NODES
from support.painted import painted
from support.servers import REAL_DIR, REAL_URL, ServerProcess, real_comfyui, simulator
from support.shared_servers import HAS_REAL
from support.wire import Wire

T = TypeVar("T")

REAL = ("real", "real-gateway") if HAS_REAL else ()
KINDS = ["sim", "sim-gateway", "sim-fleet", *(pytest.param(kind, marks=pytest.mark.real_comfyui) for kind in REAL)]
"""Directly, through the gateway, and through the gateway with two servers behind it."""

TOOLING_NODES = Path(CLIENTS_DIR) / "comfyui-tooling-nodes"
SLEEP_NODE = """

class Sleep(TestSlow):
    @classmethod
    def INPUT_TYPES(cls):
        return {"required": {"value": ("IMAGE",), "seconds": ("FLOAT", {"default": 1.0, "max": 86400.0})}}

    def run(self, value, seconds):
        return super().run(value, seconds)


NODE_CLASS_MAPPINGS["Sleep"] = Sleep
"""
"""The simulator's node, for a real server."""


class Fronts:
    """Their processes are started on first use and shared by a whole test run."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._servers: dict[str, ServerProcess] = {}
        self._workspaces: list[AgentWorkspace] = []
        self._urls: dict[str, str] = {}

    def url(self, kind: str) -> str:
        if kind not in self._urls:
            name, _, way = kind.partition("-")
            backends = [self._server(name), *([self._server("sim2")] if way == "fleet" else [])]
            self._urls[kind] = self._gateway(kind, backends) if way else backends[0]
        return self._urls[kind]

    def _server(self, name: str) -> str:
        if name == "real" and not REAL_DIR:
            return REAL_URL.rstrip("/")
        if name not in self._servers:
            folder = self._folder / name
            process = comfyui_for_clients(folder) if name == "real" else simulator(folder)
            self._servers[name] = process.start()
            keep(process.process)
        return self._servers[name].url

    def _gateway(self, kind: str, backends: list[str]) -> str:
        workspace, url = start_gateway(self._folder / kind, backends)
        self._workspaces.append(workspace)
        return url

    def stop(self) -> None:
        for workspace in self._workspaces:
            workspace.stop_all()
        for process in self._servers.values():
            process.stop()


def comfyui_for_clients(folder: Path) -> ServerProcess:
    """A real ComfyUI with the nodes that clients and their tests ask for."""
    process = real_comfyui(folder)
    custom_nodes = folder / "custom_nodes"
    (custom_nodes / "test_nodes.py").write_text(TEST_NODES + SLEEP_NODE, encoding="utf-8")
    if TOOLING_NODES.is_dir():
        (custom_nodes / TOOLING_NODES.name).symlink_to(TOOLING_NODES)
    return process


class Front(Wire):
    """A front seen raw, beside the client under test."""

    def __init__(self, session: aiohttp.ClientSession, url: str, servers: int) -> None:
        super().__init__(session, url)
        self.servers = servers
        """How many prompts run at once."""

    @asynccontextmanager
    async def busy(self) -> AsyncIterator[list[str]]:
        """Every server runs a prompt of somebody else, until the end; their ids."""
        others = [await self.submit(painted(seconds=600).graph) for _ in range(self.servers)]
        for prompt_id in others:
            await self.running(prompt_id)
        yield others
        assert {item[1] for item in (await self.queue())[0]}.issuperset(others), "a prompt of somebody else was stopped"
        for prompt_id in others:
            await self.interrupt(prompt_id)

    async def behind_others(self, work: Coroutine[Any, Any, T]) -> tuple[str, T]:
        """The id of a prompt that this work submits and that had to wait behind others, and what the work came to."""
        async with self.busy():
            working = asyncio.create_task(work)
            await self._poll(lambda _, pending: bool(pending) or working.done(), timeout=60)
            waiting = [item[1] for item in (await self.queue())[1]]
        result = await working
        return waiting[0], result

    async def clear(self) -> None:
        """Leave nothing in the queue, whoever it belongs to."""
        await self.post("/queue", {"clear": True})
        await self.stop([item[1] for item in (await self.queue())[0]])
        await self.idle()
