"""The servers that are used: which of them are up, how busy they are, which are set aside."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack
from enum import Enum

from comfyui_agent.comfy.answers import QueueView
from comfyui_agent.comfy.client import ComfyClient
from comfyui_agent.comfy.errors import AnswerTimeout, AnswerTooLarge, ComfyError
from comfyui_agent.comfy.limits import Limits
from comfyui_agent.comfy.tasks import end_tasks, wait_until_set
from comfyui_agent.domain.server_states import ServerState

log = logging.getLogger(__name__)

PROBE = Limits(connect_seconds=3.0, answer_seconds=10.0, retries=0)
PROBE_SECONDS = 2.0
PROBE_DOWN_SECONDS = 0.5
BREATH = 0.05
DOUBTS = 2
SMALLEST_WINDOW, LARGEST_WINDOW = 2, 16
AHEAD_SECONDS = 0.3
QUICK_SECONDS = 0.1
SMOOTHING = 0.3
LONGEST_PAUSE = 60.0
MOST_FETCHING = 8


class Health(str, Enum):
    """UNKNOWN until the first look. ASIDE: it answers, and does not work."""

    UNKNOWN = "unknown"
    UP = "up"
    DOWN = "down"
    ASIDE = "aside"


class FleetServer:
    """One server of the fleet, with a client to work with and another to feel its pulse."""

    def __init__(self, url: str, client_id: str, limits: Limits, *, is_retired: bool = False) -> None:
        self.client = ComfyClient(url, client_id=client_id, limits=limits)
        self._pulse = ComfyClient(url, limits=PROBE, listen=False)
        self._limits = limits
        self.name = str(self.client.address)
        self.is_retired = is_retired
        self.halt: ServerState | None = None
        """People have taken it out of work. Its health is another matter: what it has is still waited for."""
        self.health = Health.UNKNOWN
        self.reason = ""
        self.since = time.monotonic()
        self.queued_by_others = 0
        self.at_work: set[str] = set()
        """Prompt ids that this process has there, those whose result is being fetched included."""
        self.fetching: set[str] = set()
        self._line: list[str] = []
        self._first_at_loss = ""
        self.sending = asyncio.Lock()
        """Prompts are sent one after another, in the order in which they were leased."""
        self.stuck: set[str] = set()
        """Prompts that do not end: the server is set aside until they are gone."""
        self.pauses = 0
        """How many want it to get nothing new for the moment."""
        self.freeing: set[str] = set()
        """Prompts that were short of memory here, and whose runs wait to free it."""
        self._paused_until = 0.0
        self._failures_in_a_row = 0
        self._failed_looks = 0
        self._pace: float | None = None
        self.answered_at = 0.0
        self.doubted_at = 0.0
        """When something last went wrong there: no older look at it is believed."""
        self._told_lost: set[str] = set()
        self._ended_at: dict[str, float] = {}
        """Prompts that have ended since the polls last saw the queue, while those are its only looks."""

    @property
    def takes_work(self) -> bool:
        return (
            self.health is Health.UP
            and not self.stuck
            and self.is_employed
            and not self.pauses
            and time.monotonic() >= self._paused_until
        )

    @property
    def is_employed(self) -> bool:
        """Whether it is to be given work, as far as people say."""
        return not self.is_retired and self.halt is None

    @property
    def answers(self) -> bool:
        return self.health in (Health.UP, Health.ASIDE)

    @property
    def window(self) -> int:
        """How many prompts it shall have: two, or, of prompts of milliseconds, as many as it works off in a moment."""
        if self._pace is None or self._pace >= QUICK_SECONDS:
            return SMALLEST_WINDOW
        wanted = 1 + math.ceil(AHEAD_SECONDS / max(self._pace, 0.001))
        return max(SMALLEST_WINDOW, min(LARGEST_WINDOW, wanted))

    @property
    def room(self) -> int:
        """How many prompts it lacks."""
        return self.most_open - len(self.at_work)

    @property
    def most_open(self) -> int:
        """How many runs without an outcome it may have, over all agents. A result that is fetched takes no room."""
        return self.window + min(len(self.fetching), MOST_FETCHING)

    @property
    def load(self) -> int:
        return len(self.at_work) - len(self.fetching) + self.queued_by_others

    def seconds_down(self) -> float:
        """How long it has not answered, if it is down."""
        return time.monotonic() - (self.answered_at or self.since) if self.health is Health.DOWN else 0.0

    def accepted(self, prompt_id: str) -> None:
        """It has taken a prompt of ours, behind those that it had."""
        self._line.append(prompt_id)

    def ended(self, prompt_id: str) -> None:
        if prompt_id in self._line:
            self._line.remove(prompt_id)
        if self._limits.is_quiet:
            self._ended_at[prompt_id] = time.monotonic()

    def forgot(self, prompt_id: str) -> bool:
        """It knows a prompt no more; whether that one was the first in line, and so was the one that ran."""
        if prompt_id in self._line:
            self._first_at_loss = self._line[0]
            self._line.clear()
        return prompt_id == self._first_at_loss

    @property
    def is_rendering_ours(self) -> bool:
        """Whether it has accepted prompts of ours that have not ended, those that were short of memory aside."""
        return any(prompt_id not in self.freeing for prompt_id in self._line)

    def tell_loss(self) -> int:
        """It is gone with prompts of ours: how many. They count as told, until they are seen again."""
        self._told_lost = set(self.at_work)
        return len(self._told_lost)

    def untold_loss(self, prompt_id: str) -> int:
        """How many prompts are lost, if nobody was told yet that this one is. Who asks, tells of all of them."""
        return 0 if prompt_id in self._told_lost else self.tell_loss()

    def rendered(self, seconds: float | None) -> None:
        """A prompt succeeded, in so many seconds by the server's clock."""
        self._failures_in_a_row = 0
        if seconds is not None:
            self._pace = seconds if self._pace is None else self._pace + SMOOTHING * (seconds - self._pace)

    def misbehaved(self) -> None:
        """It answered nonsense: give it nothing for a while, longer each time."""
        if time.monotonic() < self._paused_until:
            return
        self._failures_in_a_row += 1
        self.rest(min(LONGEST_PAUSE, 0.5 * 2 ** min(self._failures_in_a_row, 10)))

    def rest(self, seconds: float) -> None:
        """It gets nothing new for so long."""
        self._paused_until = max(self._paused_until, time.monotonic() + seconds)

    async def look(self) -> QueueView | None:
        """Feel the pulse; the queue if it could be read. ComfyError if the server does not answer."""
        try:
            view = self._view_of_the_polls() or await self._pulse.queue()
        except AnswerTooLarge:
            return None
        seen = {prompt.prompt_id for prompt in (*view.running, *view.pending)}
        self.queued_by_others = len(seen - self.at_work)
        self.stuck &= seen
        self._told_lost -= seen
        return view

    def _view_of_the_polls(self) -> QueueView | None:
        """Where nothing is asked twice: the queue as the polls saw it a moment ago, without what has ended since."""
        seen = self.client.queue_seen if self._limits.is_quiet else None
        if seen is None or seen[0] < max(self.doubted_at, time.monotonic() - 2 * self._limits.poll_seconds):
            return None
        self._ended_at = {prompt_id: at for prompt_id, at in self._ended_at.items() if at >= seen[0]}
        running, pending = (
            tuple(each for each in prompts if each.prompt_id not in self._ended_at)
            for prompts in (seen[1].running, seen[1].pending)
        )
        return QueueView(running, pending)

    def judge(self, error: ComfyError | None) -> Health:
        """What the look says about its health. One slow answer is no proof: it may be collecting garbage."""
        if error is None:
            self._failed_looks = 0
            self.answered_at = time.monotonic()
            return Health.ASIDE if self.stuck else Health.UP
        self._failed_looks += 1
        if isinstance(error, AnswerTimeout) and self._failed_looks < DOUBTS and self.health is Health.UP:
            return self.health
        return Health.DOWN

    async def enter(self, stack: AsyncExitStack) -> None:
        await stack.enter_async_context(self.client)
        await stack.enter_async_context(self._pulse)


