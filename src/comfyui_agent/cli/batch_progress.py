"""Following a batch to its end: a bar on a terminal, lines elsewhere; and the work itself, if nobody else does it."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING

import typer

from comfyui_agent.batches.batch_summary import sentence
from comfyui_agent.cli.output import fail, on_terminal, one_line
from comfyui_agent.domain.batches import Batch, BatchStatus
from comfyui_agent.domain.events import EventName
from comfyui_agent.domain.pace import Pace
from comfyui_agent.store import operations as ops

if TYPE_CHECKING:
    from rich.console import Console, Group

    from comfyui_agent.config.workspace import Workspace
    from comfyui_agent.domain.events import Event
    from comfyui_agent.engine.agent import Agent
    from comfyui_agent.engine.live_files import LiveRun
    from comfyui_agent.store.store import Store

REFRESH = 0.5
BAR = 30
MOST_ROWS = 8
FINISHING_SECONDS = 12.0
STATES = {
    "rendering": "Rendering",
    "waiting": "waiting at the server",
    "fetching": "fetching the result",
    "away": "waiting for the server to answer",
}
SHOWN = frozenset(
    {EventName.JOB_DONE, EventName.JOB_FAILED, EventName.JOB_RETRY, EventName.BATCH_EXPIRED, EventName.ALERT_GRID}
)


async def follow(store: Store, workspace: Workspace, batch_id: str, *, works: bool, quiet: bool = False) -> Batch:
    """Show how a batch goes on until it has ended; how it stands then.

    With `works`, its jobs are worked off here whenever no agent does. `quiet` tells on stderr, in lines.
    """
    view = _Board(store, workspace, batch_id) if on_terminal() and not quiet else _Lines(store, batch_id, err=quiet)
    worker = _Worker(store, workspace, batch_id) if works else None
    await view.begin()
    try:
        while True:
            batch = await _find(store, batch_id)
            await view.show(batch)
            if batch.status.has_ended and not batch.is_grid_due:
                if worker is not None:
                    await worker.finish()
                return batch
            if worker is not None:
                await worker.see_to_it()
            await asyncio.sleep(REFRESH)
    finally:
        if worker is not None:
            await worker.stop()
        view.end()


def code_of(batch: Batch) -> int:
    """What a script wants to know: 0 if all of it is there."""
    return 0 if batch.status is BatchStatus.COMPLETE and not batch.failed else 1


async def _find(store: Store, batch_id: str) -> Batch:
    batch = await store.run(ops.find_batch, batch_id)
    if batch is None:
        fail(f"there is no batch {batch_id!r}: see e3 batch ls")
    return batch


class _Worker:
    """Works a batch off while no agent lives that would."""

    def __init__(self, store: Store, workspace: Workspace, batch_id: str) -> None:
        self._store = store
        self._workspace = workspace
        self._batch_id = batch_id
        self._agent: Agent | None = None
        self._working: asyncio.Task[int] | None = None

    async def see_to_it(self) -> None:
        from comfyui_agent.engine.composition import make_agent
        from comfyui_agent.store.agent_lock import is_attended

        if self._working is not None:
            if not self._working.done():
                return
            self._working.result()
            self._working = None
            if self._agent is not None and self._agent.blocked:
                fail(self._agent.blocked)
        if not is_attended(self._workspace.locks) and not await self._store.run(ops.is_batch_idle, self._batch_id):
            self._agent = make_agent(self._store, self._workspace, only=self._batch_id)
            self._working = asyncio.create_task(self._agent.run(until_idle=True))

    async def finish(self) -> None:
        """Let what is at a server be taken back, if the batch was ended from outside."""
        if self._working is not None:
            await asyncio.wait({self._working}, timeout=FINISHING_SECONDS)

    async def stop(self) -> None:
        from comfyui_agent.comfy.tasks import end_tasks

        if self._working is not None:
            await end_tasks([self._working])


class _Lines:
    """A line for everything that happens to the batch, and one on how it stands when that has changed."""

    def __init__(self, store: Store, batch_id: str, *, err: bool) -> None:
        self._store = store
        self._batch_id = batch_id
        self._err = err
        self._after = 0
        self._said = ""

    async def begin(self) -> None:
        self._after = await self._store.run(ops.newest_event)

    async def show(self, batch: Batch) -> None:
        await self._tell_news()
        words = sentence(batch) + await self._away()
        if words != self._said and (not self._said or batch.status.has_ended):
            self._say(f"{batch.id}: {words}")
            self._said = words

    async def _away(self) -> str:
        """How many of it wait for servers that do not answer."""
        return "".join(f", {each.words}" for each in await self._store.run(ops.lost_servers, self._batch_id))

    async def _tell_news(self) -> list[Event]:
        """Say what happened since; all of it."""
        from comfyui_agent.cli.queue_board import tell

        found = await self._news()
        for event in found:
            if event.name in SHOWN:
                self._say(tell(event))
        return found

    async def _news(self) -> list[Event]:
        found: list[Event] = []
        while events := await self._store.run(ops.events_after, self._after):
            found += [event for event in events if event.batch_id == self._batch_id]
            self._after = events[-1].id
        return found

    def _say(self, words: str) -> None:
        with contextlib.suppress(OSError):
            typer.echo(one_line(words), err=self._err)

    def end(self) -> None:
        pass


class _Board(_Lines):
    """A bar that lives, and what is at work below it. What ended scrolls by above."""

    def __init__(self, store: Store, workspace: Workspace, batch_id: str) -> None:
        from rich.console import Console
        from rich.live import Live

        super().__init__(store, batch_id, err=False)
        self._locks = workspace.locks
        self._pace = Pace()
        self._console: Console = Console(highlight=False)
        self._live = Live(console=self._console, refresh_per_second=8, transient=True)

    async def begin(self) -> None:
        await super().begin()
        self._live.start()

    async def show(self, batch: Batch) -> None:
        from comfyui_agent.engine.live_files import read_live

        for event in await self._tell_news():
            if event.name == EventName.JOB_DONE:
                self._pace.count(time.monotonic())
        runs = [run for run in await asyncio.to_thread(read_live, self._locks) if run.batch_id == self._batch_id]
        self._live.update(self._view(batch, runs, await self._away()))
        if batch.status.has_ended and not batch.is_grid_due:
            self._say(f"{batch.id}: {sentence(batch)}")  # the bar goes

    def _view(self, batch: Batch, runs: list[LiveRun], away: str) -> Group:
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        filled = round(BAR * batch.ended / batch.total) if batch.total else 0
        bar = Text("━" * filled, "cyan") + Text("─" * (BAR - filled), "dim")
        line = bar + Text(f"  {sentence(batch, self._pace.per_second(time.monotonic()))}{away}")
        table = Table.grid(padding=(0, 2))
        for run in runs[:MOST_ROWS]:
            mark = "◐" if run.stage == "rendering" else "○"
            name = Text(one_line(run.config_name), no_wrap=True, overflow="ellipsis")
            table.add_row(Text(mark), name, Text(_state(run), "cyan"), Text(run.server.partition("://")[2], "dim"))
        return Group(line, table)

    def _say(self, words: str) -> None:
        from rich.text import Text

        self._console.print(Text(one_line(words)), soft_wrap=True)

    def end(self) -> None:
        self._live.stop()


def _state(run: LiveRun) -> str:
    if run.stage == "rendering" and run.steps:
        return f"{one_line(run.node_type)}, step {run.step} of {run.steps}"
    return STATES.get(run.stage, run.stage)
