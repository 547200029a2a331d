"""Jobs and batches as the API shows them, and finding those that a request names."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

from fastapi import Depends, Path, Query, Request
from fastapi.responses import FileResponse
from pydantic import BaseModel
from starlette.types import Message, Receive, Scope, Send

from comfyui_agent.batches.batch_summary import sentence
from comfyui_agent.batches.members import effective_inputs
from comfyui_agent.batches.name_lookup import NoBatch, SeveralBatches, find_batch
from comfyui_agent.domain.batches import Batch, BatchKind
from comfyui_agent.domain.jobs import Job
from comfyui_agent.domain.tokens import Role
from comfyui_agent.store import operations as ops
from comfyui_agent.usecases.actor import Actor
from comfyui_agent.web.access import Caller, admin, caller
from comfyui_agent.web.context import Context
from comfyui_agent.web.problems import Problem, not_found

PREFIX = "/api/v1"
MOST_BYTES = 2 * 1024 * 1024
"""A page of a list ends before its texts take more."""


def context_of(request: Request) -> Context:
    found: Context = request.app.state.context
    return found


Here = Annotated[Context, Depends(context_of)]
User = Annotated[Caller, Depends(caller)]
Admin = Annotated[Caller, Depends(admin)]


def actor_for(context: Context, caller: Caller) -> Actor:
    """The caller as use cases know them: their rights, quota and lowest priority come from their token."""
    floor = context.workspace.settings.user_priority_floor
    return Actor(
        name=caller.actor,
        address=caller.address or None,
        token_id=caller.token.id if caller.token is not None else None,
        rights=caller.rights,
        lowest_priority=None if caller.role is Role.ADMIN else floor,
        room=partial(context.quota.room, caller),
    )


async def actor_of(context: Here, caller: User) -> Actor:
    return actor_for(context, caller)


async def admin_actor_of(context: Here, caller: Admin) -> Actor:
    return actor_for(context, caller)


By = Annotated[Actor, Depends(actor_of)]
"""For routes that change something: the caller as use cases know them."""
ByAdmin = Annotated[Actor, Depends(admin_actor_of)]
Name = Annotated[str, Path(min_length=1, max_length=300, description="The config_name of a job, or its id.")]
BatchId = Annotated[
    str, Path(min_length=1, max_length=300, description="The id of a batch, or its name if one has it.")
]
Limit = Annotated[int, Query(ge=1, le=1000, description="At most so many.")]
Cursor = Annotated[str | None, Query(max_length=1000, description="Where to go on: `next` of the answer before.")]


class FileAnswer(FileResponse):
    """A file, whole or in parts. Errors are Problems."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        has_begun = False

        async def sending(message: Message) -> None:
            nonlocal has_begun
            if message["type"] == "http.response.start" and message["status"] >= 400:
                known = {name.decode(): value.decode() for name, value in message["headers"]}
                headers = {name: value for name, value in known.items() if name == "content-range"}
                detail = "the file has no such part, or the header Range is none"
                remedy = "Ask for bytes that it has, or for all of it."
                raise Problem(message["status"], detail, remedy, headers=headers)
            has_begun = True
            await send(message)

        try:
            await super().__call__(scope, receive, sending)
        except (OSError, RuntimeError):
            if has_begun:
                raise
            raise Problem(404, "the file is not there any more", f"See {PREFIX}/jobs.") from None


async def find_job(context: Context, name: str) -> Job:
    found = await context.job_named(name)
    if found is None:
        raise not_found("job", name, f"{PREFIX}/jobs")
    return found


async def batch_named(context: Context, name: str, kind: BatchKind | None = None) -> Batch:
    try:
        return await find_batch(context.store, name, kind)
    except SeveralBatches as error:
        raise Problem(409, error.message, error.remedy) from None
    except NoBatch:
        listing = "books" if kind is BatchKind.BOOK else "batches"
        raise not_found(kind.value if kind else "batch", name, f"{PREFIX}/{listing}") from None


async def whole_job(context: Context, job: Job) -> dict[str, Any]:
    """A job with all its inputs, also those that its batch keeps for all members."""
    batch = await context.store.run(ops.find_batch, job.batch_id) if job.batch_id else None
    return job.as_json() | ({"inputs": effective_inputs(job, batch)} if batch and job.template_hash else {})


def listed(job: Job) -> dict[str, Any]:
    """A job in a list."""
    return job.as_json() | {"is_shortened": job.is_shortened}


def shown_batch(batch: Batch) -> dict[str, Any]:
    return batch.as_json() | {
        "attention": batch.attention,
        "sentence": sentence(batch),
        "is_paused": batch.is_paused,
        "created_by": batch.created_by,
    }


async def maker_of(context: Context, found: Job | Batch) -> dict[str, str | None]:
    """The name of the token that made something."""
    return {"created_by_name": await context.store.run(ops.token_name, found.created_by)}


def fields_of(model: type[BaseModel], found: object) -> dict[str, Any]:
    """What a model has of an object's attributes."""
    return {name: getattr(found, name) for name in model.model_fields if hasattr(found, name)}
