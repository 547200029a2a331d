"""The servers that are used: probed all the time, with observers for what changes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial

from comfyui_agent.clock import SYSTEM_CLOCK, Clock
from comfyui_agent.comfy.address import ServerAddress
from comfyui_agent.comfy.answers import QueueView
from comfyui_agent.comfy.client import ComfyClient
from comfyui_agent.comfy.errors import ComfyError
from comfyui_agent.comfy.limits import Limits
from comfyui_agent.comfy.tasks import BackgroundTasks
from comfyui_agent.domain.server_states import ServerState
from comfyui_agent.fleet.server import Connection, FleetServer, Health

log = logging.getLogger(__name__)

PROBE = Limits(connect_seconds=3.0, answer_seconds=10.0, retries=0)
PROBE_SECONDS = 2.0
PROBE_DOWN_SECONDS = 0.5
PROBE_RETIRED_SECONDS = 10.0
BREATH = 0.05

Connect = Callable[[str], Connection]


def connect_over_http(
    client_id: str,
    limits: Limits,
    clock: Clock,
    *,
    listen: bool = True,
    hear: Callable[[str, str | bytes], None] = lambda *_: None,
) -> Connect:
    """Connections to real servers. `hear` is called with a server and every frame that it sends."""

    def connect(url: str) -> Connection:
        tap = partial(hear, str(ServerAddress.parse(url)))
        client = ComfyClient(url, client_id=client_id, limits=limits, listen=listen, clock=clock, tap=tap)
        return Connection(str(client.address), client, ComfyClient(url, limits=PROBE, listen=False))

    return connect


class Fleet:
    """All servers by name."""

    def __init__(self, urls: Sequence[str], connect: Connect, limits: Limits, clock: Clock = SYSTEM_CLOCK) -> None:
        self._connect = connect
        self._limits = limits
        self._clock = clock
        self.on_health: Callable[[FleetServer, Health], None] = lambda *_: None
        """Called with a server whose health has changed, and its health before."""
        self.on_queue: Callable[[FleetServer, QueueView], None] = lambda *_: None
        """Called with each view of a server's queue."""
        self._stack = AsyncExitStack()
        self._tasks = BackgroundTasks("looking at a server")
        self._states: Mapping[str, ServerState] = {}
        self.servers: dict[str, FleetServer] = {}
        for url in urls:
            server = FleetServer(connect(url), limits, clock)
            self.servers[server.name] = server

    async def start(self) -> None:
        for server in list(self.servers.values()):
            await self._employ(server)

    async def stop(self) -> None:
        await self._tasks.stop()
        await self._stack.aclose()

    async def get(self, name: str) -> FleetServer:
        """A server by its address. One that is not configured any more gets no new work; its prompts are fetched."""
        if name in self.servers:
            return self.servers[name]
        server = FleetServer(self._connect(name), self._limits, self._clock, is_retired=True)
        server.out_of_work = self._states.get(server.name)
        self.servers[server.name] = server
        await self._employ(server)
        return server

    async def employ(self, url: str) -> FleetServer:
        """Give a server work from now on."""
        server = await self.get(url)
        if server.is_retired:
            server.is_retired = False
            self.probe_now(server)
        return server

    def retire(self, url: str) -> None:
        """Give a server no new work any more. Its prompts are fetched."""
        if url in self.servers:
            self.servers[url].is_retired = True

    def ready(self) -> list[FleetServer]:
        """The servers that take work, least busy first."""
        return sorted((server for server in self.servers.values() if server.takes_work), key=lambda each: each.load)

    def is_alternative_to(self, server: FleetServer, besides: Collection[str] = ()) -> bool:
        """Whether another server takes work, apart from those named."""
        others = (each for each in self.servers.values() if each is not server and each.name not in besides)
        return any(other.takes_work for other in others)

    @property
    def is_out_of_work(self) -> bool:
        """Whether people have taken every server out of work."""
        wanted = [server for server in self.servers.values() if not server.is_retired]
        return bool(wanted) and all(server.out_of_work is not None for server in wanted)

    def apply_states(self, states: Mapping[str, ServerState]) -> bool:
        """Take exactly these servers out of work. Returns whether that changed anything."""
        self._states = states
        changed = [server for server in self.servers.values() if server.out_of_work is not states.get(server.name)]
        for server in changed:
            server.out_of_work = states.get(server.name)
            log.info("%s is %s", server.name, server.out_of_work or "back at work")
        return bool(changed)

    def probe_now(self, server: FleetServer) -> None:
        """Probe a server at once: something went wrong there."""
        server.doubted_at = self._clock.now()
        server.probe_request.set()

    def set_aside(self, server: FleetServer, prompt_id: str, reason: str) -> None:
        """Give a server no work until this prompt is gone from it."""
        server.stuck.add(prompt_id)
        self._change(server, Health.ASIDE, reason)

    def mark_down(self, server: FleetServer, reason: str) -> None:
        self._change(server, Health.DOWN, reason)
        self.probe_now(server)

    async def _employ(self, server: FleetServer) -> None:
        await self._stack.enter_async_context(server.client)
        await self._stack.enter_async_context(server.probe)
        self._tasks.start(self._probe_forever(server))

    async def _probe_forever(self, server: FleetServer) -> None:
        while True:
            server.probe_request.clear()
            try:
                await self._probe(server)
            except Exception:
                log.exception("looking at %s failed", server.name)
            pause = PROBE_SECONDS if server.health is Health.UP else PROBE_DOWN_SECONDS
            pause = PROBE_RETIRED_SECONDS if server.is_retired and not server.answers and not server.at_work else pause
            pause = self._limits.poll_seconds if self._limits.is_quiet else pause
            if await self._clock.wait_for(server.probe_request, pause):
                await self._clock.sleep(BREATH)

    async def _probe(self, server: FleetServer) -> None:
        view: QueueView | None = None
        trouble: ComfyError | None = None
        try:
            view = await server.look()
        except ComfyError as error:
            trouble = error
        self._change(server, server.judge(trouble), trouble.message if trouble else "")
        if view is not None:
            self.on_queue(server, view)

    def _change(self, server: FleetServer, health: Health, reason: str) -> None:
        if server.health is health:
            return
        before, server.health = server.health, health
        server.reason, server.since = reason, self._clock.now()
        self.on_health(server, before)
