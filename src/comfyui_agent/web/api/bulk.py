"""/api/v1/jobs/bulk: thousands of jobs in one request, answered line by line as they are committed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from itertools import repeat
from typing import Annotated, Any

from fastapi import APIRouter, Header, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import StreamingResponse
from pydantic import ValidationError

from comfyui_agent.access.problem import Problem
from comfyui_agent.comfy.tasks import end_tasks
from comfyui_agent.domain.batches import mint_batch_id, slug
from comfyui_agent.pools import REQUESTS
from comfyui_agent.usecases.bulk import Accepted, Wanted, submit_jobs
from comfyui_agent.web.api.jobs import NewJobSaid
from comfyui_agent.web.api.parameters import PREFIX, By, Here
from comfyui_agent.web.openapi import problems
from comfyui_agent.web.problems import problem_of, without_paths
from comfyui_agent.web.request_body import parsed_json

MOST_LINES = 10_000
AT_ONCE = 500
"""Jobs of one transaction."""
NDJSON = "application/x-ndjson"
LINES: dict[str, Any] = {NDJSON: {"schema": {"type": "string", "format": "binary"}}}

router = APIRouter(prefix=f"{PREFIX}/jobs", tags=["jobs"])
Line = tuple[int, bytes]


@router.post(
    "/bulk",
    response_class=StreamingResponse,
    responses={200: {"description": "A line for each line", "content": LINES}, **problems(sends=True)},
    openapi_extra={"requestBody": {"required": True, "content": LINES}},
)
async def bulk(
    context: Here, by: By, request: Request, kind: Annotated[str, Header(alias="Content-Type")] = ""
) -> StreamingResponse:
    """Queue up to 10,000 jobs, one in each line, as `POST /api/v1/jobs` takes them. A bad line spoils no other."""
    if kind.partition(";")[0].strip().lower() != NDJSON:
        raise Problem(415, f"what was sent is {kind[:100]!r}", f"Send it with Content-Type: {NDJSON}.")
    lines = [line for line in enumerate((await request.body()).split(b"\n"), start=1) if line[1].strip()]
    if len(lines) > MOST_LINES:
        raise Problem(
            413, f"the request has {len(lines):,} lines, and {MOST_LINES:,} is the most", "Send less at once."
        )

    async def answer(part: Sequence[Line]) -> bytes:
        wanted = await REQUESTS.run(list, map(_wanted, part, repeat(mint_batch_id("", "bulk"))))
        try:
            good = [each for each in wanted if isinstance(each, Wanted)]
            found: list[Any] = list(await submit_jobs(context.store, context.submissions.intake, by, good))
        except Exception as error:  # noqa: BLE001 - it is said in each line; those before are committed
            found = [error] * len(wanted)
        rest = iter(found)
        told = [next(rest) if isinstance(each, Wanted) else each for each in wanted]
        return await REQUESTS.run(_text, request, part, told)

    async def answers() -> AsyncIterator[bytes]:
        """While one part is committed, the next is checked."""
        begun: list[asyncio.Task[bytes]] = []
        try:
            for start in range(0, len(lines), AT_ONCE):
                begun.append(asyncio.create_task(answer(lines[start : start + AT_ONCE])))
                if len(begun) > 1:
                    yield await begun.pop(0)
            for each in begun:
                yield await each
        finally:
            await end_tasks(begun)

    return StreamingResponse(answers(), media_type=NDJSON)


def _wanted(line: Line, minted: str) -> Wanted | Exception:
    number, text = line
    try:
        said = NewJobSaid.model_validate(parsed_json(text))
    except ValidationError as error:
        return RequestValidationError([{**each, "loc": ("body", *each["loc"])} for each in error.errors()])
    except Problem as problem:
        return problem
    tree = said.model_dump(mode="json", exclude_unset=True)
    name, external_id = tree.pop("name", None), tree.pop("external_id", None)
    return Wanted(tree, name or f"{slug(said.workflow_id)}_{minted}_{number}", external_id)


def _text(request: Request, part: Sequence[Line], told: Sequence[Accepted | Exception]) -> bytes:
    return b"".join(
        json.dumps({"line": line[0], **_said(request, each)}).encode("ascii") + b"\n"
        for line, each in zip(part, told, strict=True)
    )


def _said(request: Request, found: Accepted | Exception) -> dict[str, Any]:
    if isinstance(found, Accepted):
        return {"id": found.id, "name": found.name, "status": 201 if found.is_new else 200}
    return without_paths(request, problem_of(found, request)).as_json()
