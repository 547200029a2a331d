"""Samples of the graphics card, taken while something else works."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
from collections.abc import Sequence
from typing import Any

from comfyui_agent.comfy.address import ServerAddress
from comfyui_agent.comfy.answers import Device, SystemStats
from comfyui_agent.comfy.client import ComfyClient
from comfyui_agent.comfy.errors import ComfyError
from comfyui_agent.comfy.tasks import end_tasks
from comfyui_agent.fleet.nvml import MEGABYTE, Nvml
from comfyui_agent.lab.measurement.moments import RunClock, utc_text
from comfyui_agent.lab.reports.environment import GpuSample


class GpuTrace:
    """Samples cards while it is entered: those of this machine through NVML, others through `/system_stats`, which does
    not know how busy a card is. A card that several servers share is sampled once."""

    def __init__(self, clients: Sequence[ComfyClient], every: float = 0.5) -> None:
        self._clients = clients
        self._every = every
        self.clock = RunClock()
        self.samples: list[GpuSample] = []
        self.source = "none"
        """Where the samples come from: `nvml` if some do, else `system_stats`, or `none` if there are none."""
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> GpuTrace:
        self.clock = RunClock()
        self._task = asyncio.create_task(self._look(), name="look at graphics cards")
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._task is not None:
            await end_tasks([self._task])

    async def _look(self) -> None:
        here = [client for client in self._clients if is_local(client.address)]
        elsewhere = [client for client in self._clients if client not in here]
        await asyncio.gather(self._look_here(here), *(self._ask(client) for client in elsewhere))

    async def _look_here(self, clients: Sequence[ComfyClient]) -> None:
        """Servers of this machine: through NVML where it knows their card, else like any other server."""
        devices = await asyncio.gather(*(rendering_device(client) for client in clients))
        local = {str(c.address): device for c, device in zip(clients, devices, strict=True) if device is not None}
        if not local:
            await asyncio.gather(*map(self._ask, clients))
            return
        with contextlib.closing(await asyncio.to_thread(Nvml)) as nvml:
            cards = await asyncio.to_thread(nvml.cards_of, local)
            others = [client for client in clients if str(client.address) not in cards]
            await asyncio.gather(self._read_cards(nvml, cards), *map(self._ask, others))

    async def _read_cards(self, nvml: Nvml, cards: dict[str, Any]) -> None:
        """Sample each card for the first of its servers."""
        looked_at = {nvml.identity_of(card) or server: (server, card) for server, card in reversed(cards.items())}
        while looked_at:
            for server, card in looked_at.values():
                util, used_mb = await asyncio.to_thread(nvml.read, card)
                if util is not None or used_mb is not None:
                    self.source = "nvml"
                    self._add(server, util, used_mb)
            await asyncio.sleep(self._until_next())

    async def _ask(self, client: ComfyClient) -> None:
        while True:
            with contextlib.suppress(ComfyError):
                device = first_card(await client.system_stats())
                if device is None:
                    return
                self.source = "system_stats" if self.source == "none" else self.source
                self._add(str(client.address), None, (device.vram_total - device.vram_free) // MEGABYTE)
            await asyncio.sleep(self._until_next())

    def _until_next(self) -> float:
        """Seconds until the next sample is due, however long this one took."""
        return self._every - self.clock.seconds % self._every

    def _add(self, server: str, util: int | None, used_mb: int | None) -> None:
        seconds = round(self.clock.seconds, 3)
        sample = GpuSample(ts=utc_text(), seconds=seconds, gpu_util=util, gpu_mem_mb=used_mb, server=server)
        self.samples.append(sample)


def is_local(address: ServerAddress) -> bool:
    host = address.url.host or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


async def rendering_device(client: ComfyClient) -> Device | None:
    """The card that a server renders on; None if it has none, or cannot be asked now."""
    try:
        return first_card(await client.system_stats())
    except ComfyError:
        return None


def first_card(stats: SystemStats) -> Device | None:
    """Servers name the device that they render on first. Main memory, the `cpu`, is no card."""
    device = stats.devices[0] if stats.devices else None
    return device if device is not None and device.kind != "cpu" else None


def driver_version() -> str | None:
    with contextlib.closing(Nvml()) as nvml:
        return nvml.driver()
