"""The states of servers: what people and other agents have noted is applied, and changes of health are reported."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from typing_extensions import assert_never

from comfyui_agent.clock import Clock
from comfyui_agent.comfy.tasks import BackgroundTasks
from comfyui_agent.domain.events import Event, EventName
from comfyui_agent.domain.server_states import ServerState, StuckPrompt
from comfyui_agent.engine.recorder import Recorder
from comfyui_agent.engine.runs import Signals
from comfyui_agent.fleet.server import FleetServer, Health
from comfyui_agent.store import operations as ops
from comfyui_agent.store.operation import OperationRunner

log = logging.getLogger(__name__)

RETURN_SECONDS = 1.0


class StatefulFleet(Protocol):
    """What is needed of the fleet."""

    @property
    def servers(self) -> Mapping[str, FleetServer]: ...

    @property
    def is_out_of_work(self) -> bool: ...

    def apply_states(self, states: Mapping[str, ServerState]) -> bool: ...

    def probe_now(self, server: FleetServer) -> None: ...


class LostServers(Protocol):
    @property
    def lost_at(self) -> Collection[str]:
        """Servers that stopped answering, and that jobs wait for."""


@dataclass
class ServerStates:
    """Applies to the fleet what people and other agents have noted. Runs take their own prompts back."""

    store: OperationRunner
    fleet: StatefulFleet
    work: asyncio.Event
    """Set when a server may take work again."""
    _has_warned: bool = field(default=False, init=False)
    _stuck: dict[str, StuckPrompt] = field(default_factory=dict, init=False)

    async def look(self) -> None:
        await self.look_at_states()
        await self._look_at_stuck()

    async def look_at_states(self) -> None:
        """Apply what has changed, and end drains that are over, whichever agent had the last run there."""
        states = await self.store.run(ops.servers_out_of_work)
        if self.fleet.apply_states({each.server: each.state for each in states}):
            self.work.set()
        if self.fleet.is_out_of_work and not self._has_warned:
            log.warning("every server is out of work: jobs wait until one is resumed (e3 servers resume NAME)")
        self._has_warned = self.fleet.is_out_of_work
        for each in states:
            if each.state is ServerState.DRAINING and not each.has_runs:
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


@dataclass
class ServerAlerts:
    """What follows when a server's health changes: events, alerts, and another look at what it was lost with."""

    recorder: Recorder
    recovery: LostServers
    signals: Signals
    clock: Clock
    forget_inputs: Callable[[str], None]
    """Called with a server that may come back with other models, and without what it was given."""
    tasks: BackgroundTasks = field(default_factory=lambda: BackgroundTasks("reporting on a server"), init=False)

    def see_health(self, server: FleetServer, before: Health) -> None:
        self.signals.work.set()
        self.forget_inputs(server.name)
        if server.answers and self.recovery.lost_at:
            # What it was lost with is looked up; others may be back any moment with what they have.
            server.rest(RETURN_SECONDS)
            self.signals.change.set()
            self.tasks.start(self._wake_later())
        match server.health:
            case Health.UP:
                if before is not Health.UNKNOWN:
                    self._note(Event(EventName.SERVER_UP, server=server.name))
            case Health.DOWN:
                self._note(Event(EventName.SERVER_DOWN, server=server.name, message=server.reason))
                self.tasks.start(self.recorder.write(ops.forget_set, server.name))
                count = server.report_loss()
                if count:
                    message = f"gone with {count} of our prompts: {server.reason}"
                    self._note(Event(EventName.ALERT_SERVER, server=server.name, message=message))
            case Health.ASIDE | Health.UNKNOWN:
                pass  # whoever set it aside has reported that
            case _:
                assert_never(server.health)

    async def _wake_later(self) -> None:
        await self.clock.sleep(RETURN_SECONDS)
        self.signals.work.set()

    def _note(self, event: Event) -> None:
        self.tasks.start(self.recorder.note(event))
