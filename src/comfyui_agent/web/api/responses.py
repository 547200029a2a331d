"""Jobs, batches and files as the API shows them."""

from __future__ import annotations

from typing import Any

from fastapi.responses import FileResponse
from pydantic import BaseModel
from starlette.datastructures import Headers
from starlette.types import Message, Receive, Scope, Send

from comfyui_agent.access.problem import Problem
from comfyui_agent.batches.batch_summary import sentence
from comfyui_agent.batches.members import effective_inputs
from comfyui_agent.domain.batches import Batch
from comfyui_agent.domain.jobs import Job
from comfyui_agent.store import operations as ops
from comfyui_agent.web.context import Context
from comfyui_agent.web.problems import is_known, not_modified

MOST_BYTES = 2 * 1024 * 1024
"""A page of a list ends before its texts take more."""


class FileAnswer(FileResponse):
    """A file, whole or in parts. Errors are Problems."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if is_known(scope, self.headers.get("etag", "")):
            await not_modified(self.headers)(scope, receive, send)
            return
        has_begun = False

        async def sending(message: Message) -> None:
            nonlocal has_begun
            if message["type"] == "http.response.start" and message["status"] >= 400:
                size = Headers(raw=message["headers"]).get("content-range")
                detail = "the file has no such part, or the header Range is none"
                remedy = "Ask for bytes that it has, or for all of it."
                raise Problem(message["status"], detail, remedy, headers={"content-range": size} if size else {})
            has_begun = True
            await send(message)

        try:
            await super().__call__(scope, receive, sending)
        except (OSError, RuntimeError):
            if has_begun:
                raise
            raise Problem(404, "the file is not there any more", "See /api/v1/jobs.") from None


async def whole_job(context: Context, job: Job) -> dict[str, Any]:
    """A job with all its inputs, also those that its batch keeps for all members."""
    batch = await context.store.run(ops.find_batch, job.batch_id) if job.batch_id else None
    return job.as_json() | ({"inputs": effective_inputs(job, batch)} if batch and job.template_hash else {})


def listed(job: Job) -> dict[str, Any]:
    return job.as_json() | {"is_shortened": job.is_shortened}


def shown_batch(batch: Batch) -> dict[str, Any]:
    owned = {"created_by": batch.created_by, "external_id": batch.external_id}
    more = {"attention": batch.attention, "is_paused": batch.is_paused, **owned}
    return batch.as_json() | more | {"sentence": sentence(batch)}


async def maker_of(context: Context, found: Job | Batch) -> dict[str, str | None]:
    """The name of the token that made something."""
    return {"created_by_name": await context.store.run(ops.token_name, found.created_by)}


def fields_of(model: type[BaseModel], found: object) -> dict[str, Any]:
    """What a model has of an object's attributes."""
    return {name: getattr(found, name) for name in model.model_fields if hasattr(found, name)}
