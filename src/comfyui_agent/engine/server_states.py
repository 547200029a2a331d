"""Servers that people have paused or drained, and servers that are stuck: the fleet and the database in step."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field

from comfyui_agent.domain.server_states import ServerState, StuckPrompt
from comfyui_agent.fleet.fleet import Fleet
from comfyui_agent.fleet.server import Health
from comfyui_agent.store import operations as ops
from comfyui_agent.store.operation import OperationRunner

log = logging.getLogger(__name__)


@dataclass
class ServerStates:
    """Applies to the fleet what people and other agents have noted. Runs take their own prompts back."""

    store: OperationRunner
    fleet: Fleet
    work: asyncio.Event
    """Set when a server may take work again."""
    _has_warned: bool = field(default=False, init=False)
    _stuck: dict[str, StuckPrompt] = field(default_factory=dict, init=False)

    async def look(self) -> None:
        await self.look_at_states()
        await self._look_at_stuck()

    async def look_at_states(self) -> None:
        """Apply what has changed, and end drains that are over, whichever agent had the last run there."""
        states = await self.store.run(ops.halted_servers)
        if self.fleet.apply_states({each.server: each.halt for each in states}):
            self.work.set()
        if self.fleet.is_out_of_work and not self._has_warned:
            log.warning("every server is out of work: jobs wait until one is resumed (e3 servers resume NAME)")
        self._has_warned = self.fleet.is_out_of_work
        for each in states:
            if each.halt is ServerState.DRAINING and not each.has_runs:
                await self.store.run(ops.finish_drain, each.server)

    async def _look_at_stuck(self) -> None:
        """Tell the fleet which prompts others have found stuck, and forget those that a server no longer has."""
        noted = {each.prompt_id: each for each in await self.store.run(ops.stuck_prompts)}
        self._stuck = {prompt_id: each for prompt_id, each in self._stuck.items() if prompt_id in noted}
        for prompt_id, each in noted.items():
            server = self.fleet.servers.get(each.server)
            if server is None:
                continue
            if prompt_id in self._stuck and prompt_id not in server.stuck:
                await self.store.run(ops.forget_stuck, prompt_id)
                continue
            self._stuck[prompt_id] = each
            if prompt_id not in server.stuck:
                server.stuck.add(prompt_id)  # the next look at its queue shows whether it is still there
                self.fleet.probe_now(server)

    async def blocking(self, batch_id: str | None) -> list[StuckPrompt]:
        """The prompts because of which nothing can go on; none if something can, or a server may come back."""
        usable = {server.name: server for server in self.fleet.servers.values() if server.is_employed}
        found = [each for each in self._stuck.values() if each.server in usable]
        is_stuck = usable.keys() == {each.server for each in found} and all(
            server.health is Health.ASIDE for server in usable.values()
        )
        return found if found and is_stuck and await self.store.run(ops.is_blocked, usable, batch_id) else []
