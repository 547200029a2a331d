"""Servers that people have taken out of work: told to the fleet, and drained for good once nothing is there."""

from __future__ import annotations

import logging
from collections.abc import Callable

from comfyui_agent.comfy.fleet import Fleet
from comfyui_agent.domain.server_states import ServerState
from comfyui_agent.store import operations as ops
from comfyui_agent.store.store import Store

log = logging.getLogger(__name__)


class ServerStateWatcher:
    """Looks at what people have said about servers. The runs there see to their own prompts."""

    def __init__(self, store: Store, fleet: Fleet, wake: Callable[[], None]) -> None:
        self._store = store
        self._fleet = fleet
        self._wake = wake
        self._said_halted = False

    async def look(self) -> None:
        """Tell the fleet what has changed, and end drains that are over, whichever agent had the last run there."""
        halted = await self._store.run(ops.halted_servers)
        if self._fleet.halt({each.server: each.halt for each in halted}):
            self._wake()
        if self._fleet.is_halted and not self._said_halted:
            log.warning("every server is out of work: jobs wait until one is resumed (e3 servers resume NAME)")
        self._said_halted = self._fleet.is_halted
        for each in halted:
            if each.halt is ServerState.DRAINING and not each.has_runs:
                await self._store.run(ops.finish_drain, each.server)
