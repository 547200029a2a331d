"""One prompt, watched from submission to its end."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from comfyui_agent.clock import MONOTONIC_CLOCK, Clock
from comfyui_agent.comfy import shapes
from comfyui_agent.comfy.errors import ComfyError
from comfyui_agent.comfy.frames import Event, Preview
from comfyui_agent.comfy.outcomes import Outcome
from comfyui_agent.comfy.rejections import NodeProblem
from comfyui_agent.domain.failures import Failure
from comfyui_agent.domain.prompts import Graph, PromptId, class_of

MOST_OUTPUT_BYTES_HEARD = 2 * 1024 * 1024
MOST_ERRORS_HEARD = 20
MOST_MOMENTS_HEARD = 10_000


class Stage(str, Enum):
    """Where a prompt is, as far as was last heard or seen."""

    SENT = "sent"
    WAITING = "waiting"
    RUNNING = "running"
    ENDED = "ended"


@dataclass(frozen=True)
class Progress:
    """How far a prompt is. `changed_at` is when its clock last saw a sign of life."""

    stage: Stage = Stage.SENT
    ahead: int | None = None
    node_id: str = ""
    node_type: str = ""
    step: int = 0
    steps: int = 0
    nodes_done: int = 0
    nodes_total: int = 0
    preview: Preview | None = field(default=None, repr=False)
    changed_at: float = 0.0


class Watch:
    """The life of one prompt. Many may await `outcome()`; of the progress only the newest is kept."""

    def __init__(
        self,
        prompt_id: PromptId,
        graph: Graph | None,
        expected: frozenset[str] | None,
        clock: Clock = MONOTONIC_CLOCK,
    ) -> None:
        self._clock = clock
        self.prompt_id = prompt_id
        self.graph = graph
        self.expected = expected
        self.node_errors: tuple[NodeProblem, ...] | None = None
        self.cancel_requested = False
        self.is_ours = False
        self.running_since: float | None = None
        self.progress = Progress(nodes_total=len(graph or {}), changed_at=clock.now())
        self._outcome: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self._changed = asyncio.Event()
        self.heard = Heard(clock)
        self.judged = Judged()
        self._on_success: Callable[[], None] = lambda: None

    @property
    def is_over(self) -> bool:
        return self._outcome.done()

    async def outcome(self, timeout: float | None = None) -> Outcome:
        """Wait for the end. TimeoutError leaves the watch as it is; ClientClosed if the client is closed before."""
        if not await self._clock.first_of({self._outcome}, timeout):
            raise TimeoutError(f"prompt {self.prompt_id} did not end within {timeout} s")
        return self._outcome.result()

    async def changes(self) -> AsyncIterator[Progress]:
        """Progress as it comes, the newest only, until the end."""
        while not self.is_over:
            await self._changed.wait()
            self._changed.clear()
            yield self.progress

    def update(self, **changes: Any) -> None:
        if not self.is_over:
            self.progress = Progress(**vars(self.progress) | changes | {"changed_at": self._clock.now()})
            self._changed.set()

    def settle(self, outcome: Outcome) -> None:
        """The end. The first outcome counts."""
        if not self.is_over:
            self.update(stage=Stage.ENDED, preview=None)
            self._outcome.set_result(outcome)
            self._changed.set()

    def abandon(self, error: ComfyError) -> None:
        """The end will not be known here: those who wait get the error."""
        if not self.is_over:
            self._outcome.set_exception(error)
            self._outcome.exception()  # waiting is not required of anyone
            self._changed.set()

    def see_running(self) -> None:
        if self.running_since is None:
            self.running_since = self._clock.now()
        if self.progress.stage is not Stage.RUNNING:
            self.update(stage=Stage.RUNNING, ahead=0)

    def see_waiting(self, ahead: int | None) -> None:
        if (self.progress.stage, self.progress.ahead) != (Stage.WAITING, ahead):
            self.update(stage=Stage.WAITING, ahead=ahead)

    def when_succeeded(self, call: Callable[[], None]) -> None:
        """Have a function called when the websocket says so, which is before the history does; now if it has."""
        self._on_success = call
        if self.heard.success:
            call()

    def hear(self, event: Event) -> bool:
        """Take a frame about this prompt in; True if it says that the prompt has ended."""
        data = event.data
        if event.kind == "execution_start":
            self.heard.start = True
            self.heard.take_moment("start")
            self.see_running()
        elif event.kind == "execution_cached":
            self.update(nodes_done=len(shapes.optional_list(data.get("nodes"))))
        elif event.kind == "executing":
            return self._hear_executing(data)
        elif event.kind == "progress":
            self._hear_step(data)
        elif event.kind == "executed":
            self.heard.take_output(data)
        elif event.kind == "execution_success":
            self.heard.success = True
            self.heard.take_moment("success")
            self._on_success()
        elif event.kind == "execution_error":
            self.heard.take_error(data)
        return False

    def _hear_executing(self, data: Mapping[str, Any]) -> bool:
        node_id = data.get("node")
        if node_id is None:
            self.heard.end = True
            self.heard.take_moment("end")
            return True
        self.heard.start = True
        self.see_running()
        node_id = shapes.optional_text(node_id)
        self.heard.take_moment("node", node_id)
        done = self.progress.nodes_done + (1 if self.progress.node_id and self.progress.node_id != node_id else 0)
        self.update(node_id=node_id, node_type=class_of(self.graph or {}, node_id), step=0, steps=0, nodes_done=done)
        return False

    def _hear_step(self, data: Mapping[str, Any]) -> None:
        step, steps = shapes.optional_number(data.get("value")), shapes.optional_number(data.get("max"))
        if step is None or steps is None or steps < 0:
            return
        self.see_running()
        node_id = shapes.optional_text(data.get("node")) or self.progress.node_id
        self.heard.take_moment("step", node_id, int(step), int(steps))
        self.update(node_id=node_id, node_type=class_of(self.graph or {}, node_id), step=int(step), steps=int(steps))


@dataclass(frozen=True)
class Moment:
    """Something that was heard, and when: `start`, `node`, `step`, `success` or `end`."""

    at: float
    kind: str
    node_id: str = ""
    step: int = 0
    steps: int = 0


@dataclass
class Heard:
    """What the websocket said: hints, and a second memory for when the history is gone."""

    clock: Clock = MONOTONIC_CLOCK
    start: bool = False
    success: bool = False
    end: bool = False
    outputs: dict[str, Any] = field(default_factory=dict)
    errors: list[Mapping[str, Any]] = field(default_factory=list)
    moments: list[Moment] = field(default_factory=list)
    """The first events and their times, to measure where the time went."""
    _output_bytes: int = 0

    def take_moment(self, kind: str, node_id: str = "", step: int = 0, steps: int = 0) -> None:
        if len(self.moments) < MOST_MOMENTS_HEARD:
            self.moments.append(Moment(self.clock.now(), kind, node_id, step, steps))

    def take_output(self, data: Mapping[str, Any]) -> None:
        node_id, output = data.get("node"), data.get("output")
        if isinstance(node_id, str) and isinstance(output, dict):
            self._output_bytes += len(json.dumps(output))
            if self._output_bytes <= MOST_OUTPUT_BYTES_HEARD:
                self.outputs[node_id] = output

    def take_error(self, data: Mapping[str, Any]) -> None:
        if len(self.errors) < MOST_ERRORS_HEARD:
            self.errors.append({key: shapes.shown(data.get(key), 500) for key in ("node_id", "exception_message")})


@dataclass
class Judged:
    """What the polls have found out about a prompt."""

    may_be_judged: bool = False
    is_asked: bool = False
    is_settling: bool = False
    first_unknown_at: float | None = None
    unreachable_since: float | None = None
    trouble: Failure | None = None
    """Why nothing could be learned about it, the last time."""
