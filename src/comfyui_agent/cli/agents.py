"""`e3 run`, `e3 monitor` and `e3 execute`: all in one, or one loop each."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Annotated

import typer

from comfyui_agent.cli.output import fail, log_for_people, on_terminal, print_json
from comfyui_agent.cli.signals import run_until_signal
from comfyui_agent.cli.workspace import (
    HERE,
    AsJson,
    ConfigOption,
    DatabaseOption,
    Folder,
    check_addresses,
    opened,
    workspace_at,
)
from comfyui_agent.clock import SYSTEM_CLOCK
from comfyui_agent.domain.texts import attention, counted
from comfyui_agent.store import operations as ops

if TYPE_CHECKING:
    from comfyui_agent.config.workspace import Workspace
    from comfyui_agent.domain.events import Event
    from comfyui_agent.engine.agent import Agent
    from comfyui_agent.engine.intake.monitor import Monitor
    from comfyui_agent.events.bus import Bus
    from comfyui_agent.store.store import Store

Servers = Annotated[
    list[str] | None,
    typer.Option("--server", metavar="URL", help="A ComfyUI to work with; give it several times for several."),
]
SUMMARY_SECONDS = 0.5
STOPS = "Ctrl-C stops; nothing gets lost."

UntilIdle = Annotated[
    bool, typer.Option("--until-idle", help="Stop when nothing is pending; exit 1 if a job failed meanwhile.")
]
Verbose = Annotated[bool, typer.Option("-v", "--verbose", help="Tell more about what happens.")]


def run(
    workspace: Folder = HERE,
    config: ConfigOption = "",
    server: Servers = None,
    database: DatabaseOption = "",
    until_idle: UntilIdle = False,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Watch the folder of job files and work the queue off, in one process.

    Drop a YAML file into jobs/processing/, find the picture in jobs/finished/. The web page to watch it is at
    http://127.0.0.1:8190. Ctrl-C and SIGTERM stop it within two seconds; what runs at a server goes on there, and the
    next start takes it over.

    [bold]Examples[/bold]

    e3 run
        The workspace in this folder, for ever.

    e3 run -C night --until-idle
        Another one, until everything is done; exit 1 if a job failed.
    """
    log_for_people(verbose)
    place = workspace_at(workspace, database, server, config)
    check_addresses(place, are_given=bool(server))
    run_until_signal(_run(place, until_idle, as_json))