class Fleet:
    """Looks at each server all the time and tells what changes."""

    def __init__(
        self,
        urls: Sequence[str],
        client_id: str,
        limits: Limits,
        *,
        on_health: Callable[[FleetServer, Health], None],
        on_queue: Callable[[FleetServer, QueueView], None],
    ) -> None:
        self._client_id = client_id
        self._limits = limits
        self._on_health = on_health
        self._on_queue = on_queue
        self._stack = AsyncExitStack()
        self._tasks: set[asyncio.Task[None]] = set()
        self._wake_up: dict[str, asyncio.Event] = {}
        self._halts: Mapping[str, ServerState] = {}
        self.servers: dict[str, FleetServer] = {}
        for url in urls:
            server = FleetServer(url, client_id, limits)
            self.servers[server.name] = server

    async def start(self) -> None:
        for server in list(self.servers.values()):
            await self._employ(server)

    async def stop(self) -> None:
        await end_tasks(self._tasks)
        await self._stack.aclose()

    async def get(self, name: str) -> FleetServer:
        """A server by its address. One that is no longer configured gets no new work, and its prompts are fetched."""
        if name not in self.servers:
            server = FleetServer(name, self._client_id, self._limits, is_retired=True)
            server.halt = self._halts.get(server.name)
            self.servers[server.name] = server
            await self._employ(server)
            return server
        return self.servers[name]

    def ready(self) -> list[FleetServer]:
        """Those that take work, the least busy first."""
        return sorted((server for server in self.servers.values() if server.takes_work), key=lambda each: each.load)

    def is_alternative_to(self, server: FleetServer, besides: Collection[str] = ()) -> bool:
        """Whether another server takes work, other than those named."""
        others = (each for each in self.servers.values() if each is not server and each.name not in besides)
        return any(other.takes_work for other in others)

    @property
    def is_halted(self) -> bool:
        """Whether people have taken every server out of work."""
        return all(server.halt is not None for server in self.servers.values() if not server.is_retired)

    def halt(self, halts: Mapping[str, ServerState]) -> bool:
        """These servers are out of work, all others are not; whether that is news."""
        self._halts = halts
        changed = [server for server in self.servers.values() if server.halt is not halts.get(server.name)]
        for server in changed:
            server.halt = halts.get(server.name)
            log.info("%s is %s", server.name, server.halt or "back at work")
        return bool(changed)

    def probe_now(self, server: FleetServer) -> None:
        """Something went wrong there: look now."""
        server.doubted_at = time.monotonic()
        self._wake_up[server.name].set()

    def set_aside(self, server: FleetServer, prompt_id: str, reason: str) -> None:
        """It does not work any more, because of this prompt: no work for it until the prompt is gone."""
        server.stuck.add(prompt_id)
        self._change(server, Health.ASIDE, reason)

    def mark_down(self, server: FleetServer, reason: str) -> None:
        self._change(server, Health.DOWN, reason)
        self.probe_now(server)

    async def _employ(self, server: FleetServer) -> None:
        await server.enter(self._stack)
        self._wake_up[server.name] = asyncio.Event()
        task = asyncio.create_task(self._look_forever(server))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _look_forever(self, server: FleetServer) -> None:
        while True:
            self._wake_up[server.name].clear()
            try:
                await self._look(server)
            except Exception:
                log.exception("looking at %s failed", server.name)
            pause = PROBE_SECONDS if server.health is Health.UP else PROBE_DOWN_SECONDS
            pause = self._limits.poll_seconds if self._limits.is_quiet else pause
            if await wait_until_set(self._wake_up[server.name], pause):
                await asyncio.sleep(BREATH)

    async def _look(self, server: FleetServer) -> None:
        view: QueueView | None = None
        trouble: ComfyError | None = None
        try:
            view = await server.look()
        except ComfyError as error:
            trouble = error
        self._change(server, server.judge(trouble), trouble.message if trouble else "")
        if view is not None:
            self._on_queue(server, view)

    def _change(self, server: FleetServer, health: Health, reason: str) -> None:
        if server.health is health:
            return
        before, server.health = server.health, health
        server.reason, server.since = reason, time.monotonic()
        self._on_health(server, before)
