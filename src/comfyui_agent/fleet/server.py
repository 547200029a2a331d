"""One server of the fleet: what it has of ours, how it is, and how much it may be given."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Protocol

from comfyui_agent.clock import Clock
from comfyui_agent.comfy.answers import Freed, QueueView, SystemStats
from comfyui_agent.comfy.cancellation import Cancellation
from comfyui_agent.comfy.definitions import NodeDefinitions
from comfyui_agent.comfy.downloads import StagedFile
from comfyui_agent.comfy.errors import AnswerTimeout, AnswerTooLarge, ComfyError
from comfyui_agent.comfy.limits import Limits
from comfyui_agent.comfy.results import ResultFile
from comfyui_agent.comfy.uploads import Uploaded
from comfyui_agent.comfy.watch import Watch
from comfyui_agent.domain.prompts import Graph, PromptId
from comfyui_agent.domain.server_states import ServerState

FAILED_PROBES = 2
SMALLEST_WINDOW, LARGEST_WINDOW = 2, 16
AHEAD_SECONDS = 0.3
QUICK_SECONDS = 0.1
SMOOTHING = 0.3
LONGEST_PAUSE = 60.0
MOST_FETCHING = 8


class Health(str, Enum):
    """UNKNOWN until the first probe. ASIDE: it answers, and does not work."""

    UNKNOWN = "unknown"
    UP = "up"
    DOWN = "down"
    ASIDE = "aside"


class Probe(AbstractAsyncContextManager[Any], Protocol):
    """What the fleet needs to see whether a server answers."""

    async def queue(self) -> QueueView: ...


class ServerClient(AbstractAsyncContextManager[Any], Protocol):
    """What the engine needs of the client of one server."""

    @property
    def websocket_is_open(self) -> bool: ...

    @property
    def queue_seen(self) -> tuple[float, QueueView] | None: ...

    @property
    def definitions(self) -> NodeDefinitions: ...

    async def submit(
        self,
        graph: Graph,
        prompt_id: PromptId,
        *,
        extra_data: Mapping[str, Any] | None = None,
        expected: Iterable[str] | None = None,
        targets: Iterable[str] | None = None,
    ) -> Watch: ...

    def take_over(
        self, prompt_id: PromptId, graph: Graph | None = None, expected: Iterable[str] | None = None
    ) -> Watch: ...

    def forget(self, watch: Watch) -> None: ...

    async def cancel(self, prompt_id: str, timeout: float = 30.0, *, interrupt: bool = True) -> Cancellation: ...

    async def system_stats(self) -> SystemStats: ...

    async def model_facts(self) -> Mapping[str, str]: ...

    async def free(self, *, wanted: int | None = None, timeout: float = 30.0) -> Freed: ...

    async def download(self, result: ResultFile, folder: Path, *, owner: str = "") -> StagedFile: ...

    async def upload(
        self, source: Path | str | bytes, name: str, *, subfolder: str = "", overwrite: bool = False
    ) -> Uploaded: ...


@dataclass(frozen=True)
class Connection:
    """Two clients of one server: one to work with, one that only probes, so that work never delays a probe."""

    name: str
    client: ServerClient
    probe: Probe


class FleetServer:
    """One server. Its health is what probes say; `out_of_work` is what people say."""

    def __init__(self, connection: Connection, limits: Limits, clock: Clock, *, is_retired: bool = False) -> None:
        self.client = connection.client
        self.probe = connection.probe
        self._limits = limits
        self._clock = clock
        self.name = connection.name
        self.is_retired = is_retired
        self.out_of_work: ServerState | None = None
        """Paused, draining or drained by people. Prompts that it has are still waited for."""
        self.health = Health.UNKNOWN
        self.reason = ""
        self.since = clock.now()
        self.queued_by_others = 0
        self.at_work: set[str] = set()
        """Prompts that this process has there, those whose results are being fetched included."""
        self.fetching: set[str] = set()
        self._line: list[str] = []
        self._first_at_loss = ""
        self.sending = asyncio.Lock()
        """Prompts are sent one after another, in the order of their leases."""
        self.stuck: set[str] = set()
        """Prompts that do not end: the server is set aside until they are gone."""
        self.freeing: set[str] = set()
        """Prompts that were short of memory here, and whose runs wait to free it. It gets nothing new meanwhile."""
        self.capacity: int | None = None
        """Bytes of memory that one prompt could have there; None until it was asked."""
        self.oom_failures = 0
        self.unreadable_until = 0.0
        """It did not say what it has, and is not asked before. It may be given anything meanwhile."""
        self._paused_until = 0.0
        self._failures_in_a_row = 0
        self._failed_probes = 0
        self._pace: float | None = None
        self.answered_at = 0.0
        self.rendered_at = 0.0
        self.doubted_at = 0.0
        """When something last went wrong there: older views of its queue are not believed."""
        self.probe_request = asyncio.Event()
        """Set to have it probed at once."""
        self._reported_lost: set[str] = set()
        self._ended_at: dict[str, float] = {}
        """When prompts ended that the last poll of the queue may still show; kept for quiet clients only."""

    @property
    def takes_work(self) -> bool:
        is_healthy = self.health is Health.UP and not self.stuck
        return is_healthy and self.is_employed and not self.freeing and self._clock.now() >= self._paused_until

    @property
    def is_employed(self) -> bool:
        """Whether people want it to be given work."""
        return not self.is_retired and self.out_of_work is None

    @property
    def answers(self) -> bool:
        return self.health in (Health.UP, Health.ASIDE)

    @property
    def window(self) -> int:
        """How many prompts it should have: two, or more where prompts take milliseconds."""
        if self._pace is None or self._pace >= QUICK_SECONDS:
            return SMALLEST_WINDOW
        wanted = 1 + math.ceil(AHEAD_SECONDS / max(self._pace, 0.001))
        return max(SMALLEST_WINDOW, min(LARGEST_WINDOW, wanted))

    @property
    def room(self) -> int:
        """How many more prompts it may be given. A large window is refilled by quarters: every lease has its price."""
        room = self.most_open - len(self.at_work)
        return room if 4 * room >= self.window else 0

    @property
    def most_open(self) -> int:
        """How many open runs it may have over all agents. A result that is being fetched takes no room."""
        return self.window + min(len(self.fetching), MOST_FETCHING)

    @property
    def load(self) -> int:
        return len(self.at_work) - len(self.fetching) + self.queued_by_others

    def seconds_down(self) -> float:
        """How long it has not answered; 0 unless it is down."""
        return self._clock.now() - (self.answered_at or self.since) if self.health is Health.DOWN else 0.0

    def accepted(self, prompt_id: str) -> None:
        """It took a prompt of ours, behind those that it had."""
        self._line.append(prompt_id)

    def ended(self, prompt_id: str) -> None:
        if prompt_id in self._line:
            self._line.remove(prompt_id)
        if self._limits.is_quiet:
            self._ended_at[prompt_id] = self._clock.now()

    def forgot(self, prompt_id: str) -> bool:
        """It no longer knows a prompt. Returns whether that one was first in line, so that it was the one running."""
        if prompt_id in self._line:
            self._first_at_loss = self._line[0]
            self._line.clear()
        return prompt_id == self._first_at_loss

    @property
    def is_rendering_ours(self) -> bool:
        """Whether it has prompts of ours that have not ended, apart from those that were short of memory."""
        return any(prompt_id not in self.freeing for prompt_id in self._line)

    def report_loss(self) -> int:
        """How many prompts of ours it is gone with. They count as reported until they are seen again."""
        self._reported_lost = set(self.at_work)
        return len(self._reported_lost)

    def unreported_loss(self, prompt_id: str) -> int:
        """How many prompts are lost, if this one was not reported yet; the caller reports all of them."""
        return 0 if prompt_id in self._reported_lost else self.report_loss()

    def rendered(self, seconds: float | None) -> None:
        """A prompt succeeded, in so many seconds by the server's clock."""
        self._failures_in_a_row = 0
        self.rendered_at = self._clock.now()
        if seconds is not None:
            self._pace = seconds if self._pace is None else self._pace + SMOOTHING * (seconds - self._pace)

    def misbehaved(self) -> None:
        """Its answer made no sense: it gets nothing for a while, longer each time."""
        if self._clock.now() < self._paused_until:
            return
        self._failures_in_a_row += 1
        self.rest(min(LONGEST_PAUSE, 0.5 * 2 ** min(self._failures_in_a_row, 10)))

    def rest(self, seconds: float) -> None:
        """It gets nothing new for so long."""
        self._paused_until = max(self._paused_until, self._clock.now() + seconds)

    async def measure(self) -> None:
        """See how much memory one prompt could have there now. ComfyError if it does not say."""
        self.capacity = (await self.client.system_stats()).capacity

    async def look(self) -> QueueView | None:
        """Probe it. Returns its queue if that could be read; ComfyError if it does not answer."""
        try:
            view = self._view_of_the_polls() or await self.probe.queue()
        except AnswerTooLarge:
            return None
        seen = {prompt.prompt_id for prompt in (*view.running, *view.pending)}
        self.queued_by_others = len(seen - self.at_work)
        self.stuck &= seen
        self._reported_lost -= seen
        return view

    def _view_of_the_polls(self) -> QueueView | None:
        """For quiet clients: the queue as the last poll saw it, without what has ended since."""
        seen = self.client.queue_seen if self._limits.is_quiet else None
        if seen is None or seen[0] < max(self.doubted_at, self._clock.now() - 2 * self._limits.poll_seconds):
            return None
        self._ended_at = {prompt_id: at for prompt_id, at in self._ended_at.items() if at >= seen[0]}
        running, pending = (
            tuple(each for each in prompts if each.prompt_id not in self._ended_at)
            for prompts in (seen[1].running, seen[1].pending)
        )
        return QueueView(running, pending)

    def judge(self, error: ComfyError | None) -> Health:
        """What a probe says about its health. One slow answer proves nothing: it may be collecting garbage."""
        if error is None:
            self._failed_probes = 0
            self.answered_at = self._clock.now()
            return Health.ASIDE if self.stuck else Health.UP
        self._failed_probes += 1
        if isinstance(error, AnswerTimeout) and self._failed_probes < FAILED_PROBES and self.health is Health.UP:
            return self.health
        return Health.DOWN
