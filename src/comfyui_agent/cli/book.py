"""`e3 book`: books, page by page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from comfyui_agent.batches.batch_summary import sentence
from comfyui_agent.batches.books import BookText
from comfyui_agent.batches.name_lookup import find_batch
from comfyui_agent.batches.regeneration import choose, page_of
from comfyui_agent.cli.batch_progress import show_queued
from comfyui_agent.cli.completion import book_names
from comfyui_agent.cli.invocation import Invocation, workspace_command
from comfyui_agent.cli.lazy_group import command_group
from comfyui_agent.cli.output import one_line, print_json
from comfyui_agent.cli.sweep import pairs
from comfyui_agent.cli.workflow import found_at
from comfyui_agent.cli.workspace import Limit, Wait
from comfyui_agent.domain.badges import BATCH_MARKS, badge_of
from comfyui_agent.domain.batches import BatchKind
from comfyui_agent.domain.states import JobStatus
from comfyui_agent.domain.texts import counted
from comfyui_agent.store import operations as ops
from comfyui_agent.usecases import books as usecases
from comfyui_agent.usecases.forecasts import Forecasts
from comfyui_agent.usecases.intake import Intake

BookId = Annotated[str, typer.Argument(metavar="ID", help="The id of a book.", autocompletion=book_names)]

app = command_group("Books.")


@workspace_command(app, until_signal=True)
async def create(
    call: Invocation,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A book.yaml.")],
    wait: Wait = False,
) -> int:
    """Queue every page of a book, and print its id."""
    path = found_at(str(file), call.folder)
    text, folder = BookText(path), path.absolute().parent
    found = await usecases.read_book(Intake(call.workspace), call.actor, text, folder)
    async with call.opened(create=True) as store:
        batch = await usecases.queue_book(store, call.workspace, call.actor, found)
        return await show_queued(call, store, batch, counted(len(found.jobs), "page"), wait=wait)


@workspace_command(app)
async def ls(call: Invocation, limit: Limit = 50) -> None:
    """List books, the newest first."""
    async with call.opened() as store:
        found = await store.run(ops.newest_batches, kind=BatchKind.BOOK, limit=limit)
    empty = "There are no books. Make one: e3 book create --help"
    call.show_list(found, lambda each: f"{BATCH_MARKS[each.status]} {each.id}  {each.name}  {sentence(each)}", empty)


@workspace_command(app)
async def show(call: Invocation, book_id: BookId) -> None:
    """Show a book: every page with its state, its picture, or what went wrong with it."""
    async with call.opened() as store:
        found = await find_batch(store, book_id, BatchKind.BOOK)
        pages = [job async for job in ops.batch_members(store, found.id, is_whole=call.as_json)]
        rows = await store.run(ops.book_pages, found.id) if call.as_json else []
        left = await Forecasts(store, call.workspace).left(found)
    if call.as_json:
        print_json(found.as_json() | {"eta_seconds": left, "pages": rows, "jobs": [job.as_json() for job in pages]})
        return
    typer.echo(one_line(f"{BATCH_MARKS[found.status]} {found.id}  {found.name}: {sentence(found, seconds_left=left)}"))
    for job in pages:
        detail = (job.error_trace or "").partition("\n")[0]
        if job.status is JobStatus.DONE:
            detail = job.outputs[0] if job.outputs else ""
        count = job.retries_attempted
        tries = f"  {counted(count, 'retry', 'retries')}" if count else ""
        typer.echo(one_line(f"{page_of(job):>4}  {badge_of(job)!s:<17}{tries}  {detail}".rstrip()))
    if choose(pages, None, found.id):
        typer.echo(f"Again: e3 book regenerate {found.id}")


@workspace_command(app)
async def regenerate(
    call: Invocation,
    book_id: BookId,
    page: Annotated[int | None, typer.Option("--page", metavar="N", min=1, help="This page, whatever it is.")] = None,
    sets: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="A new input for it, taken as it is.")
    ] = None,
    new_seed: Annotated[bool, typer.Option("--new-seed", help="Another seed, so that it becomes another picture.")] = (
        False
    ),
) -> None:
    """Render pages again: those that failed, or one, with new inputs if you like. A page keeps its picture until then."""  # noqa: E501 - one line in the list of commands
    changes = pairs("--set", sets or [], "NAME=VALUE, such as prompt=a fox")
    named = None if page is None else [page]
    intake = Intake(call.workspace)
    async with call.opened() as store:
        found = await find_batch(store, book_id, BatchKind.BOOK)
        pages = await usecases.regenerate_pages(store, intake, call.actor, found, named, changes, new_seed=new_seed)
    named_pages = f"page{'s' if len(pages) > 1 else ''} {', '.join(map(str, pages))}"
    call.show({"book_id": found.id, "pages": pages}, f"○ {found.id}: {named_pages} submitted again")
