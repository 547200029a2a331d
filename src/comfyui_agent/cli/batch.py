"""`e3 batch`: any batch, whatever it was made from."""

from __future__ import annotations

import asyncio
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from comfyui_agent.batches.batch_summary import sentence
from comfyui_agent.cli.audit import note_audit
from comfyui_agent.cli.batch_progress import code_of, follow
from comfyui_agent.cli.completion import batch_names
from comfyui_agent.cli.named_jobs import NOBODY, find_batch
from comfyui_agent.cli.output import fail, made_by_words, one_line, print_json
from comfyui_agent.cli.signals import run_until_signal
from comfyui_agent.cli.workspace import HERE, AsJson, ConfigOption, DatabaseOption, Folder, opened, workspace_at
from comfyui_agent.domain.badges import BATCH_MARKS, badge_of
from comfyui_agent.domain.batches import BatchKind, BatchStatus
from comfyui_agent.domain.events import EventName
from comfyui_agent.domain.texts import counted
from comfyui_agent.store import operations as ops

if TYPE_CHECKING:
    from comfyui_agent.config.workspace import Workspace
    from comfyui_agent.domain.batches import Batch

FAILURES_SHOWN = 20

BatchId = Annotated[str, typer.Argument(metavar="ID", help="The id of a batch.", autocompletion=batch_names)]


class Format(str, Enum):
    """What the picture of a grid is."""

    PNG = "png"
    JPEG = "jpeg"


app = typer.Typer(add_completion=False, help="Batches.", no_args_is_help=True, rich_markup_mode="rich")


@app.callback()
def batch() -> None:
    """Batches: sweeps, books, bursts and files that were added as one."""


