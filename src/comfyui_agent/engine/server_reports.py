"""One look at one server: what it is, what it does, or why it does not answer."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from comfyui_agent.comfy.answers import SystemStats
from comfyui_agent.comfy.client import ComfyClient
from comfyui_agent.comfy.errors import ComfyError
from comfyui_agent.comfy.limits import Limits
from comfyui_agent.comfy.server_names import address_of, name_of
from comfyui_agent.domain.halts import Halt

QUICK = Limits(connect_seconds=3, answer_seconds=10, retries=0)


@dataclass(frozen=True)
class ServerReport:
    """What one look found. `halt` is what people have said about the server; who looks does not know it."""

    name: str
    url: str
    stats: SystemStats | None = None
    running: int | None = None
    pending: int | None = None
    error: str = ""
    halt: Halt | None = None

    @property
    def state(self) -> str:
        """What matters most: one that cannot be reached is down, whatever people have said about it."""
        if self.stats is None:
            return "down"
        return self.halt.value if self.halt else "up"

    @property
    def device(self) -> str:
        return self.stats.devices[0].name if self.stats and self.stats.devices else ""

    def as_json(self) -> dict[str, Any]:
        """The keys that scripts rely on."""
        stats = self.stats
        devices = [] if stats is None else stats.devices
        return {
            "name": self.name,
            "url": self.url,
            "state": self.state,
            "version": stats.version if stats else None,
            "devices": [
                {"name": d.name, "type": d.kind, "vram_total": d.vram_total, "vram_free": d.vram_free} for d in devices
            ],
            "queue_running": self.running,
            "queue_pending": self.pending,
            "error": self.error or None,
        }


async def look_at(url: str) -> ServerReport:
    """Ask a server what it is and does; whatever keeps it from answering is in the report. ValueError if it is none."""
    shown = address_of(url)
    async with ComfyClient(url, limits=QUICK, listen=False) as client:
        try:
            stats, queue = await asyncio.gather(client.system_stats(), client.queue())
        except ComfyError as error:
            return ServerReport(name_of(shown), shown, error=error.message)
        return ServerReport(name_of(shown), shown, stats, len(queue.running), len(queue.pending))
