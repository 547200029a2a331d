"""What happens in the queue, for people: a board that lives on a terminal, plain lines elsewhere."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from comfyui_agent.cli.live import rendering
from comfyui_agent.comfy.watch import Stage
from comfyui_agent.domain.events import Event, EventName
from comfyui_agent.store.errors import StoreError

if TYPE_CHECKING:
    from comfyui_agent.engine.agent import Agent
    from comfyui_agent.engine.run import Run
    from comfyui_agent.store.records import Counts
    from comfyui_agent.store.store import Store

WORDS = {
    EventName.JOB_SUBMITTED: ("○", "Pending"),
    EventName.JOB_STARTED: ("◐", "Rendering"),
    EventName.JOB_DONE: ("●", "Done"),
    EventName.JOB_FAILED: ("△", "Needs attention"),
    EventName.JOB_RETRY: ("○", "Again"),
    EventName.JOB_CANCELLED: ("△", "Cancelled"),
    EventName.SERVER_UP: ("●", "Server up"),
    EventName.SERVER_DOWN: ("△", "Server down"),
}
QUIET = frozenset({EventName.JOB_SUBMITTED, EventName.JOB_STARTED})
REFRESH = 0.5
MOST_ROWS = 12


def tell(event: Event) -> str:
    """One line: when, what, which job, where, why."""
    mark, word = WORDS.get(event.name, ("△", "Attention"))  # type: ignore[call-overload]
    parts = [event.timestamp[11:19], f"{mark} {word}", event.config_name or ""]
    if event.duration_sec is not None and event.name == EventName.JOB_DONE:
        parts.append(f"{event.duration_sec:.1f} s")
    parts.append((event.server or "").partition("://")[2])
    if event.failure_class or event.message:
        parts.append(": ".join(part for part in (event.failure_class, event.message) if part))
    return "  ".join(part for part in parts if part)


class QueueBoard:
    """One sentence on how it stands, and a row for everything at work. What ended scrolls by above."""

    def __init__(self, agent: Agent, store: Store) -> None:
        self._agent = agent
        self._store = store
        self._console = Console(highlight=False)
        self._counts: Counts | None = None

    async def show(self) -> None:
        with Live(self._view(), console=self._console, refresh_per_second=8, transient=True) as live:
            unsubscribe = self._agent.bus.subscribe(self._print)
            try:
                while True:
                    with contextlib.suppress(StoreError):
                        self._counts = await self._store.counts()
                    live.update(self._view())
                    await asyncio.sleep(REFRESH)
            finally:
                unsubscribe()

    def _print(self, event: Event) -> None:
        if event.name not in QUIET:
            self._console.print(Text(tell(event)), soft_wrap=True)

    def _view(self) -> Group:
        table = Table.grid(padding=(0, 2))
        runs = self._agent.runs
        for run in runs[:MOST_ROWS]:
            table.add_row("◐" if _is_running(run) else "○", run.leased.config_name, _state(run), _place(run))
        return Group(Text(self._sentence()), table)

    def _sentence(self) -> str:
        counts = self._counts
        if counts is None:
            return "Looking at the queue…"
        total = counts.pending + counts.processing + counts.done + counts.failed
        servers = list(self._agent.fleet.servers.values())
        up = sum(server.health == "up" for server in servers)
        where = f"{up} of {len(servers)} servers up" if len(servers) > 1 else ("server up" if up else "server down")
        attention = f", {counts.failed} need attention" if counts.failed else ""
        return f"{counts.done} of {total} done{attention}, {counts.pending} pending, {where}"


def _is_running(run: Run) -> bool:
    return run.progress is not None and run.progress.stage is Stage.RUNNING


def _state(run: Run) -> Text:
    if run.is_collecting:
        return Text("fetching the result")
    if run.progress is None:
        return Text("sending")
    return rendering(run.progress) if _is_running(run) else Text("waiting at the server")


def _place(run: Run) -> Text:
    return Text(run.server.name.partition("://")[2], "dim")
