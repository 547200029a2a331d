"""Finding out what waiting jobs need and what servers have, beside the loops that hand out work."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial

from comfyui_agent.clock import Clock
from comfyui_agent.comfy.errors import ComfyError
from comfyui_agent.comfy.tasks import BackgroundTasks
from comfyui_agent.engine.prompt_builder import PromptBuilder
from comfyui_agent.engine.runs import Signals
from comfyui_agent.fleet.routing import RoutedFleet, Routing
from comfyui_agent.fleet.server import FleetServer
from comfyui_agent.store import operations as ops
from comfyui_agent.store.errors import StoreError
from comfyui_agent.store.operation import OperationRunner

log = logging.getLogger(__name__)

READ_AT_ONCE = 200
UNREADABLE_SECONDS = 30.0
REFRESH_SECONDS = 300.0


@dataclass
class NeedsLookup:
    """Answers what the routing does not know yet, and wakes those who hand out work."""

    store: OperationRunner
    routing: Routing
    fleet: RoutedFleet
    builder: PromptBuilder
    signals: Signals
    clock: Clock
    tasks: BackgroundTasks = field(default_factory=lambda: BackgroundTasks("finding out what jobs need"), init=False)
    _busy: set[str] = field(default_factory=set, init=False)
    _refreshed_at: float = field(default=0.0, init=False)

    def begin(self) -> None:
        """Start looking up what is unknown. Nobody waits for it: it is leased when it is known."""
        if self.routing.unread or self.routing.unknown:
            self._start("needs", self._read_needs)
        for name in list(self.routing.unlearned):
            self.ask(name, anew=False)

    async def refresh(self) -> None:
        """Take over what was measured; now and then, ask servers again what they have."""
        self.routing.know_timings(await self.store.run(ops.timings))
        self.routing.know(await self.store.run(ops.needs_of_memory))
        if self.clock.now() - self._refreshed_at > REFRESH_SECONDS:
            self._refreshed_at = self.clock.now()
            for name in self.fleet.servers:
                self.ask(name)

    def ask(self, name: str, *, anew: bool = True) -> None:
        """Ask a server what it has; `anew` where it may have other nodes, models or memory than before."""
        server = self.fleet.servers.get(name)
        if server is not None and server.answers:
            self._start(f"{name} again" if anew else name, partial(self._learn, server, anew=anew))

    def _start(self, name: str, work: Callable[[], Awaitable[None]]) -> None:
        if name not in self._busy:
            self._busy.add(name)
            self.tasks.start(self._do(name, work))

    async def _do(self, name: str, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        except StoreError as error:
            log.warning("looking up what jobs need: %s", error)
        finally:
            self._busy.discard(name)
            self.signals.work.set()

    async def _read_needs(self) -> None:
        routing = self.routing
        for priority in list(routing.unread):
            routing.unread.discard(priority)
            jobs = await self.store.run(ops.jobs_without_needs, priority, READ_AT_ONCE)
            await self.store.run(ops.set_needs, [(job.id, await self.builder.needs_of(job)) for job in jobs])
        wanted = set(routing.unknown)
        found = await self.store.run(ops.find_needs, wanted)
        routing.unknown -= wanted
        routing.know(found)
        routing.unknowable |= wanted - {each.key for each in found}

    async def _learn(self, server: FleetServer, *, anew: bool) -> None:
        definitions = server.client.definitions
        wanted = set(self.routing.unlearned.pop(server.name, ()))
        try:
            await definitions.learn({*wanted, *definitions.known_classes()} if anew else wanted, anew=anew)
            if anew or server.capacity is None:
                await server.measure()
        except ComfyError as error:
            log.info("%s did not say what it has: %s", server.name, error.message)
            server.unreadable_until = self.clock.now() + UNREADABLE_SECONDS
