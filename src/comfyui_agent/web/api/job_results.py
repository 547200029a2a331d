"""/api/v1/jobs/…: the files of a job: results, small pictures of them, and previews."""

from __future__ import annotations

import base64
from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query
from fastapi.responses import FileResponse, Response

from comfyui_agent.access.problem import Problem
from comfyui_agent.domain.jobs import Job
from comfyui_agent.engine.live_runs import read_preview
from comfyui_agent.pools import FILES
from comfyui_agent.store import operations as ops
from comfyui_agent.store.records import Digest
from comfyui_agent.usecases.takes import takes_of
from comfyui_agent.web.api.parameters import PREFIX, Here, NamedJob, User
from comfyui_agent.web.api.responses import FileAnswer
from comfyui_agent.web.openapi import file_answer, file_answers, problems
from comfyui_agent.web.outputs import ATTACHMENT, NotShown, ResultFile, media_type_of, version_of

FOR_EVER = "private, max-age=31536000, immutable"
NOT_LONG = "private, max-age=10"

router = APIRouter(prefix=f"{PREFIX}/jobs", tags=["jobs"])
Version = Annotated[
    str | None, Query(max_length=100, description="Another one when the file is: then the answer can be kept for ever.")
]
Number = Annotated[int, Path(ge=1, le=9_999, description="Which of its results, from 1.")]


async def job_of_take(
    context: Here,
    _: User,
    job: NamedJob,
    take: Annotated[
        int | None, Query(ge=1, le=1_000_000, description="One of its takes; else the one that counts.")
    ] = None,
) -> Job:
    """The job with the results of one of its takes."""
    if take is None or take == (job.take or 1):
        return job
    found = next((each for each in await takes_of(context.store, job) if each.number == take), None)
    if found is None:
        raise Problem(404, f"{job.config_name} has no take {take}", f"See {PREFIX}/jobs/{job.id}/takes.")
    return job.of_take(found.number, found.outputs)


OfTake = Annotated[Job, Depends(job_of_take)]


@router.get(
    "/{name}/results/{number}",
    response_class=FileResponse,
    responses=file_answers("image/*", "video/*", "audio/*", "model/*", "application/octet-stream"),
)
async def result(context: Here, _: User, job: OfTake, number: Number, v: Version = None) -> Response:
    """A result file."""
    try:
        found = await FILES.run(context.outputs.find, job, number)
        path = await FILES.run(context.outputs.local, found)
    except NotShown as error:
        raise Problem(404, str(error), f"See {PREFIX}/jobs/{job.id}.") from None
    digest = (await context.store.run(ops.digests_of, [found.name])).get(found.name, Digest())
    headers = {
        **_digest_headers(digest),
        "Cache-Control": _kept(job, found, v),
        "Content-Security-Policy": "sandbox; default-src 'none'",
    }
    kind = "attachment" if found.media_type == ATTACHMENT else "inline"
    return FileAnswer(
        path,
        media_type=found.media_type,
        filename=found.path.name,
        content_disposition_type=kind,
        headers=headers,
    )


@router.get("/{name}/results/{number}/thumbnail", response_class=FileResponse, responses=file_answers("image/webp"))
async def thumbnail(
    context: Here,
    _: User,
    job: OfTake,
    number: Number,
    width: Annotated[int, Query(ge=1, le=4096, description="In pixels; the next larger of 160, 320, 640, 1280.")] = 320,
    v: Version = None,
) -> Response:
    """A small picture of a result, made once."""
    try:
        found = await FILES.run(context.outputs.find, job, number)
        path = await context.outputs.thumbnail(found, width)
    except NotShown as error:
        raise Problem(404, str(error), f"See {PREFIX}/jobs/{job.id}.") from None
    return FileAnswer(path, media_type="image/webp", headers={"Cache-Control": _kept(job, found, v)})


@router.get("/{name}/preview", response_class=Response, responses={200: file_answer("image/*"), **problems(404, 409)})
async def preview(context: Here, _: User, job: NamedJob) -> Response:
    """The newest picture of unfinished work, while it renders and someone looks."""
    data = await FILES.run(read_preview, context.workspace.locks, job.id)
    kind = media_type_of(data or b"")
    if data is None or not kind.startswith("image/"):
        raise Problem(409, f"there is no preview of {job.config_name!r} now", f"See {PREFIX}/jobs/{job.id}.")
    return Response(data, media_type=kind)


def _digest_headers(digest: Digest) -> dict[str, str]:
    if digest.sha256 is None:
        return {}
    coded = base64.b64encode(bytes.fromhex(digest.sha256)).decode("ascii")
    return {"ETag": f'"{digest.sha256}"', "Repr-Digest": f"sha-256=:{coded}:"}


def _kept(job: Job, found: ResultFile, version: str | None) -> str:
    """How long a browser may keep it: for ever, where the address is of this very file."""
    return FOR_EVER if version in (found.version, version_of(job)) else NOT_LONG
