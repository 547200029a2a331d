"""Facts about this machine and about servers, for reports."""

from __future__ import annotations

import asyncio
import contextlib
import os
import platform
from pathlib import Path
from typing import Any

from comfyui_agent import __version__
from comfyui_agent.comfy.client import ComfyClient
from comfyui_agent.comfy.errors import ComfyError
from comfyui_agent.fleet.nvml import MEGABYTE
from comfyui_agent.lab.measurement.gpu import driver_version, first_card, is_local
from comfyui_agent.lab.measurement.moments import RunClock
from comfyui_agent.lab.reports.environment import DeviceFacts, Environment, ReportKind, ServerFacts

CPU_FACTS = Path("/proc/cpuinfo")
UNKNOWN = ("comfyui_version", "python", "pytorch", "system", "driver", "nodes")


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
