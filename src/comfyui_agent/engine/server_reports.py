"""One look at one server: what it is, what it does, or why it does not answer."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from comfyui_agent.comfy.address import address_of, name_of
from comfyui_agent.comfy.answers import SystemStats
from comfyui_agent.comfy.client import ComfyClient
from comfyui_agent.comfy.errors import ComfyError
from comfyui_agent.comfy.limits import Limits
from comfyui_agent.domain.server_states import ServerState, StuckPrompt

QUICK = Limits(connect_seconds=3, answer_seconds=10, retries=0)


@dataclass(frozen=True)
class ServerReport:
    """What one look found. `out_of_work` and `stuck_since` are known to the database: see `judged`."""

    name: str
    url: str
    stats: SystemStats | None = None
    running: int | None = None
    pending: int | None = None
    error: str = ""
    out_of_work: ServerState | None = None
    stuck_since: str | None = None
    """Since when a prompt there does not end and cannot be interrupted."""
    prompts: frozenset[str] = field(default=frozenset(), compare=False, repr=False)

    @property
    def state(self) -> str:
        """What matters most: one that cannot be reached is down, whatever people have said about it."""
        if self.stats is None:
            return "down"
        if self.stuck_since is not None:
            return "stuck"
        return self.out_of_work.value if self.out_of_work else "up"

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
            "stuck_since": self.stuck_since,
        }

    def judged(self, states: Mapping[str, ServerState], stuck: Sequence[StuckPrompt]) -> ServerReport:
        """With what the database knows: a prompt that was stuck counts while the server still has it."""
        found = (each.since for each in stuck if each.server == self.url and each.prompt_id in self.prompts)
        return replace(self, out_of_work=states.get(self.url), stuck_since=min(found, default=None))


async def look_at(url: str) -> ServerReport:
    """Ask one server for its stats and queue. An error is part of the report; ValueError if the URL is no server's."""
    shown = address_of(url)
    async with ComfyClient(url, limits=QUICK, listen=False) as client:
        try:
            stats, queue = await asyncio.gather(client.system_stats(), client.queue())
        except ComfyError as error:
            return ServerReport(name_of(shown), shown, error=error.message)
        ids = frozenset(prompt.prompt_id for prompt in (*queue.running, *queue.pending))
        return ServerReport(name_of(shown), shown, stats, len(queue.running), len(queue.pending), prompts=ids)
