"""Samples of the graphics card, taken while something else works."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import threading
import time
from collections.abc import Sequence
from types import TracebackType

from comfyui_agent.comfy.address import ServerAddress
from comfyui_agent.comfy.answers import Device, SystemStats
from comfyui_agent.comfy.client import ComfyClient
from comfyui_agent.comfy.errors import ComfyError
from comfyui_agent.comfy.tasks import end_tasks
from comfyui_agent.lab.measurement.moments import utc_text
from comfyui_agent.lab.measurement.nvml import MEGABYTE, Nvml
from comfyui_agent.lab.reports.environment import GpuSample

JOIN_SECONDS = 2.0


class GpuTrace:
    """Takes samples while it is entered: `async with GpuTrace([client], every=0.5) as trace: …`.

    Cards of this machine are asked through NVML by a thread, other cards through `/system_stats`, which does not know
    how busy a card is. A look that fails is left out. A card that several servers share is sampled once, for the
    first of them. A server that renders without a card has no samples.
    """

    def __init__(self, clients: Sequence[ComfyClient], every: float = 0.5) -> None:
        self._clients = clients
        self._every = every
        self._began = time.monotonic()
        self._taken: list[GpuSample] = []
        self._by_nvml = False
        self._leaving = threading.Event()
        self._thread: threading.Thread | None = None
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> GpuTrace:
        self._began = time.monotonic()
        self._task = asyncio.create_task(self._look(), name="look at graphics cards")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leaving.set()
        if self._task is not None:
            await end_tasks([self._task])
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join, JOIN_SECONDS)

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began

    def at(self, moment: float) -> float:
        """The seconds of a monotonic time."""
        return moment - self._began

    @property
    def samples(self) -> list[GpuSample]:
        """In the order of time."""
        return sorted(self._taken, key=lambda sample: sample.seconds or 0.0)

    @property
    def source(self) -> str:
        """Where the samples come from: `nvml`, `system_stats`, or `none` if there are none."""
        if not self._taken:
            return "none"
        return "nvml" if self._by_nvml else "system_stats"

    async def _look(self) -> None:
        here = [client for client in self._clients if is_local(client.address)]
        elsewhere = [client for client in self._clients if client not in here]
        await asyncio.gather(self._look_here(here), *(self._ask(client) for client in elsewhere))

    async def _look_here(self, clients: Sequence[ComfyClient]) -> None:
        """Servers of this machine: through NVML where it knows their card, else like any other server."""
        devices = await asyncio.gather(*(rendering_device(client) for client in clients))
        local = {str(c.address): device for c, device in zip(clients, devices, strict=True) if device is not None}
        found: asyncio.Future[frozenset[str]] = asyncio.get_running_loop().create_future()
        if local:
            arguments = (local, found, asyncio.get_running_loop())
            self._thread = threading.Thread(target=self._watch_cards, args=arguments, name="e3-nvml", daemon=True)
            self._thread.start()
        else:
            found.set_result(frozenset())
        by_nvml = await found
        await asyncio.gather(*(self._ask(client) for client in clients if str(client.address) not in by_nvml))

    def _watch_cards(
        self,
        local: dict[str, Device],
        found: asyncio.Future[frozenset[str]],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        """The thread: find the cards of servers on this machine, set `found`, and sample them."""
        with Nvml() as nvml:
            cards = {server: nvml.card_of(device) for server, device in local.items()}
            known = {server: card for server, card in cards.items() if card is not None}
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(_resolve, found, frozenset(known))
            looked_at = {nvml.identity_of(card) or server: (server, card) for server, card in reversed(known.items())}
            while known and not self._leaving.is_set():
                for server, card in looked_at.values():
                    reading = nvml.read(card)
                    if reading.util is not None or reading.used_mb is not None:
                        self._by_nvml = True
                        self._add(server, reading.util, reading.used_mb)
                self._leaving.wait(self._until_next())

    async def _ask(self, client: ComfyClient) -> None:
        while True:
            with contextlib.suppress(ComfyError):
                device = first_card(await client.system_stats())
                if device is None:
                    return
                self._add(str(client.address), None, (device.vram_total - device.vram_free) // MEGABYTE)
            await asyncio.sleep(self._until_next())

    def _until_next(self) -> float:
        """Seconds until the next sample is due, however long this one took."""
        return self._every - self.seconds % self._every

    def _add(self, server: str, util: int | None, used_mb: int | None) -> None:
        seconds = round(self.seconds, 3)
        sample = GpuSample(ts=utc_text(), seconds=seconds, gpu_util=util, gpu_mem_mb=used_mb, server=server)
        self._taken.append(sample)


def _resolve(found: asyncio.Future[frozenset[str]], servers: frozenset[str]) -> None:
    if not found.done():
        found.set_result(servers)


def is_local(address: ServerAddress) -> bool:
    """Whether an address is a loopback address."""
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
    """The NVIDIA driver of this machine."""
    with Nvml() as nvml:
        return nvml.driver()
