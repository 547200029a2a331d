"""What a run is measured with: its clock, this machine, the servers and their graphics cards."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import os
import platform
import time
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from comfyui_agent import __version__
from comfyui_agent.comfy.address import ServerAddress
from comfyui_agent.comfy.answers import Device, SystemStats
from comfyui_agent.comfy.client import ComfyClient
from comfyui_agent.comfy.errors import ComfyError
from comfyui_agent.comfy.tasks import end_tasks
from comfyui_agent.fleet.nvml import MEGABYTE, Nvml
from comfyui_agent.lab.reports.environment import DeviceFacts, Environment, GpuSample, ReportKind, ServerFacts

CPU_FACTS = Path("/proc/cpuinfo")
UNKNOWN = ("comfyui_version", "python", "pytorch", "system", "driver", "nodes")


def utc_text(moment: float | None = None) -> str:
    """`2026-11-15T23:10:01.250Z`: seconds since the epoch, or now, in UTC as ISO 8601 writes it."""
    at = datetime.fromtimestamp(time.time() if moment is None else moment, timezone.utc)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


class RunClock:
    """The time of one run: seconds since it began, and the same moments by the calendar."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._began_at = time.time()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began

    def seconds_of(self, moment: float) -> float:
        """A monotonic moment as seconds of this run."""
        return moment - self._began

    def seconds_of_time(self, moment: float) -> float:
        """Seconds since the epoch as seconds of this run."""
        return moment - self._began_at

    def at(self, seconds: float) -> str:
        return utc_text(self._began_at + seconds)


def this_machine() -> dict[str, Any]:
    """platform, python, cpu, cores, memory_mb and e3, the version of E3. None where it is unknown."""
    return {
        "platform": platform.platform(),
        "python": platform.python_version(),
        "cpu": _processor(),
        "cores": os.cpu_count(),
        "memory_mb": _memory_mb(),
        "e3": __version__,
    }


def environment_of(kind: ReportKind, clock: RunClock, **facts: Any) -> Environment:
    """This machine and the time of a run, with the facts of the run."""
    known = {"kind": kind, "e3": __version__, "machine": this_machine()}
    times = {"started_at": clock.at(0.0), "ended_at": clock.at(clock.seconds)}
    return Environment.model_validate(known | times | facts)


async def server_facts(client: ComfyClient) -> ServerFacts:
    """What a server says about itself. What cannot be asked is None: the server may be gone already."""
    facts = ServerFacts(server=str(client.address), devices=[], **dict.fromkeys(UNKNOWN))
    with contextlib.suppress(ComfyError):
        stats = await client.system_stats()
        facts.comfyui_version, facts.python = stats.version, stats.python
        facts.pytorch, facts.system = stats.pytorch, stats.system
        facts.devices = [
            DeviceFacts(name=device.name, kind=device.kind, vram_total_mb=device.vram_total // MEGABYTE)
            for device in stats.devices
        ]
        if is_local(client.address) and first_card(stats) is not None:
            facts.driver = await asyncio.to_thread(driver_version)
        facts.nodes = len(await client.definitions.all())
    return facts


def _processor() -> str | None:
    with contextlib.suppress(OSError):
        for line in CPU_FACTS.read_text(errors="replace").splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "model name" and value.strip():
                return value.strip()
    return platform.processor() or platform.machine() or None


def _memory_mb() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // MEGABYTE
    except (AttributeError, OSError, ValueError):  # Windows has no sysconf
        return None


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
