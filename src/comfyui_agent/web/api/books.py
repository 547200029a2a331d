"""/api/v1/books, and the two routes of books that stand at the root."""

from __future__ import annotations

import math
from typing import Annotated, Any

from fastapi import APIRouter, Body, Path, Query, Request
from fastapi.responses import Response
from pydantic import Field

from comfyui_agent.access.problem import TOO_MUCH, Problem
from comfyui_agent.batches.books import BookFile
from comfyui_agent.domain.batches import Batch, BatchKind, BatchStatus, mint_batch_id
from comfyui_agent.domain.texts import parsed
from comfyui_agent.pools import RENDERING, REQUESTS
from comfyui_agent.store import operations as ops
from comfyui_agent.usecases.books import RequestedBook, queue_book, read_book, regenerate_pages
from comfyui_agent.web.api.batches import ended_batch, page_of_batches, the_batch_with
from comfyui_agent.web.api.models import BookAwaited, BookPageShown, BookShown, Regenerated
from comfyui_agent.web.api.parameters import (
    PREFIX,
    By,
    ByAdmin,
    Cursor,
    ExternalId,
    Here,
    Limit,
    NamedBook,
    OwnKey,
    Said,
    User,
    book_of,
)
from comfyui_agent.web.api.responses import MOST_BYTES, maker_of, shown_batch
from comfyui_agent.web.context import Context
from comfyui_agent.web.idempotency import IdempotentRequest, Key, once
from comfyui_agent.web.openapi import AsInteger, problems
from comfyui_agent.web.problems import JsonAnswer
from comfyui_agent.web.submissions import check_bytes
from comfyui_agent.web.waiting import Seconds

MOST_PAGES_NAMED = 10_000
MOST_PAGES = 1_000
MOST_PAGES_QUEUED = 5_000

router = APIRouter(tags=["books"])
After = Annotated[int, Query(ge=0, le=1_000_000, description="Only pages behind it: `next` of the answer before.")]
PageNumber = Annotated[int, Path(ge=1, le=1_000_000, description="The number of a page, from 1.")]

REGENERATING: dict[str, Any] = {
    "status_code": 202,
    "response_model": Regenerated,
    "responses": problems(404, 409, sends=True),
}


class NewBookSaid(BookFile):
    """A book: what a book.yaml says."""

    external_id: ExternalId = None


class PagesSaid(Said):
    """Which pages: all that failed, unless some are named."""

    pages: (
        Annotated[
            list[Annotated[int, Field(ge=1, le=1_000_000), AsInteger]],
            Field(min_length=1, max_length=MOST_PAGES_NAMED),
        ]
        | None
    ) = Field(default=None, description="Only these, of those that failed.")


class PageSaid(Said):
    """What shall be different about the page."""

    inputs: dict[str, Any] = Field(default={}, description="New inputs by name; the others stay.")
    new_seed: bool = Field(default=False, description="Another seed, so that it becomes another picture.")


@router.get(f"{PREFIX}/books", response_model=BookPageShown, responses=problems(404))
async def list_books(
    context: Here, caller: User, limit: Limit = 50, cursor: Cursor = None, external_id: OwnKey = None
) -> Any:
    """Books, the newest first."""
    if external_id is not None:
        return await the_batch_with(context, caller, external_id, BatchKind.BOOK, "books")
    return await page_of_batches(context, BatchKind.BOOK, limit, cursor, "books")


