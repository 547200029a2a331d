"""/api/v1/audit: who asked for which change, for admins."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query

from comfyui_agent.domain.tokens import seconds_in
from comfyui_agent.store import operations as ops
from comfyui_agent.web.api.event_routes import LARGEST_ID
from comfyui_agent.web.api.models import AuditPage, AuditRow
from comfyui_agent.web.api.openapi_responses import problems
from comfyui_agent.web.api.responses import PREFIX, Admin, Here, Limit

SINCE = r"^([1-9][0-9]{0,2}[mhd]|[1-9][0-9]?w)$"
router = APIRouter(prefix=f"{PREFIX}/audit", tags=["watching"])


@router.get("", response_model=AuditPage, responses=problems())
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
