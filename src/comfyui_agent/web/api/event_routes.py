"""The routes /api/v1/events, /status, /find, /me and /audit."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Header, Query
from fastapi.responses import StreamingResponse

from comfyui_agent import __version__
from comfyui_agent.access.gate import while_admitted
from comfyui_agent.domain.tokens import Role, seconds_in
from comfyui_agent.store import operations as ops
from comfyui_agent.web.api.models import AuditPage, AuditRow, CountsShown, Made, Me, StatusShown
from comfyui_agent.web.api.parameters import PREFIX, Admin, Here, Limit, SaidKey, User
from comfyui_agent.web.api.responses import fields_of
from comfyui_agent.web.openapi import problems
from comfyui_agent.web.pages.overview import queue_sentence, work_words
from comfyui_agent.web.problems import made_by, not_found

router = APIRouter(prefix=PREFIX, tags=["watching"])
LARGEST_ID = 2**53
SINCE = r"^([1-9][0-9]{0,2}[mhd]|[1-9][0-9]?w)$"
STREAM = {"description": "Server-sent events", "content": {"text/event-stream": {"schema": {"type": "string"}}}}


@router.get("/events", response_class=StreamingResponse, responses={200: STREAM, **problems()})
async def events(
    context: Here,
    who: User,
    batch: Annotated[str | None, Query(max_length=300, description="Only events of this batch.")] = None,
    after: Annotated[int | None, Query(ge=0, le=LARGEST_ID, description="Begin behind this event.")] = None,
    previews: Annotated[bool, Query(description="Whether someone looks: servers are asked for previews.")] = True,
    last: Annotated[
        str | None, Header(alias="Last-Event-ID", description="Begin behind this event, as browsers say it.")
    ] = None,
) -> StreamingResponse:
    """Everything that happens, as it happens; the audit trail is for admins.

    Whoever comes back with the id of the last event misses nothing.
    """
    is_id = last is not None and last.isascii() and last.isdigit() and len(last) < 17
    begin = int(last) if last and is_id else after
    is_admin = who.role is Role.ADMIN
    stream = context.event_feed.listen(begin, batch, who.scope, with_audit=is_admin, is_looking=previews)
    return StreamingResponse(while_admitted(context.gate, who, stream), media_type="text/event-stream")


@router.get("/status", response_model=StatusShown, responses=problems())
async def status(context: Here, _: User) -> Any:
    """How it stands: what the overview of the page begins with."""
    found = await context.store.run(ops.read_overview)
    agents = await context.fleet.agents()
    reports = await context.fleet.reports()
    left = await context.forecasts.left()
    work = None if found.left else await context.store.run(ops.last_work)
    sentence = queue_sentence(found, reports, agents, left)
    return fields_of(StatusShown, found) | {
        "sentence": f"The last work{work_words(work, found.kept)}" if work else sentence,
        "eta_seconds": left,
        "counts": fields_of(CountsShown, found.counts),
        "images_per_minute": found.per_minute if found.left else None,
        "agents": agents,
        "version": __version__,
    }


@router.get("/find", response_model=Made, responses=problems(404))
async def find(context: Here, caller: User, external_id: SaidKey) -> Any:
    """The job, batch or book that your token made with this key."""
    holder = await context.store.run(ops.find_external_id, caller.token_id, external_id)
    if holder is None:
        raise not_found("job, batch or book with the external_id", external_id, f"{PREFIX}/jobs")
    return made_by(holder)


@router.get("/me", response_model=Me, responses=problems())
async def me(caller: User) -> Any:
    """Who you are to E3."""
    return {"role": caller.role.value, "token": caller.token.name if caller.token else None}


@router.get("/audit", response_model=AuditPage, responses=problems())
async def audit(
    context: Here,
    _: Admin,
    since: Annotated[str | None, Query(pattern=SINCE, description="How far back: 30m, 12h, 7d or 2w.")] = None,
    actor: Annotated[str, Query(max_length=200, description="A part of who asked: a token's name, or cli.")] = "",
    before: Annotated[int | None, Query(ge=1, le=LARGEST_ID, description="Only what came before this one.")] = None,
    limit: Limit = 100,
) -> Any:
    """The audit trail, the newest first: every change, who asked for it and from where. For admins."""
    seconds = None if since is None else seconds_in(since)
    found = await context.store.run(ops.audit_trail, seconds=seconds, actor=actor, before=before, most=limit + 1)
    rows = [dict.fromkeys(AuditRow.model_fields) | event.as_json() for event in found[:limit]]
    return {"audit": rows, "next": found[limit - 1].id if len(found) > limit else None}
