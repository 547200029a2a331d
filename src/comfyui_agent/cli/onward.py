"""`e3 again`, `e3 vary`, `e3 use` and `e3 takes`: from a result onwards."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from comfyui_agent.batches.name_lookup import find_job
from comfyui_agent.cli.batch_progress import show_queued
from comfyui_agent.cli.invocation import Invocation, workspace_command
from comfyui_agent.cli.output import fail, one_line, print_json, warn
from comfyui_agent.cli.sweep import pairs
from comfyui_agent.cli.workspace import Name, Wait
from comfyui_agent.config.workflows import NoWorkflow
from comfyui_agent.domain.badges import badge_of
from comfyui_agent.domain.combinations import Mode
from comfyui_agent.domain.jobs import Job
from comfyui_agent.domain.texts import counted
from comfyui_agent.store.store import Store
from comfyui_agent.usecases import variations as usecases
from comfyui_agent.usecases.intake import Intake
from comfyui_agent.usecases.sweeps import PatientPlanner, queue_sweep
from comfyui_agent.usecases.takes import choose_take, takes_of

Sets = Annotated[
    list[str] | None, typer.Option("--set", metavar="INPUT=VALUE", help="Another value; once for each input.")
]
DEFAULT_SEEDS = 4


@workspace_command()
async def again(
    call: Invocation,
    name: Name,
    sets: Sets = None,
    keep_seed: Annotated[bool, typer.Option("--keep-seed", help="Draw no new seed.")] = False,
) -> None:
    """Queue a job like another one, with a new seed and whatever --set says. The first one stays as it is."""
    changes = pairs("--set", sets or [], "INPUT=VALUE, such as steps=30")
    if keep_seed and not changes:
        fail("with --keep-seed something else must change: write --set INPUT=VALUE", code=2)
    async with call.opened() as store:
        intake = Intake(call.workspace)
        original = await usecases.original_of(store, intake, await find_job(store, name))
        is_new = not keep_seed and bool(original.seeds or not changes)
        job = await usecases.run_again(store, intake, call.actor, original, changes, new_seed=is_new)
        await _show_queued(call, store, job)


@workspace_command(until_signal=True)
async def vary(
    call: Invocation,
    name: Name,
    sets: Annotated[
        list[str] | None, typer.Option("--set", metavar="INPUT=VALUES", help="What varies, such as cfg=4..8.")
    ] = None,
    seeds: Annotated[
        int | None,
        typer.Option(min=0, max=10_000, help=f"So many new seeds; {DEFAULT_SEEDS} if nothing else varies."),
    ] = None,
    inputs: Annotated[
        list[str] | None, typer.Option("--input", metavar="NAME=VALUE", help="Another value, for all of them.")
    ] = None,
    mode: Annotated[Mode, typer.Option(help="matrix: every combination; linear: in step.")] = Mode.MATRIX,
    wait: Wait = False,
) -> int:
    """Queue a sweep around a job: more of its kind with other seeds, or over one of its inputs."""
    wanted = pairs("--set", sets or [], "INPUT=VALUES, such as cfg=4..8")
    count = seeds if seeds is not None else 0 if wanted else DEFAULT_SEEDS
    if not wanted and not count:
        fail("there is nothing to vary: write --set INPUT=VALUES or --seeds N", code=2)
    common = pairs("--input", inputs or [], "NAME=VALUE")
    async with call.opened() as store:
        intake = Intake(call.workspace)
        original = await usecases.original_of(store, intake, await find_job(store, name))
        planner = PatientPlanner()
        found = await usecases.plan_variations(intake, original, wanted, planner, inputs=common, seeds=count, mode=mode)
        for warning in found.warnings:
            warn(warning)
        batch = await queue_sweep(store, call.workspace, call.actor, found.sweep)
        return await show_queued(call, store, batch, counted(len(found.sweep), "job"), wait=wait)


@workspace_command()
async def use(
    call: Invocation,
    name: Name,
    workflow: Annotated[str, typer.Argument(metavar="WORKFLOW", help="A workflow that takes a picture.")],
    sets: Sets = None,
    result: Annotated[int, typer.Option(min=1, help="Which result of the job.")] = 1,
) -> None:
    """Queue another workflow whose input picture is the result of a job, to upscale it for instance."""
    changes = pairs("--set", sets or [], "INPUT=VALUE, such as steps=30")
    async with call.opened() as store:
        job, intake = await find_job(store, name), Intake(call.workspace)
        try:
            made = await usecases.use_result(store, intake, call.actor, job, workflow, changes, result=result)
        except NoWorkflow as error:
            fail(str(error), code=2)
        await _show_queued(call, store, made)


@workspace_command()
async def takes(
    call: Invocation,
    name: Name,
    choose: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Let this one count; the others are kept.")
    ] = None,
) -> None:
    """Show every result that a job has made, and say which one counts."""
    async with call.opened() as store:
        job = await find_job(store, name)
        if choose is not None:
            job = await choose_take(store, call.actor, job, choose)
        found = await takes_of(store, job)
    if call.as_json:
        print_json([asdict(take) for take in found])
        return
    for take in found:
        mark = "●" if take.counts else " "
        typer.echo(one_line(f"{mark} {take.number}  {take.end_time or '':.19}  {', '.join(take.outputs)}"))
    if not found:
        typer.echo(f"{job.config_name} has made nothing yet.")


async def _show_queued(call: Invocation, store: Store, job: Job) -> None:
    call.show(job.as_json(), f"{badge_of(job)}  {job.config_name} ({job.id})")
    if not call.as_json:
        await call.warn_if_unattended(store)
