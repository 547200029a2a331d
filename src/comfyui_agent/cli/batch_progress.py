"""Follows a batch to its end, and works it off where no agent does."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

import typer

from comfyui_agent.batches.batch_summary import sentence
from comfyui_agent.batches.name_lookup import find_batch
from comfyui_agent.cli.invocation import Invocation
from comfyui_agent.cli.output import fail, one_line, print_json
from comfyui_agent.cli.progress import ProgressView, Status
from comfyui_agent.cli.queue_board import event_line, run_row
from comfyui_agent.comfy.tasks import end_tasks
from comfyui_agent.config.workspace import Workspace
from comfyui_agent.domain.batches import Batch, BatchStatus
from comfyui_agent.domain.events import EventName
from comfyui_agent.engine.live_runs import read_live, want_previews
from comfyui_agent.store import operations as ops
from comfyui_agent.store.store import Store
from comfyui_agent.usecases.forecasts import Forecasts

if TYPE_CHECKING:
    from comfyui_agent.engine.agent import Agent

REFRESH = 0.5
MOST_ROWS = 8
FINISHING_SECONDS = 12.0
SHOWN = frozenset(
    {EventName.JOB_DONE, EventName.JOB_FAILED, EventName.JOB_RETRY, EventName.BATCH_EXPIRED, EventName.ALERT_GRID}
)


async def show_queued(call: Invocation, store: Store, batch: Batch, members: str, *, wait: bool) -> int:
    """Print the id of a batch that was just queued, and follow it if that is wanted. Returns the exit code."""
    if not call.as_json:
        typer.echo(batch.id)
    if wait:
        return show_end(call, await follow(store, call.workspace, batch.id, works=True, quiet=call.as_json))
    typer.echo(f"{members} queued. Follow: e3 batch watch {batch.id}", err=True)
    if call.as_json:
        print_json(batch.as_json())
    return 0


def show_end(call: Invocation, batch: Batch) -> int:
    """Print a batch that was followed, or where its grid is. The exit code is 0 if every result is there."""
    if call.as_json:
        print_json(batch.as_json())
    elif batch.grid:
        typer.echo(one_line(f"Grid  {call.workspace.results.address(batch.grid)}"))
    return 0 if batch.status is BatchStatus.COMPLETE and not batch.failed else 1


async def follow(store: Store, workspace: Workspace, batch_id: str, *, works: bool, quiet: bool = False) -> Batch:
    """Show the progress of a batch until it has ended. Returns the batch as it ended.

    With `works`, its jobs are worked off here whenever no agent does. With `quiet`, plain lines go to stderr.
    """
    view = _BatchView(store, workspace, batch_id, err=quiet)
    worker = _Worker(store, workspace, batch_id)
    await view.begin()
    with view.progress:
        try:
            while True:
                batch = await find_batch(store, batch_id)
                await view.show(batch)
                if batch.status.has_ended and not batch.is_grid_due:
                    await worker.finish()
                    return batch
                if works:
                    await worker.ensure_agent()
                await asyncio.sleep(REFRESH)
        finally:
            await worker.stop()


@dataclass
class _Worker:
    """Works a batch off while no agent runs."""

    store: Store
    workspace: Workspace
    batch_id: str
    _agent: Agent | None = None
    _working: asyncio.Task[int] | None = None

    async def ensure_agent(self) -> None:
        from comfyui_agent.engine.composition import make_agent  # the whole engine, for those who work

        if self._working is not None:
            if not self._working.done():
                return
            self._working.result()
            self._working = None
            if self._agent is not None and self._agent.blocked:
                fail(self._agent.blocked)
        is_left = not await self.store.run(ops.is_batch_idle, self.batch_id)
        if is_left and not await ops.is_attended(self.store, self.workspace.locks):
            self._agent = make_agent(self.store, self.workspace, only=self.batch_id)
            self._working = asyncio.create_task(self._agent.run(until_idle=True))

    async def finish(self) -> None:
        """Wait until prompts are taken back from servers, if the batch was ended from outside."""
        if self._working is not None:
            await asyncio.wait({self._working}, timeout=FINISHING_SECONDS)

    async def stop(self) -> None:
        if self._working is not None:
            await end_tasks([self._working])


class _BatchView:
    """Says what happens to a batch. On a terminal a bar shows how it stands, with a row for each run at work."""

    def __init__(self, store: Store, workspace: Workspace, batch_id: str, *, err: bool) -> None:
        self._store = store
        self._locks = workspace.locks
        self._forecasts = Forecasts(store, workspace)
        self._batch_id = batch_id
        self._after = 0
        self._said = ""
        self._status = Status("")
        self.progress = ProgressView(lambda: self._status, err=err)

    async def begin(self) -> None:
        self._after = await self._store.run(ops.newest_event)

    async def show(self, batch: Batch) -> None:
        await self._say_news()
        lost = "".join(f", {each.words}" for each in await self._store.run(ops.lost_servers, self._batch_id))
        if self.progress.is_live:
            await self._update(batch, lost)
            return
        if self._said and not batch.status.has_ended:
            return
        text = sentence(batch, seconds_left=await self._forecasts.left(batch)) + lost
        if text != self._said:
            self.progress.say(f"{batch.id}: {text}")
            self._said = text

    async def _say_news(self) -> None:
        while events := await self._store.run(ops.events_after, self._after):
            for event in events:
                if event.batch_id == self._batch_id and event.name in SHOWN:
                    self.progress.say(event_line(event))
            self._after = events[-1].id

    async def _update(self, batch: Batch, lost: str) -> None:
        await asyncio.to_thread(want_previews, self._locks)
        runs = [run for run in await asyncio.to_thread(read_live, self._locks) if run.batch_id == self._batch_id]
        left = await self._forecasts.left(batch)
        rate = await self._store.run(ops.done_per_minute, self._batch_id)
        text = f"  {sentence(batch, rate, left)}{lost}"
        share = batch.ended / batch.total if batch.total else 0.0
        self._status = Status(text, share, rows=[run_row(run, self.progress.width) for run in runs[:MOST_ROWS]])
        if batch.status.has_ended and not batch.is_grid_due:
            self.progress.say(f"{batch.id}: {sentence(batch)}")  # the bar goes