def monitor(
    workspace: Folder = HERE,
    config: ConfigOption = "",
    database: DatabaseOption = "",
    until_idle: Annotated[
        bool, typer.Option("--until-idle", help="Stop when every file has been taken in; exit 1 if one was bad.")
    ] = False,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Watch the folder of job files and queue what is dropped there; another process renders it.

    [bold]Examples[/bold]

    e3 monitor
        For ever, beside e3 execute in another terminal.

    e3 monitor --until-idle
        Take in what is there now.
    """
    log_for_people(verbose)
    run_until_signal(_monitor(workspace_at(workspace, database, config=config), until_idle, as_json))


def execute(
    workspace: Folder = HERE,
    config: ConfigOption = "",
    server: Servers = None,
    database: DatabaseOption = "",
    until_idle: UntilIdle = False,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Work the queue off: lease jobs, have ComfyUI render them, bring the results home.

    Ctrl-C and SIGTERM stop it within two seconds; what runs at a server goes on there, and the next start takes it
    over. Start it as often as you like on one database: nothing is rendered twice.

    [bold]Examples[/bold]

    e3 execute
        The ComfyUI on this machine, for ever.

    e3 execute --until-idle --server http://gpu1:8188 --server http://gpu2:8188
        Two servers, until everything is done.
    """
    log_for_people(verbose)
    place = workspace_at(workspace, database, server, config)
    check_addresses(place, are_given=bool(server))
    run_until_signal(_execute(place, until_idle, as_json))


async def _run(workspace: Workspace, until_idle: bool, as_json: bool) -> int:
    from comfyui_agent.cli.serve import page_beside
    from comfyui_agent.engine.intake.monitor import Monitor
    from comfyui_agent.engine.service import serve

    prepare_folders(workspace)
    async with opened(workspace, create=True) as store, _agent(workspace, store) as agent:
        monitor = Monitor(store, workspace)
        folder = workspace.job_file(workspace.processing)
        opening = f"Watching {folder}, rendering with {', '.join(agent.fleet.servers)}. {STOPS}"
        async with (
            _summed_up(store, opening, as_json, monitor),
            page_beside(store, workspace),
            shown(agent.bus, store, agent, as_json=as_json),
        ):
            failures = await serve(agent, monitor, until_idle=until_idle)
        return _code_of(agent, failures)


async def _monitor(workspace: Workspace, until_idle: bool, as_json: bool) -> int:
    from comfyui_agent.engine.event_tail import EventTail
    from comfyui_agent.engine.intake.monitor import Monitor
    from comfyui_agent.events.bus import Bus
    from comfyui_agent.events.log import MetricsLog

    prepare_folders(workspace)
    async with opened(workspace, create=True) as store:
        monitor, bus = Monitor(store, workspace), Bus()
        tail = EventTail(store, MetricsLog(workspace.metrics_log, store.identity), bus, SYSTEM_CLOCK)
        opening = f"Watching {workspace.job_file(workspace.processing)}. {STOPS}"
        first_event = await tail.begin()
        following = asyncio.create_task(tail.follow())
        async with _summed_up(store, opening, as_json, monitor):
            try:
                async with shown(bus, store, as_json=as_json):
                    await monitor.run(until_idle=until_idle)
                    await tail.catch_up()
            finally:
                following.cancel()
                await asyncio.gather(following, return_exceptions=True)
                tail.close()
        return 1 if await store.run(ops.failures_since, first_event) else 0


async def _execute(workspace: Workspace, until_idle: bool, as_json: bool) -> int:
    async with opened(workspace, create=True) as store, _agent(workspace, store) as agent:
        opening = f"Working off {workspace.database} with {', '.join(agent.fleet.servers)}. {STOPS}"
        async with _summed_up(store, opening, as_json), shown(agent.bus, store, agent, as_json=as_json):
            failures = await agent.run(until_idle=until_idle)
        return _code_of(agent, failures)


def _code_of(agent: Agent, failures: int) -> int:
    if agent.blocked:
        _say(f"e3: {agent.blocked}")
    return 1 if failures or agent.blocked else 0


@contextlib.asynccontextmanager
async def _agent(workspace: Workspace, store: Store) -> AsyncIterator[Agent]:
    """An agent. Its lock file is removed at the end, even if a signal comes before it works."""
    from comfyui_agent.engine.agent import Agent

    try:
        agent = Agent(store, workspace)
    except OSError as error:
        fail(f"no lock file can be made in {workspace.locks}: {error.strerror}")
    try:
        yield agent
    finally:
        agent.close()


def prepare_folders(workspace: Workspace) -> None:
    """Make the folders of job files and results. Fails if this is no workspace, before a database is made there."""
    from comfyui_agent.config.validation import Complaints
    from comfyui_agent.engine.intake.folder_scan import NoFolder, make_folders

    try:
        make_folders(workspace)
    except NoFolder as error:
        fail(str(error))
    except Complaints as error:
        fail(str(error), code=2)


def _say(message: str) -> None:
    typer.echo(message, err=True)


@contextlib.asynccontextmanager
async def _summed_up(store: Store, opening: str, as_json: bool, monitor: Monitor | None = None) -> AsyncIterator[None]:
    """Say what is done here, and print a summary at the end, also after a signal."""
    from comfyui_agent.store.errors import StoreError

    first_event = await store.run(ops.newest_event)
    try:
        _say(opening)
        yield
    except asyncio.CancelledError:
        with contextlib.suppress(asyncio.TimeoutError, StoreError, OSError):
            await asyncio.wait_for(_sum_up(store, as_json, first_event, monitor), SUMMARY_SECONDS)
        raise
    await _sum_up(store, as_json, first_event, monitor)


async def _sum_up(store: Store, as_json: bool, first_event: int, monitor: Monitor | None) -> None:
    counts, taken_in = await store.run(ops.count_jobs), monitor.taken_in if monitor else None
    if as_json:
        failures = await store.run(ops.failures_since, first_event)
        facts = {"done": counts.done, "failed": counts.failed, "attention": counts.attention, "pending": counts.pending}
        facts |= {"processing": counts.processing, "failed_meanwhile": failures}
        print_json(facts if taken_in is None else facts | {"taken_in": taken_in})
        return
    taken = "" if taken_in is None else f"{counted(taken_in, 'job file')} taken in. In all: "
    typer.echo(f"{taken}{counts.done} done, {attention(counts.attention)}, {counts.pending} pending.")


@contextlib.asynccontextmanager
async def shown(bus: Bus, store: Store, agent: Agent | None = None, *, as_json: bool = False) -> AsyncIterator[None]:
    """Show events: a board on a terminal, lines elsewhere. They go to stderr if stdout is for JSON."""
    from comfyui_agent.cli.queue_board import QueueBoard

    if as_json or not on_terminal():
        bus.subscribe(lambda event: _print_event(event, err=as_json))
        yield
        return
    board = QueueBoard(bus, store, agent)
    showing = asyncio.create_task(board.show())
    try:
        yield
    finally:
        showing.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await showing


def _print_event(event: Event, *, err: bool) -> None:
    from comfyui_agent.cli.queue_board import TOLD_TWICE, tell

    if event.name in TOLD_TWICE or event.is_audit:
        return
    with contextlib.suppress(OSError):  # no room for a log, or nobody reads it: the work goes on
        typer.echo(tell(event), err=err)


def main(command: str) -> None:
    """`python -m comfyui_agent.run` does the same as `e3 run`."""
    from comfyui_agent.cli.app import main as e3

    sys.argv[1:1] = [command]
    e3()
