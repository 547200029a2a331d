"""`e3 batch`: any batch, whatever it was made from."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, TypeAlias

import typer

from comfyui_agent.batches.batch_summary import sentence
from comfyui_agent.batches.grids import GridOptions
from comfyui_agent.batches.name_lookup import find_batch
from comfyui_agent.batches.sweep_request import GridAxes
from comfyui_agent.cli.batch_progress import follow, show_end
from comfyui_agent.cli.completion import batch_names
from comfyui_agent.cli.invocation import NOBODY, Invocation, workspace_command
from comfyui_agent.cli.lazy_group import command_group
from comfyui_agent.cli.output import describe_maker, fail, one_line, print_json, warn
from comfyui_agent.cli.workspace import Limit
from comfyui_agent.domain.badges import BATCH_MARKS, badge_of
from comfyui_agent.domain.batches import Batch, BatchKind
from comfyui_agent.domain.texts import counted
from comfyui_agent.engine.service import NOT_YET, take_back
from comfyui_agent.store import operations as ops
from comfyui_agent.usecases import batches as usecases
from comfyui_agent.usecases.forecasts import Forecasts

FAILURES_SHOWN = 20

Format: TypeAlias = Literal["png", "jpeg"]
BatchId = Annotated[str, typer.Argument(metavar="ID", help="The id of a batch.", autocompletion=batch_names)]


app = command_group("Batches.")


@workspace_command(app)
async def ls(
    call: Invocation,
    kind: Annotated[BatchKind | None, typer.Option(help="Only batches of this kind.")] = None,
    limit: Limit = 50,
) -> None:
    """List batches, the newest first."""
    async with call.opened() as store:
        found = await store.run(ops.newest_batches, kind=kind, limit=limit)
    empty = f"There is no batch of the kind {kind}." if kind else "There are no batches. Make one: e3 sweep --help"
    call.show_list(
        found,
        lambda each: f"{BATCH_MARKS[each.status]} {each.status:<10}  {each.kind:<5}  {each.id}  {sentence(each)}",
        empty,
    )


@workspace_command(app)
async def show(call: Invocation, batch_id: BatchId) -> None:
    """Show one batch: how it stands, its axes, its grid, and what needs attention."""
    async with call.opened() as store:
        found = await find_batch(store, batch_id)
        left = await Forecasts(store, call.workspace).left(found)
        if call.as_json:
            jobs = [job.as_json() async for job in ops.batch_members(store, found.id, is_whole=True)]
            print_json(found.as_json() | {"eta_seconds": left, "jobs": jobs})
            return
        made_by = await store.run(ops.token_name, found.created_by)
        needy = await store.run(ops.list_jobs, attention=True, batch_id=found.id, limit=FAILURES_SHOWN)
    for label, value in _facts(found, made_by, left):
        typer.echo(one_line(f"{label:<12} {value}"))
    for job in needy:
        reason = (job.error_trace or job.failure_class or "").partition("\n")[0]
        typer.echo(one_line(f"{badge_of(job)}  {job.config_name}: {reason}"))
    if found.attention > len(needy):
        typer.echo(f"… and {found.attention - len(needy):,} more: e3 queue ls --batch {found.id} --attention")


def _facts(found: Batch, made_by: str | None, left: float | None) -> list[tuple[str, str]]:
    axes = found.metadata.get("axes")
    facts = [
        ("batch", f"{found.id} ({found.kind}" + (f", {found.name})" if found.name not in found.id else ")")),
        ("state", f"{BATCH_MARKS[found.status]} {found.status}: {sentence(found, seconds_left=left)}"),
        ("generation", str(found.generation) if found.generation > 1 else ""),
        ("created", found.created_at),
        ("made by", describe_maker(found.created_by, made_by)),
        ("ended", found.completed_at or ""),
    ]
    for axis in axes if isinstance(axes, list) else []:
        values = [str(value) for value in axis.get("values", [])]
        shown = ", ".join(values[:8]) + (f" … {values[-1]} ({len(values)})" if len(values) > 8 else "")
        facts.append(("axis", f"{axis.get('name')} = {shown}"))
    facts += [("folder", str(found.metadata.get("folder", ""))), ("grid", found.grid or found.grid_problem or "")]
    return [(label, value) for label, value in facts if value]


@workspace_command(app, until_signal=True)
async def watch(call: Invocation, batch_id: BatchId) -> int:
    """Watch a batch until it has ended: how far it is, how fast it goes, what renders now. Exit 1 if some failed."""
    async with call.opened() as store:
        found = await find_batch(store, batch_id)
        if not found.status.has_ended and not await ops.is_worked_on(store, call.workspace.locks):
            warn("no burst runs here: run e3 burst again" if found.kind is BatchKind.BURST else NOBODY)
        return show_end(call, await follow(store, call.workspace, found.id, works=False, quiet=call.as_json))


@workspace_command(app)
async def cancel(call: Invocation, batch_id: BatchId) -> None:
    """Cancel what has not ended of a batch. Its prompts are taken back from the servers; no other is touched."""
    async with call.opened() as store:
        change = await usecases.cancel_batch(store, call.actor, await find_batch(store, batch_id))
        if not await take_back(store, call.workspace, change.batch.id):
            warn(NOT_YET)
        found = await find_batch(store, change.batch.id)
    mark = BATCH_MARKS[found.status]
    call.show(found.as_json(), f"{mark} {found.id}: {counted(change.jobs, 'job')} cancelled, {found.done} done")


@workspace_command(app)
async def retry(
    call: Invocation,
    batch_id: BatchId,
    cancelled: Annotated[bool, typer.Option("--cancelled", help="What was cancelled or dismissed, too.")] = False,
) -> None:
    """Render the failed members of a batch again; what is done stays. The grid is made anew at the end."""
    async with call.opened() as store:
        change = await usecases.retry_batch(
            store, call.actor, await find_batch(store, batch_id), with_cancelled=cancelled
        )
    found = change.batch
    if change.jobs:
        hint = ": run e3 burst again" if found.kind is BatchKind.BURST else ""
        line = f"○ {found.id}: {counted(change.jobs, 'job')} submitted again{hint}"
    else:
        more = "; what was cancelled or dismissed: --cancelled" if found.failed else ""
        line = f"{BATCH_MARKS[found.status]} {found.id}: nothing needs attention{more}"
    call.show(found.as_json(), line)


@workspace_command(app)
async def pause(call: Invocation, batch_id: BatchId) -> None:
    """Pause a batch: what waits stays waiting, what is at a server runs on."""
    async with call.opened() as store:
        _show_state(call, await usecases.pause_batch(store, call.actor, await find_batch(store, batch_id)))


@workspace_command(app)
async def resume(call: Invocation, batch_id: BatchId) -> None:
    """Let a paused batch go on."""
    async with call.opened() as store:
        _show_state(call, await usecases.resume_batch(store, call.actor, await find_batch(store, batch_id)))


@workspace_command(app, until_signal=True)
async def grid(
    call: Invocation,
    batch_id: BatchId,
    x: Annotated[str, typer.Option(metavar="AXIS", help="The columns.")] = "",
    y: Annotated[str, typer.Option(metavar="AXIS", help="The rows.")] = "",
    pages: Annotated[str, typer.Option(metavar="AXIS", help="A page for each value of this one.")] = "",
    cell: Annotated[int | None, typer.Option(metavar="PIXELS", min=16, max=8192, help="The size of a cell.")] = None,
    picture_format: Annotated[
        Format | None, typer.Option("--format", help="What the picture is: png, unless --output says another.")
    ] = None,
    output: Annotated[Path | None, typer.Option(metavar="FILE", help="Where to; else beside the results.")] = None,
) -> None:
    """Make the grid of a batch again, as it stands now or laid out in another way."""
    target = output.absolute() if output else None
    options = GridOptions(GridAxes(x, y, pages), cell, _format_of(output, picture_format), target)
    async with call.opened() as store:
        made = await usecases.draw_grid(store, call.workspace, call.actor, await find_batch(store, batch_id), options)
    place = call.workspace
    paths = [place.results.address(place.shown(path)) for path in made.paths]
    if call.as_json:
        print_json({"pictures": paths[:-1], "page": paths[-1]})
        return
    for path in paths:
        typer.echo(path)


def _format_of(output: Path | None, said: Format | None) -> str:
    """The format that the name of the output file ends in, else the one that was given."""
    ending = output.suffix.lower() if output else ""
    known: dict[str, Format] = {".png": "png", ".jpg": "jpeg", ".jpeg": "jpeg"}
    if output is not None:
        if output.is_dir():
            fail(f"--output {output} is a folder: name a file in it")
        if not output.parent.is_dir():
            fail(f"--output {output}: there is no folder {output.parent}: make it, or name another")
        if ending not in known:
            fail(f"--output {output}: its name must end in .png or .jpg", code=2)
        if said is not None and known[ending] != said:
            fail(f"--output {output} is no {said}: leave --format out, or give it another ending", code=2)
    return known.get(ending) or said or "png"


def _show_state(call: Invocation, found: Batch) -> None:
    mark = "○" if found.is_paused else BATCH_MARKS[found.status]
    call.show(found.as_json(), f"{mark} {found.id}: {sentence(found)}")