@router.post(f"{PREFIX}/books", status_code=201, response_model=BookShown, responses=problems(404, 409, sends=True))
async def create(context: Here, by: By, caller: User, said: NewBookSaid, key: Key = None) -> Response:
    """Queue every page of a book. It is yours: other users cannot change it."""

    async def make(book_id: str) -> dict[str, Any]:
        if len(said.pages) > MOST_PAGES_QUEUED:
            message = f"{len(said.pages):,} pages are too many for one request: at most {MOST_PAGES_QUEUED:,}"
            raise Problem(409, message, "Queue it with e3 book create, or as several books.", kind=TOO_MUCH)
        text = RequestedBook(said.model_copy(update={"book_id": book_id}))
        book = await read_book(context.submissions.intake, by, text)
        size = await REQUESTS.run(lambda: book.stored_bytes)
        check_bytes(size, f"{len(book.jobs):,} pages", "e3 book create")
        await queue_book(context.store, context.workspace, by, book, external_id=said.external_id)
        return await _shown(context, await book_of(context, book_id))

    async def find(book_id: str) -> dict[str, Any] | None:
        batch = await context.store.run(ops.find_batch, book_id)
        if batch is None or batch.status is BatchStatus.PENDING:
            return None
        said_before = [parsed(job.metadata) async for job in ops.batch_members(context.store, book_id, is_whole=True)]
        pages = [each.get("overrides") if isinstance(each, dict) else None for each in said_before]
        return await _shown(context, batch) if pages == [page.inputs for page in said.pages] else None

    request = IdempotentRequest(key=key, route="books", body=said.model_dump(mode="json", exclude_unset=True))
    book_id = said.book_id or mint_batch_id(said.title or "book", "book")
    return await once(context, caller, request, book_id, make, find)


@router.get(f"{PREFIX}/books/{{book_id}}", response_model=BookShown, responses=problems(404, 409))
async def show(context: Here, _: User, book: NamedBook, after: After = 0) -> Any:
    """A book: every page with its badge, its retries, and what went wrong."""
    return await RENDERING.run(JsonAnswer, await _shown(context, book, after))


@router.get(f"{PREFIX}/books/{{book_id}}/wait", response_model=BookAwaited, responses=problems(404, 409))
async def wait(context: Here, caller: User, request: Request, book: NamedBook, seconds: Seconds = 25) -> Any:
    """The same, as soon as all of it has ended, or after so many seconds as it is then. Ask again until `is_ended`."""
    found, is_ended = await ended_batch(context, caller, request, book, seconds)
    return await RENDERING.run(JsonAnswer, await _shown(context, found) | {"is_ended": is_ended})


async def _shown(context: Context, book: Batch, after: int = 0) -> dict[str, Any]:
    last = after + MOST_PAGES
    pages = await context.store.run(
        ops.book_pages, book.id, after=after or -math.inf, until=last, most_bytes=MOST_BYTES
    )
    shown = shown_batch(book) | await maker_of(context, book) | {"eta_seconds": await context.forecasts.left(book)}
    return shown | {"pages": pages, "next": last if book.total > last else None}


@router.post(f"{PREFIX}/books/{{book_id}}/regenerate", **REGENERATING)
@router.post("/books/{book_id}/regenerate", **REGENERATING)
async def regenerate(context: Here, by: By, book: NamedBook, said: Annotated[PagesSaid | None, Body()] = None) -> Any:
    """Render the failed pages of a book again: all of them, or those that are named.

    409 if none has failed, or while they render.
    """
    named = said.pages if said else None
    pages = await regenerate_pages(context.store, context.submissions.intake, by, book, named, only_failed=True)
    return {"book_id": book.id, "pages": pages}


@router.post(f"{PREFIX}/admin/books/{{book_id}}/regenerate-page/{{page}}", include_in_schema=False, **REGENERATING)
@router.post("/admin/books/{book_id}/regenerate-page/{page}", **REGENERATING)
async def regenerate_page(
    context: Here, by: ByAdmin, book: NamedBook, page: PageNumber, said: Annotated[PageSaid | None, Body()] = None
) -> Any:
    """Render one page again, whatever it is, with new inputs if you like. For admins."""
    said = said or PageSaid()
    pages = await regenerate_pages(
        context.store, context.submissions.intake, by, book, [page], said.inputs, new_seed=said.new_seed
    )
    return {"book_id": book.id, "pages": pages}
