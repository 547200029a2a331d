"""The live board of the queue, and events as lines for people."""

from __future__ import annotations

import asyncio
import contextlib

from rich.text import Text

from comfyui_agent.cli.output import one_line
from comfyui_agent.cli.progress import ProgressView, Status, bar
from comfyui_agent.config.workspace import Workspace
from comfyui_agent.domain.events import Event, EventName
from comfyui_agent.domain.pace import outlook, rate_of
from comfyui_agent.domain.texts import attention
from comfyui_agent.engine.agent import Agent
from comfyui_agent.engine.live_files import live_run
from comfyui_agent.engine.live_runs import LiveRun
from comfyui_agent.store import operations as ops
from comfyui_agent.store.errors import StoreError
from comfyui_agent.store.records import Counts
from comfyui_agent.store.store import Store
from comfyui_agent.usecases.forecasts import Forecasts

MARKS = {
    EventName.JOB_SUBMITTED: ("○", "Pending"),
    EventName.JOB_STARTED: ("◐", "Rendering"),
    EventName.JOB_DONE: ("●", "Done"),
    EventName.JOB_FAILED: ("△", "Needs attention"),
    EventName.JOB_RETRY: ("○", "Again"),
    EventName.JOB_CANCELLED: ("◌", "Cancelled"),
    EventName.JOB_FILE_REPEATED: ("●", "Done already"),
    EventName.BATCH_CREATED: ("○", "Batch"),
    EventName.BATCH_COMPLETED: ("●", "Batch complete"),
    EventName.BATCH_CANCELLED: ("◌", "Batch cancelled"),
    EventName.BATCH_EXPIRED: ("△", "Batch expired"),
    EventName.SERVER_UP: ("●", "Server up"),
    EventName.SERVER_DOWN: ("△", "Server down"),
    EventName.SERVER_DRAINED: ("○", "Server drained"),
    EventName.SERVER_STARTED: ("◌", "Server started"),
    EventName.SERVER_RESTARTED: ("◌", "Server restarted"),
    EventName.SERVER_TUNED: ("◌", "Tuned"),
}
ON_BOARD = frozenset({EventName.JOB_SUBMITTED, EventName.JOB_STARTED, EventName.BATCH_CREATED})
"""Events that the live board shows in its own way."""
REPEATED = frozenset({EventName.BOOK_PAGE_FAILED, EventName.BOOK_PAGE_RETRY})
"""Events of books that repeat an event of a job."""
STAGES = {
    "rendering": "Rendering",
    "waiting": "waiting at the server",
    "fetching": "fetching the result",
    "away": "waiting for the server to answer",
}
REFRESH = 0.5
MOST_ROWS = 12
BAR_WIDTH = 24
MEDIUM, WIDE = 60, 80


def event_line(event: Event) -> str:
    """When, what, which job, where, why."""
    mark, word = MARKS.get(event.name, ("△", "Attention"))  # type: ignore[call-overload]
    parts = [event.timestamp[11:19], f"{mark} {word}", event.config_name or event.batch_id or ""]
    if event.duration_sec is not None and event.name == EventName.JOB_DONE:
        parts.append(f"{event.duration_sec:.1f} s")
    parts.append((event.server or "").partition("://")[2])
    if event.failure_class or event.message:
        parts.append(": ".join(part for part in (event.failure_class, event.message) if part))
    return one_line("  ".join(part for part in parts if part).replace("\n", "; "))


class QueueBoard:
    """Events as lines. On a terminal, below them, a sentence on the queue and a row for each run at work."""

    def __init__(self, store: Store, workspace: Workspace, agent: Agent | None, *, err: bool) -> None:
        self._store = store
        self._forecasts = Forecasts(store, workspace)
        self._agent = agent
        self._seconds_left: float | None = None
        self._before: Counts | None = None
        self._counts: Counts | None = None
        self._per_minute = 0.0
        self.progress = ProgressView(self._status, err=err)

    async def count(self) -> None:
        """Keep the counts of the sentence current."""
        while True:
            with contextlib.suppress(StoreError):
                self._counts = await self._store.run(ops.count_jobs)
                self._before = self._before or self._counts
                self._per_minute = await self._store.run(ops.done_per_minute)
                self._seconds_left = await self._forecasts.left() if self.progress.is_live else None
            await asyncio.sleep(REFRESH)

    def show(self, event: Event) -> None:
        is_known = self.progress.is_live and event.name in ON_BOARD
        if not is_known and event.name not in REPEATED and not event.is_audit:
            self.progress.say(event_line(event))

    def _status(self) -> Status:
        runs = self._agent.runs if self._agent else []
        width = self.progress.width
        return Status(self._sentence(), rows=[run_row(live_run(run), width) for run in runs[:MOST_ROWS]])

    def _sentence(self) -> str:
        """Counts from the start of this board on: people want to know how this night goes."""
        counts, before = self._counts, self._before
        if counts is None or before is None:
            return "Looking at the queue…"
        done, failed = max(0, counts.done - before.done), max(0, counts.failed - before.failed)
        left, needy = counts.pending + counts.processing, max(0, counts.attention - before.attention)
        troubled = f", {attention(needy)}" if needy else ""
        rate = f", {rate_of(self._per_minute)}" if left and self._per_minute else ""
        until = outlook(self._seconds_left) if left else ""
        return f"{done} of {done + failed + left} done{troubled}{rate}{until}{self._servers()}"

    def _servers(self) -> str:
        if self._agent is None:
            return ""
        servers = list(self._agent.fleet.servers.values())
        if all(server.health == "unknown" for server in servers):
            return ""
        up = sum(server.health == "up" for server in servers)
        if len(servers) > 1:
            return f" on {up} of {len(servers)} servers"
        return "" if up else ", waiting for the server"


def run_row(run: LiveRun, width: int) -> list[Text]:
    """A run at work: its job, how far it is, and where. A narrow terminal shows less of it."""
    name = Text(one_line(run.config_name), no_wrap=True, overflow="ellipsis")
    row = [Text("○" if run.stage in ("sending", "waiting") else "◐"), name, _state(run, width >= WIDE)]
    return [*row, Text(run.server.partition("://")[2], "dim")] if width >= MEDIUM else row


def _state(run: LiveRun, with_bar: bool) -> Text:
    state, node = STAGES.get(run.stage, run.stage), one_line(run.node_type)
    if run.stage != "rendering":
        return Text(state)
    if not run.steps:
        return Text(f"{state}, {node}" if node else state)
    step = f"step {run.step} of {run.steps}"
    return Text(f"{bar(run.step / run.steps, BAR_WIDTH)} {node}, {step}" if with_bar else step, "cyan")
