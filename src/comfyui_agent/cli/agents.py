"""`e3 run`, `e3 monitor` and `e3 execute`: all in one, or one loop each."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import sys
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Annotated

import typer

from comfyui_agent.cli.invocation import Invocation, workspace_command
from comfyui_agent.cli.output import fail, print_json, warn
from comfyui_agent.cli.workspace import check_files
from comfyui_agent.clock import SYSTEM_CLOCK
from comfyui_agent.comfy.tasks import end_tasks
from comfyui_agent.config.validation import Complaints
from comfyui_agent.domain.texts import attention, counted
from comfyui_agent.events.bus import Bus
from comfyui_agent.pools import OBJECTS
from comfyui_agent.store import operations as ops
from comfyui_agent.store.errors import StoreError
from comfyui_agent.store.store import Store

if TYPE_CHECKING:  # imported where they are used: help needs neither YAML nor the engine
    from comfyui_agent.config.workspace import Workspace
    from comfyui_agent.engine.agent import Agent
    from comfyui_agent.engine.intake.monitor import Monitor

SUMMARY_SECONDS = 0.5
STOPS = "Ctrl-C stops; nothing gets lost."

UntilIdle = Annotated[
    bool, typer.Option("--until-idle", help="Stop when nothing is pending; exit 1 if a job failed meanwhile.")
]
OPTIONS = ("workspace", "config", "server", "database", "until_idle", "as_json", "verbose")


@workspace_command(options=OPTIONS, until_signal=True)
async def run(call: Invocation, until_idle: UntilIdle = False) -> int:
    """Watch the folder of job files and work the queue off, in one process.

    Drop a YAML file into jobs/processing/, find the picture in jobs/finished/. The web page to watch it is at
    http://127.0.0.1:8190. Ctrl-C and SIGTERM stop it within two seconds; what runs at a server goes on there, and the
    next start takes it over.
    """
    from comfyui_agent.cli.sites import served_beside
    from comfyui_agent.engine.intake.monitor import Monitor
    from comfyui_agent.engine.service import serve

    workspace = call.workspace
    prepare_folders(workspace)
    async with call.opened(create=True, is_patient=True) as store, _agent(workspace, store) as agent:
        monitor = Monitor(store, workspace)
        folder = workspace.job_file(workspace.processing)
        opening = f"Watching {folder}, rendering with {_servers_of(agent)}. {STOPS}"
        async with (
            _summed_up(store, opening, call.as_json, monitor),
            served_beside(store, workspace),
            shown(agent.bus, store, workspace, agent, as_json=call.as_json),
        ):
            failures = await serve(agent, monitor, until_idle=until_idle)
        return _code_of(agent, failures)


@workspace_command(options=[each for each in OPTIONS if each != "server"], until_signal=True)
async def monitor(
    call: Invocation,
    until_idle: Annotated[
        bool, typer.Option("--until-idle", help="Stop when every file has been taken in; exit 1 if one was bad.")
    ] = False,
) -> int:
    """Watch the folder of job files and queue what is dropped there; another process renders it."""
    from comfyui_agent.engine.event_tail import EventTail
    from comfyui_agent.engine.intake.monitor import Monitor
    from comfyui_agent.events.log import MetricsLog

    workspace = call.workspace
    prepare_folders(workspace)
    async with call.opened(create=True, is_patient=True) as store:
        monitor, bus = Monitor(store, workspace), Bus()
        tail = EventTail(store, MetricsLog(workspace.metrics_log, store.identity), bus, SYSTEM_CLOCK)
        opening = f"Watching {workspace.job_file(workspace.processing)}. {STOPS}"
        first_event = await tail.begin()
        following = asyncio.create_task(tail.follow())
        async with _summed_up(store, opening, call.as_json, monitor):
            try:
                async with shown(bus, store, workspace, as_json=call.as_json):
                    await monitor.run(until_idle=until_idle)
                    await tail.catch_up()
            finally:
                await end_tasks([following])
                tail.metrics.close()
        return 1 if await store.run(ops.failures_since, first_event) else 0


@workspace_command(options=OPTIONS, until_signal=True)
async def execute(call: Invocation, until_idle: UntilIdle = False) -> int:
    """Work the queue off: lease jobs, have ComfyUI render them, bring the results home.

    Ctrl-C and SIGTERM stop it within two seconds; what runs at a server goes on there, and the next start takes it
    over. Start it as often as you like on one database: nothing is rendered twice.
    """
    async with call.opened(create=True, is_patient=True) as store, _agent(call.workspace, store) as agent:
        opening = f"Working off {call.workspace.database_name} with {_servers_of(agent)}. {STOPS}"
        board = shown(agent.bus, store, call.workspace, agent, as_json=call.as_json)
        async with _summed_up(store, opening, call.as_json), board:
            failures = await agent.run(until_idle=until_idle)
        return _code_of(agent, failures)


def _servers_of(agent: Agent) -> str:
    return ", ".join(agent.fleet.servers) or "the ComfyUI processes of comfyui.launch"


def _code_of(agent: Agent, failures: int) -> int:
    if agent.blocked:
        warn(agent.blocked)
    return 1 if failures or agent.blocked else 0


@contextlib.asynccontextmanager
async def _agent(workspace: Workspace, store: Store) -> AsyncIterator[Agent]:
    """An agent. Its lock file is removed at the end, even if a signal comes before it works."""
    from comfyui_agent.engine.composition import make_agent

    await OBJECTS.run(check_files, workspace)
    try:
        agent = make_agent(store, workspace)
    except OSError as error:
        fail(f"no lock file can be made in {workspace.locks}: {error.strerror}")
    try:
        gc.freeze()  # what the start has made stays, and a job leaves little garbage in cycles
        gc.set_threshold(20_000)
        yield agent
    finally:
        agent.lock.release()  # `run` does so at its end


def prepare_folders(workspace: Workspace) -> None:
    """Make the folders of job files and results. Fails if this is no workspace, before a database is made there."""
    from comfyui_agent.engine.intake.folder_scan import NoFolder, make_folders

    try:
        make_folders(workspace)
    except NoFolder as error:
        fail(str(error))
    except Complaints as error:
        fail(str(error), code=2)


@contextlib.asynccontextmanager
async def _summed_up(store: Store, opening: str, as_json: bool, monitor: Monitor | None = None) -> AsyncIterator[None]:
    """Say what is done here, and print a summary at the end, also after a signal."""
    first_event = await store.run(ops.newest_event)
    try:
        typer.echo(opening, err=True)
        yield
    except asyncio.CancelledError:
        with contextlib.suppress(asyncio.TimeoutError, StoreError, OSError):
            await asyncio.wait_for(_sum_up(store, as_json, first_event, monitor), SUMMARY_SECONDS)
        raise
    await _sum_up(store, as_json, first_event, monitor)


async def _sum_up(store: Store, as_json: bool, first_event: int, monitor: Monitor | None) -> None:
    counts, taken_in = await store.run(ops.count_jobs), monitor.taken_in if monitor else None
    if as_json:
        facts = {name: getattr(counts, name) for name in ("done", "failed", "attention", "pending", "processing")}
        facts["failed_meanwhile"] = await store.run(ops.failures_since, first_event)
        print_json(facts if taken_in is None else facts | {"taken_in": taken_in})
        return
    taken = "" if taken_in is None else f"{counted(taken_in, 'job file')} taken in. In all: "
    typer.echo(f"{taken}{counts.done} done, {attention(counts.attention)}, {counts.pending} pending.")


@contextlib.asynccontextmanager
async def shown(
    bus: Bus, store: Store, workspace: Workspace, agent: Agent | None = None, *, as_json: bool = False
) -> AsyncIterator[None]:
    """Show events: a board on a terminal, lines elsewhere. They go to stderr if stdout is for JSON."""
    from comfyui_agent.cli.queue_board import QueueBoard

    board = QueueBoard(store, workspace, agent, err=as_json)
    unsubscribe = bus.subscribe(board.show)
    with board.progress:
        counting = asyncio.create_task(board.count()) if board.progress.is_live else None
        try:
            yield
        finally:
            await end_tasks([counting] if counting else [])
            unsubscribe()


def main(command: str) -> None:
    """`python -m comfyui_agent.run` does the same as `e3 run`."""
    from comfyui_agent.cli.app import main as e3

    sys.argv[1:1] = [command]
    e3()