@app.command()
def ls(
    kind: Annotated[BatchKind | None, typer.Option(help="Only batches of this kind.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="At most so many.")] = 50,
    workspace: Folder = HERE,
    config: ConfigOption = "",
    database: DatabaseOption = "",
    as_json: AsJson = False,
) -> None:
    """List batches, the newest first.

    [bold]Examples[/bold]

    e3 batch ls --kind sweep
        Only sweeps.
    """
    asyncio.run(_ls(workspace_at(workspace, database, config=config), kind, limit, as_json))


async def _ls(workspace: Workspace, kind: BatchKind | None, limit: int, as_json: bool) -> None:
    async with opened(workspace) as store:
        found = await store.run(ops.newest_batches, kind=kind, limit=limit)
    if as_json:
        print_json([each.as_json() for each in found])
        return
    for each in found:
        typer.echo(
            one_line(f"{BATCH_MARKS[each.status]} {each.status:<10}  {each.kind:<5}  {each.id}  {sentence(each)}")
        )
    if not found:
        typer.echo(
            f"There is no batch of the kind {kind}." if kind else "There are no batches. Make one: e3 sweep --help"
        )


@app.command()
def show(
    batch_id: BatchId,
    workspace: Folder = HERE,
    config: ConfigOption = "",
    database: DatabaseOption = "",
    as_json: AsJson = False,
) -> None:
    """Show one batch: how it stands, its axes, its grid, and what needs attention.

    [bold]Examples[/bold]

    e3 batch show knights_1a2b3c4d --json
        With every job, for a script.
    """
    asyncio.run(_show(workspace_at(workspace, database, config=config), batch_id, as_json))


async def _show(workspace: Workspace, batch_id: str, as_json: bool) -> None:
    async with opened(workspace) as store:
        found = await find_batch(store, batch_id)
        if as_json:
            jobs = [job.as_json() async for job in ops.batch_members(store, found.id, is_whole=True)]
            print_json(found.as_json() | {"jobs": jobs})
            return
        made_by = await store.run(ops.token_name, found.created_by)
        needy = await store.run(ops.list_jobs, attention=True, batch_id=found.id, limit=FAILURES_SHOWN)
    for label, value in _facts(found, made_by):
        typer.echo(one_line(f"{label:<12} {value}"))
    for job in needy:
        reason = (job.error_trace or job.failure_class or "").partition("\n")[0]
        typer.echo(one_line(f"{badge_of(job)}  {job.config_name}: {reason}"))
    if found.attention > len(needy):
        typer.echo(f"… and {found.attention - len(needy):,} more: e3 queue ls --batch {found.id} --attention")


def _facts(found: Batch, made_by: str | None) -> list[tuple[str, str]]:
    axes = found.metadata.get("axes")
    facts = [
        ("batch", f"{found.id} ({found.kind}" + (f", {found.name})" if found.name not in found.id else ")")),
        ("state", f"{BATCH_MARKS[found.status]} {found.status}: {sentence(found)}"),
        ("generation", str(found.generation) if found.generation > 1 else ""),
        ("created", found.created_at),
        ("made by", made_by_words(found.created_by, made_by)),
        ("ended", found.completed_at or ""),
    ]
    for axis in axes if isinstance(axes, list) else []:
        values = [str(value) for value in axis.get("values", [])]
        shown = ", ".join(values[:8]) + (f" … {values[-1]} ({len(values)})" if len(values) > 8 else "")
        facts.append(("axis", f"{axis.get('name')} = {shown}"))
    facts += [("folder", str(found.metadata.get("folder", ""))), ("grid", found.grid or found.grid_problem or "")]
    return [(label, value) for label, value in facts if value]


@app.command()
def watch(
    batch_id: BatchId,
    workspace: Folder = HERE,
    config: ConfigOption = "",
    database: DatabaseOption = "",
    as_json: AsJson = False,
) -> None:
    """Watch a batch until it has ended: how far it is, how fast it goes, what renders now. Exit 1 if some failed.

    [bold]Examples[/bold]

    e3 batch watch knights_1a2b3c4d
        Ctrl-C leaves; the batch goes on.
    """
    run_until_signal(_watch(workspace_at(workspace, database, config=config), batch_id, as_json))


async def _watch(workspace: Workspace, batch_id: str, as_json: bool) -> int:
    async with opened(workspace) as store:
        found = await find_batch(store, batch_id)
        if not found.status.has_ended:
            _say_if_nobody_works(workspace, found)
        found = await follow(store, workspace, found.id, works=False, quiet=as_json)
    if as_json:
        print_json(found.as_json())
    elif found.grid:
        typer.echo(one_line(f"Grid  {workspace.root / found.grid}"))
    return code_of(found)


def _say_if_nobody_works(workspace: Workspace, found: Batch) -> None:
    from comfyui_agent.store.agent_lock import working

    if not working(workspace.locks):
        remedy = "no burst runs here: run e3 burst again" if found.kind is BatchKind.BURST else NOBODY
        typer.echo(f"e3: {remedy}", err=True)


@app.command()
def cancel(
    batch_id: BatchId,
    workspace: Folder = HERE,
    config: ConfigOption = "",
    database: DatabaseOption = "",
    as_json: AsJson = False,
) -> None:
    """Cancel what has not ended of a batch. Its prompts are taken back from the servers; no other is touched.

    [bold]Examples[/bold]

    e3 batch cancel knights_1a2b3c4d
        What is done stays done.
    """
    asyncio.run(_cancel(workspace_at(workspace, database, config=config), batch_id, as_json))


async def _cancel(workspace: Workspace, batch_id: str, as_json: bool) -> None:
    from comfyui_agent.engine.withdrawal import NOT_YET, take_back

    async with opened(workspace) as store:
        found = await find_batch(store, batch_id)
        ended = await ops.cancel_batch(store, found.id)
        if ended is None and found.status is BatchStatus.PENDING:
            fail(f"{found.id} is still being queued: stop the command that queues it")
        if ended is None:
            fail(f"{found.id} is {found.status} already")
        await note_audit(store, EventName.AUDIT_BATCH_CANCEL, batch_id=found.id, message=counted(ended, "job"))
        if not await take_back(store, workspace, found.id):
            typer.echo(f"e3: {NOT_YET}", err=True)
        found = await find_batch(store, batch_id)
    if as_json:
        print_json(found.as_json())
    else:
        typer.echo(f"{BATCH_MARKS[found.status]} {found.id}: {counted(ended, 'job')} cancelled, {found.done} done")


@app.command()
def retry(
    batch_id: BatchId,
    cancelled: Annotated[bool, typer.Option("--cancelled", help="What was cancelled or dismissed, too.")] = False,
    workspace: Folder = HERE,
    config: ConfigOption = "",
    database: DatabaseOption = "",
    as_json: AsJson = False,
) -> None:
    """Render the failed members of a batch again; what is done stays. The grid is made anew at the end.

    [bold]Examples[/bold]

    e3 batch retry knights_1a2b3c4d
        Only what failed.
    """
    asyncio.run(_retry(workspace_at(workspace, database, config=config), batch_id, cancelled, as_json))


async def _retry(workspace: Workspace, batch_id: str, cancelled: bool, as_json: bool) -> None:
    async with opened(workspace) as store:
        found = await find_batch(store, batch_id)
        count = await store.run(ops.retry_batch, found.id, with_cancelled=cancelled)
        if count:
            await note_audit(store, EventName.AUDIT_BATCH_RETRY, batch_id=found.id, message=counted(count, "job"))
        found = await find_batch(store, batch_id)
    if as_json:
        print_json(found.as_json())
    elif count:
        hint = ": run e3 burst again" if found.kind is BatchKind.BURST else ""
        typer.echo(f"○ {found.id}: {counted(count, 'job')} submitted again{hint}")
    else:
        more = "; what was cancelled or dismissed: --cancelled" if found.failed else ""
        typer.echo(f"{BATCH_MARKS[found.status]} {found.id}: nothing needs attention{more}")


@app.command()
def pause(
    batch_id: BatchId,
    workspace: Folder = HERE,
    config: ConfigOption = "",
    database: DatabaseOption = "",
    as_json: AsJson = False,
) -> None:
    """Pause a batch: what waits stays waiting, what is at a server runs on.

    [bold]Examples[/bold]

    e3 batch pause knights_1a2b3c4d
        Other batches go on.
    """
    asyncio.run(_pause(workspace_at(workspace, database, config=config), batch_id, as_json))


async def _pause(workspace: Workspace, batch_id: str, as_json: bool) -> None:
    async with opened(workspace) as store:
        found = await find_batch(store, batch_id)
        if not await store.run(ops.pause_batch, found.id) and not found.is_paused:
            fail(f"{found.id} is {found.status}: there is nothing to pause")
        await note_audit(store, EventName.AUDIT_BATCH_PAUSE, batch_id=found.id)
        found = await find_batch(store, batch_id)
    _tell(found, as_json)


@app.command()
def resume(
    batch_id: BatchId,
    workspace: Folder = HERE,
    config: ConfigOption = "",
    database: DatabaseOption = "",
    as_json: AsJson = False,
) -> None:
    """Let a paused batch go on.

    [bold]Examples[/bold]

    e3 batch resume knights_1a2b3c4d
        From where it was.
    """
    asyncio.run(_resume(workspace_at(workspace, database, config=config), batch_id, as_json))


async def _resume(workspace: Workspace, batch_id: str, as_json: bool) -> None:
    async with opened(workspace) as store:
        found = await find_batch(store, batch_id)
        if not await store.run(ops.resume_batch, found.id):
            fail(f"{found.id} is not paused")
        await note_audit(store, EventName.AUDIT_BATCH_RESUME, batch_id=found.id)
        found = await find_batch(store, batch_id)
    _tell(found, as_json)


@app.command()
def grid(
    batch_id: BatchId,
    x: Annotated[str, typer.Option(metavar="AXIS", help="The columns.")] = "",
    y: Annotated[str, typer.Option(metavar="AXIS", help="The rows.")] = "",
    pages: Annotated[str, typer.Option(metavar="AXIS", help="A page for each value of this one.")] = "",
    cell: Annotated[int | None, typer.Option(metavar="PIXELS", min=16, max=8192, help="The size of a cell.")] = None,
    picture_format: Annotated[
        Format | None, typer.Option("--format", help="What the picture is: png, unless --output says another.")
    ] = None,
    output: Annotated[Path | None, typer.Option(metavar="FILE", help="Where to; else beside the results.")] = None,
    workspace: Folder = HERE,
    config: ConfigOption = "",
    database: DatabaseOption = "",
    as_json: AsJson = False,
) -> None:
    """Make the grid of a batch again, as it stands now or laid out in another way.

    [bold]Examples[/bold]

    e3 batch grid knights_1a2b3c4d --x cfg --y seed
        Which axis goes where.

    e3 batch grid knights_1a2b3c4d --cell 256 --format jpeg
        Smaller.
    """
    options = (x, y, pages, cell, _format_of(output, picture_format), output)
    run_until_signal(_grid(workspace_at(workspace, database, config=config), batch_id, options, as_json))


def _format_of(output: Path | None, said: Format | None) -> str:
    """What the ending of a file that people name says; else what they say."""
    ending = output.suffix.lower() if output else ""
    known = {".png": Format.PNG, ".jpg": Format.JPEG, ".jpeg": Format.JPEG}
    if output is not None:
        if output.is_dir():
            fail(f"--output {output} is a folder: name a file in it")
        if not output.parent.is_dir():
            fail(f"--output {output}: there is no folder {output.parent}: make it, or name another")
        if ending not in known:
            fail(f"--output {output}: its name must end in .png or .jpg", code=2)
        if said is not None and known[ending] is not said:
            fail(f"--output {output} is no {said.value}: leave --format out, or give it another ending", code=2)
    return (known.get(ending) or said or Format.PNG).value


async def _grid(
    workspace: Workspace,
    batch_id: str,
    options: tuple[str, str, str, int | None, str, Path | None],
    as_json: bool,
) -> None:
    from comfyui_agent.batches.grids import GridOptions, NoGrid, make_grid
    from comfyui_agent.batches.sweep_request import GridAxes

    x, y, pages, cell, picture_format, output = options
    async with opened(workspace) as store:
        found = await find_batch(store, batch_id)
        wish = GridOptions(GridAxes(x, y, pages), cell, picture_format, output.absolute() if output else None)
        try:
            made = await make_grid(store, workspace, found, wish)
        except NoGrid as error:
            fail(str(error))
        if output is None:
            await store.run(ops.note_grid, found, workspace.shown(made.pictures[0]))
            await note_audit(store, EventName.AUDIT_BATCH_GRID, batch_id=found.id)
    if as_json:
        print_json({"pictures": [str(path) for path in made.pictures], "page": str(made.page)})
        return
    for path in (*made.pictures, made.page):
        typer.echo(str(path))


def _tell(found: Batch, as_json: bool) -> None:
    if as_json:
        print_json(found.as_json())
    else:
        typer.echo(one_line(f"{'○' if found.is_paused else BATCH_MARKS[found.status]} {found.id}: {sentence(found)}"))
