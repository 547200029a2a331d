"""Stuck servers: what one agent finds out all learn, until the prompt is gone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from comfyui_agent.domain.server_states import STUCK_REMEDY, StuckPrompt
from comfyui_agent.fleet.server import FleetServer, Health
from comfyui_agent.store import operations as ops
from comfyui_agent.store.operation import OperationRunner


class ProbedFleet(Protocol):
    """What is needed of the fleet."""

    @property
    def servers(self) -> Mapping[str, FleetServer]: ...

    def probe_now(self, server: FleetServer) -> None: ...


class StuckServers:
    """Keeps the fleet and the database in step."""

    def __init__(self, store: OperationRunner, fleet: ProbedFleet) -> None:
        self._store = store
        self._fleet = fleet
        self._known: dict[str, StuckPrompt] = {}

    async def look(self) -> None:
        """Tell the fleet what others have found, and forget prompts that a server no longer has."""
        noted = {each.prompt_id: each for each in await self._store.run(ops.stuck_prompts)}
        self._known = {prompt_id: each for prompt_id, each in self._known.items() if prompt_id in noted}
        for prompt_id, each in noted.items():
            server = self._fleet.servers.get(each.server)
            if server is None:
                continue
            if prompt_id in self._known and prompt_id not in server.stuck:
                await self._store.run(ops.forget_stuck, prompt_id)
                continue
            self._known[prompt_id] = each
            if prompt_id not in server.stuck:
                server.stuck.add(prompt_id)  # the next look at its queue shows whether it is still there
                self._fleet.probe_now(server)

    async def blocking(self, batch_id: str | None) -> tuple[StuckPrompt, ...]:
        """The prompts because of which nothing can go on; none if something can, or a server may come back."""
        usable = {server.name: server for server in self._fleet.servers.values() if server.is_employed}
        found = [each for each in self._known.values() if each.server in usable]
        is_stuck = usable.keys() == {each.server for each in found} and all(
            server.health is Health.ASIDE for server in usable.values()
        )
        if usable and is_stuck and await self._store.run(ops.is_blocked, usable, batch_id):
            return tuple(found)
        return ()


def describe_blocking(blocking: tuple[StuckPrompt, ...]) -> str:
    """Why an agent ends although work is left."""
    named = "; ".join(f"{each.server} is stuck since {each.since[:19]} UTC" for each in blocking)
    return f"nothing can go on: {named}: {STUCK_REMEDY}, then start again"
