"""Servers that people have paused or drained: the fleet is told, and a drain ends once the server is empty."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Protocol

from comfyui_agent.domain.server_states import ServerState
from comfyui_agent.store import operations as ops
from comfyui_agent.store.operation import OperationRunner

log = logging.getLogger(__name__)


class StatefulFleet(Protocol):
    """What the watcher needs of the fleet."""

    @property
    def is_out_of_work(self) -> bool: ...

    def apply_states(self, states: Mapping[str, ServerState]) -> bool: ...


class ServerStateWatcher:
    """Tells the fleet which servers people have paused or drained. Runs take their own prompts back."""

    def __init__(self, store: OperationRunner, fleet: StatefulFleet, wake: Callable[[], None]) -> None:
        self._store = store
        self._fleet = fleet
        self._wake = wake
        self._has_warned = False

    async def look(self) -> None:
        """Apply what has changed, and end drains that are over, whichever agent had the last run there."""
        states = await self._store.run(ops.halted_servers)
        if self._fleet.apply_states({each.server: each.halt for each in states}):
            self._wake()
        if self._fleet.is_out_of_work and not self._has_warned:
            log.warning("every server is out of work: jobs wait until one is resumed (e3 servers resume NAME)")
        self._has_warned = self._fleet.is_out_of_work
        for each in states:
            if each.halt is ServerState.DRAINING and not each.has_runs:
                await self._store.run(ops.finish_drain, each.server)
