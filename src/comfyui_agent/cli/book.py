"""`e3 book`: books, page by page."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from comfyui_agent.batches.batch_summary import sentence
from comfyui_agent.cli.audit import note_audit
from comfyui_agent.cli.batch_progress import code_of, follow
from comfyui_agent.cli.completion import book_names
from comfyui_agent.cli.named_jobs import find_batch
from comfyui_agent.cli.output import fail, one_line, print_json
from comfyui_agent.cli.signals import run_until_signal
from comfyui_agent.cli.sweep import pairs
from comfyui_agent.cli.workflows import found_at
from comfyui_agent.cli.workspace import HERE, AsJson, ConfigOption, DatabaseOption, Folder, opened, workspace_at
from comfyui_agent.domain.badges import BATCH_MARKS, badge_of
from comfyui_agent.domain.batches import BatchKind
from comfyui_agent.domain.events import EventName
from comfyui_agent.domain.states import JobStatus
from comfyui_agent.domain.texts import counted, listed
from comfyui_agent.store import operations as ops

if TYPE_CHECKING:
    from comfyui_agent.batches.books import Book
    from comfyui_agent.config.workflows import Workflow
    from comfyui_agent.config.workspace import Workspace

BookId = Annotated[str, typer.Argument(metavar="ID", help="The id of a book.", autocompletion=book_names)]

app = typer.Typer(add_completion=False, help="Books.", no_args_is_help=True, rich_markup_mode="rich")


@app.callback()
def book() -> None:
    """Books: batches whose members are pages."""


@app.command()
def create(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A book.yaml.")],
    wait: Annotated[bool, typer.Option("--wait", help="Follow it; if no agent runs, do the work here.")] = False,
    workspace: Folder = HERE,
    config: ConfigOption = "",
    database: DatabaseOption = "",
    as_json: AsJson = False,
) -> None:
    """Queue every page of a book, and print its id.

    [bold]Examples[/bold]

    e3 book create winter.yaml --wait
        And follow it. The pages are in jobs/finished/image/BOOK_ID/.
    """
    place = workspace_at(workspace, database, config=config)
    run_until_signal(_create(place, _read(place, found_at(str(file), workspace)), wait, as_json))


def _read(workspace: Workspace, file: Path) -> Book:
    from comfyui_agent.batches.book_file import BookText
    from comfyui_agent.batches.books import read_book
    from comfyui_agent.cli.workflows import fail_with, keeping_of, workflows_of
    from comfyui_agent.config.validation import Complaints

    workflows = workflows_of(workspace)
    try:
        text = BookText(file)
        return read_book(
            text, workspace.settings, lambda name: workflows.named(name, file.absolute().parent), keeping_of(workspace)
        )
    except Complaints as error:
        fail_with(error)


async def _create(workspace: Workspace, found: Book, wait: bool, as_json: bool) -> int:
    from comfyui_agent.batches.batch_writer import queue_batch

    async with opened(workspace, create=True) as store:
        if await store.run(ops.find_batch, found.batch.id) is not None:
            fail(f"there is a book {found.batch.id} already: give another book_id, or e3 book regenerate")
        await queue_batch(store, workspace.locks, found.batch, found.jobs)
        words = counted(len(found.jobs), "page")
        await note_audit(store, EventName.AUDIT_BOOK_CREATE, batch_id=found.batch.id, message=words)
        if not as_json:
            typer.echo(found.batch.id)
        batch = await find_batch(store, found.batch.id)
        if wait:
            batch = await follow(store, workspace, batch.id, works=True, quiet=as_json)
        else:
            typer.echo(f"{counted(len(found.jobs), 'page')} queued. Follow: e3 batch watch {batch.id}", err=True)
    if as_json:
        print_json(batch.as_json())
    return code_of(batch) if wait else 0


@app.command()
def ls(
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="At most so many.")] = 50,
    workspace: Folder = HERE,
    config: ConfigOption = "",
    database: DatabaseOption = "",
    as_json: AsJson = False,
) -> None:
    """List books, the newest first.

    [bold]Examples[/bold]

    e3 book ls --json
        For a script.
    """
    asyncio.run(_ls(workspace_at(workspace, database, config=config), limit, as_json))


async def _ls(workspace: Workspace, limit: int, as_json: bool) -> None:
    async with opened(workspace) as store:
        found = await store.run(ops.newest_batches, kind=BatchKind.BOOK, limit=limit)
    if as_json:
        print_json([each.as_json() for each in found])
        return
    for each in found:
        typer.echo(one_line(f"{BATCH_MARKS[each.status]} {each.id}  {each.name}  {sentence(each)}"))
    if not found:
        typer.echo("There are no books. Make one: e3 book create --help")


@app.command()
def show(
    book_id: BookId,
    workspace: Folder = HERE,
    config: ConfigOption = "",
    database: DatabaseOption = "",
    as_json: AsJson = False,
) -> None:
    """Show a book: every page with its state, its picture, or what went wrong with it.

    [bold]Examples[/bold]

    e3 book show winter_tales
        Page by page.
    """
    asyncio.run(_show(workspace_at(workspace, database, config=config), book_id, as_json))


async def _show(workspace: Workspace, book_id: str, as_json: bool) -> None:
    from comfyui_agent.batches.regeneration import choose, page_of

    async with opened(workspace) as store:
        found = await find_batch(store, book_id, BatchKind.BOOK)
        pages = [job async for job in ops.batch_members(store, found.id, is_whole=as_json)]
        rows = await store.run(ops.book_pages, found.id) if as_json else []
    if as_json:
        print_json(found.as_json() | {"pages": rows, "jobs": [job.as_json() for job in pages]})
        return
    typer.echo(one_line(f"{BATCH_MARKS[found.status]} {found.id}  {found.name}: {sentence(found)}"))
    for job in pages:
        detail = job.outputs[0] if job.outputs and job.status is JobStatus.DONE else ""
        if job.status is not JobStatus.DONE and job.error_trace:
            detail = (job.error_trace or job.failure_class or "").partition("\n")[0]
        count = job.retries_attempted
        tries = f"  {count} {'retry' if count == 1 else 'retries'}" if count else ""
        typer.echo(one_line(f"{page_of(job):>4}  {badge_of(job)!s:<17}{tries}  {detail}".rstrip()))
    if choose(pages, None, found.id):
        typer.echo(f"Again: e3 book regenerate {found.id}")


@app.command()
def regenerate(
    book_id: BookId,
    page: Annotated[int | None, typer.Option("--page", metavar="N", min=1, help="This page, whatever it is.")] = None,
    sets: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="A new input for it, taken as it is.")
    ] = None,
    new_seed: Annotated[bool, typer.Option("--new-seed", help="Another seed, so that it becomes another picture.")] = (
        False
    ),
    workspace: Folder = HERE,
    config: ConfigOption = "",
    database: DatabaseOption = "",
    as_json: AsJson = False,
) -> None:
    """Render pages again: those that failed, or one, with new inputs if you like. A page keeps its picture until then.

    [bold]Examples[/bold]

    e3 book regenerate winter_tales
        Every page that needs attention.

    e3 book regenerate winter_tales --page 3 --set 'prompt=a fox in the snow' --new-seed
        One page, changed.
    """
    place = workspace_at(workspace, database, config=config)
    changes = pairs("--set", sets or [], "NAME=VALUE, such as prompt=a fox")
    asyncio.run(_regenerate(place, book_id, page, changes, new_seed, as_json))


async def _regenerate(
    workspace: Workspace, book_id: str, page: int | None, changes: dict[str, str], new_seed: bool, as_json: bool
) -> None:
    from comfyui_agent.batches.books import BadPage
    from comfyui_agent.batches.regeneration import NotRegenerated
    from comfyui_agent.batches.regeneration import regenerate as render_again
    from comfyui_agent.cli.workflows import keeping_of, workflows_of

    async with opened(workspace) as store:
        found = await find_batch(store, book_id, BatchKind.BOOK)
        workflows = workflows_of(workspace)

        def find(name: str) -> Workflow:
            return workflows.named(name, workspace.root)

        named = None if page is None else [page]
        try:
            limit = workspace.settings.job_limit_kb
            pages = await render_again(
                store, find, keeping_of(workspace), found, named, changes, new_seed, limit_kb=limit
            )
        except (BadPage, NotRegenerated) as error:
            fail(str(error))
        if pages:
            words = f"page{'s' if len(pages) > 1 else ''} {listed([str(each) for each in pages])}"
            await note_audit(store, EventName.AUDIT_BOOK_REGENERATE, batch_id=found.id, message=words)
    if as_json:
        print_json({"book_id": found.id, "pages": pages})
    else:
        typer.echo(f"○ {found.id}: page{'s' if len(pages) > 1 else ''} {', '.join(map(str, pages))} submitted again")
