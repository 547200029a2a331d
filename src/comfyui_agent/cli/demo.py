"""`e3 demo`: a simulator, a workspace, twelve job files, and what becomes of them."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from comfyui_agent.cli.agents import shown
from comfyui_agent.cli.printing import fail, log_for_people
from comfyui_agent.cli.running import run_until_signal
from comfyui_agent.cli.workspace import opened, workspace_at

if TYPE_CHECKING:
    from comfyui_agent.config.workspace import Workspace
    from comfyui_agent.domain.jobs import Job
    from comfyui_agent.sim.process import ServerProcess

PACE = ("--render-seconds", "lognormal:1.0:0.25", "--model-load-seconds", "0.3")
# With this seed the fourth render fails, and no other of the first twenty.
TROUBLE = ("--failure-rate", "0.05", "--seed", "52")
MARK = ".e3_demo"
EXPECTED_DONE, EXPECTED_FAILED = 11, 1


def demo(
    output_dir: Annotated[
        Path, typer.Option(metavar="DIR", help="The workspace that is made; an earlier demo there is replaced.")
    ] = Path("demo_output"),
) -> None:
    """See it work: drop twelve job files into a folder and watch them become pictures and a film.

    Needs no ComfyUI, no GPU and no network, and takes about twenty seconds. One job asks for a model that is not there,
    and one render fails on purpose and is tried again, to show what that looks like.

    [bold]Examples[/bold]

    e3 demo --output-dir /tmp/look
        Somewhere else than in demo_output.
    """
    log_for_people(verbose=False)
    run_until_signal(_demo(output_dir))


async def _demo(folder: Path) -> int:
    from comfyui_agent.sim.process import simulator

    workspace = _fresh_workspace(folder)
    with tempfile.TemporaryDirectory(prefix="e3-demo-") as place:
        server = simulator(Path(place), *PACE, *TROUBLE)
        server.launch()
        try:
            await asyncio.to_thread(server.wait_until_up)
            return await _work(_with_server(workspace, server), server, folder)
        finally:
            server.stop()


def _fresh_workspace(folder: Path) -> Workspace:
    from comfyui_agent.config.starting import start_workspace

    try:
        if folder.is_dir() and any(folder.iterdir()):
            if not (folder / MARK).exists():
                fail(f"the folder {folder} is not empty and no earlier demo: give another with --output-dir")
            shutil.rmtree(folder)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / MARK).touch()
        for _ in start_workspace(folder):
            pass
    except OSError as error:
        fail(f"cannot make the folder {folder}: {error.strerror}. Give another with --output-dir")
    return workspace_at(folder)


def _with_server(workspace: Workspace, server: ServerProcess) -> Workspace:
    """The simulator, and sub-second waits before retries."""
    comfyui = workspace.settings.comfyui.model_copy(update={"servers": (server.url,)})
    settings = workspace.settings.model_copy(update={"comfyui": comfyui, "retry_backoff_seconds": (0.5,)})
    return replace(workspace, settings=settings)


async def _work(workspace: Workspace, server: ServerProcess, folder: Path) -> int:
    from comfyui_agent.cli.demo_jobs import demo_jobs
    from comfyui_agent.engine.agent import Agent
    from comfyui_agent.engine.intake.monitor import Monitor
    from comfyui_agent.engine.service import serve

    jobs = demo_jobs()
    typer.echo(f"A ComfyUI simulator runs at {server.url}. {len(jobs)} job files go to {folder / 'jobs/processing'}.\n")
    async with opened(workspace, create=True) as store:
        agent, monitor = Agent(store, workspace), Monitor(store, workspace)
        for job in jobs:
            (workspace.processing / job.kind / f"{job.name}.yaml").write_text(job.text, encoding="utf-8")
        async with shown(agent.bus, store, agent):
            await serve(agent, monitor, until_idle=True)
        rows = await store.jobs(limit=100)
        counts = await store.counts()
    _sum_up(sorted(rows, key=lambda row: row.config_name), folder)
    return 0 if (counts.done, counts.failed) == (EXPECTED_DONE, EXPECTED_FAILED) else 1


def _sum_up(jobs: list[Job], folder: Path) -> None:
    from comfyui_agent.cli.queue import BADGES
    from comfyui_agent.domain.states import JobStatus

    done = [job for job in jobs if job.status is JobStatus.DONE]
    retried = [job for job in jobs if job.retries_attempted]
    typer.echo(f"\n{len(done)} of {len(jobs)} done, {len(jobs) - len(done)} needs attention, as it should:")
    for job in jobs:
        if job.status is not JobStatus.DONE:
            typer.echo(f"  {BADGES[job.status]}  {job.config_name}: {(job.error_trace or '').partition(chr(10))[0]}")
    for job in retried:
        typer.echo(f"  {BADGES[job.status]}  {job.config_name}: a render failed, the next one did not")
    typer.echo(f"\nPictures    {folder / 'jobs/finished/image'}")
    typer.echo(f"Film        {folder / 'jobs/finished/video'}")
    typer.echo(f"The queue   e3 queue ls -C {folder}")
    typer.echo(f"One job     e3 show 08_dragon_tamer.yaml -C {folder}")
    typer.echo("Your own    e3 init night, then e3 doctor there (see README.md)")
