"""What the routes take: who asks, and the jobs and batches that a request names."""

from __future__ import annotations

import re
from datetime import datetime, timezone
from typing import Annotated, Any

from fastapi import Depends, Path, Query, Request
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from comfyui_agent.access.gate import Caller
from comfyui_agent.access.problem import Problem
from comfyui_agent.batches.name_lookup import NoBatch, SeveralBatches, find_batch
from comfyui_agent.domain.batches import Batch, BatchKind
from comfyui_agent.domain.jobs import Job
from comfyui_agent.usecases.actor import Actor
from comfyui_agent.web.access import admin, caller
from comfyui_agent.web.context import Context
from comfyui_agent.web.problems import not_found

PREFIX = "/api/v1"


class Said(BaseModel):
    """The body of a request. Unknown keys and values of other types are refused."""

    model_config = ConfigDict(extra="forbid", strict=True)


def context_of(request: Request) -> Context:
    found: Context = request.app.state.context
    return found


Here = Annotated[Context, Depends(context_of)]
User = Annotated[Caller, Depends(caller)]
Admin = Annotated[Caller, Depends(admin)]


async def actor_of(context: Here, caller: User) -> Actor:
    return context.actor(caller)


async def admin_actor_of(context: Here, caller: Admin) -> Actor:
    return context.actor(caller)


async def job_of(
    context: Here,
    name: Annotated[str, Path(min_length=1, max_length=300, description="The config_name of a job, or its id.")],
) -> Job:
    found = await context.job_named(name)
    if found is None:
        raise not_found("job", name, f"{PREFIX}/jobs")
    return found


async def batch_of(
    context: Here,
    batch_id: Annotated[
        str, Path(min_length=1, max_length=300, description="The id of a batch, or its name if one has it.")
    ],
) -> Batch:
    return await _batch(context, batch_id, None)


async def book_of(
    context: Here, book_id: Annotated[str, Path(min_length=1, max_length=300, description="The id of a book.")]
) -> Batch:
    return await _batch(context, book_id, BatchKind.BOOK)


async def _batch(context: Context, name: str, kind: BatchKind | None) -> Batch:
    try:
        return await find_batch(context.store, name, kind)
    except SeveralBatches as error:
        raise Problem(409, error.message, error.remedy) from None
    except NoBatch:
        what, listing = ("book", "books") if kind else ("batch", "batches")
        raise not_found(what, name, f"{PREFIX}/{listing}") from None


# Routes take who asks before what they ask about: whoever is not admitted learns nothing.
By = Annotated[Actor, Depends(actor_of)]
ByAdmin = Annotated[Actor, Depends(admin_actor_of)]
NamedJob = Annotated[Job, Depends(job_of)]
NamedBatch = Annotated[Batch, Depends(batch_of)]
NamedBook = Annotated[Batch, Depends(book_of)]


def _in_utc(moment: datetime) -> datetime:
    try:
        return moment.astimezone(timezone.utc) if moment.tzinfo else moment.replace(tzinfo=timezone.utc)
    except OverflowError:
        raise ValueError("write a time between the years 2 and 9998") from None


def _written(value: Any) -> Any:
    """A number is no time here, though pydantic would read it as seconds since 1970."""
    if isinstance(value, str) and not re.match(r"[0-9]{4}-[0-9]{2}", value):
        raise ValueError("write a day or a time, such as 2025-08-09")
    return value


Moment = Annotated[datetime, AfterValidator(_in_utc), BeforeValidator(_written)]
"""A day or a time; UTC, unless it says another zone."""
ExternalId = Annotated[
    Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[!-~]+$")] | None,
    Field(description="Your own key: it is found by it, and no other of your token may have it."),
]
SaidKey = Annotated[
    str, Query(min_length=1, max_length=200, pattern=r"^[!-~]+$", description="What your token made with this key.")
]
OwnKey = SaidKey | None
Limit = Annotated[int, Query(ge=1, le=1000, description="At most so many.")]
Cursor = Annotated[str | None, Query(max_length=1000, description="Where to go on: `next` of the answer before.")]
