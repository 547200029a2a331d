"""/api/v1/servers: what the ComfyUI servers are and do, and taking one out of work."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Path

from comfyui_agent.comfy.server_names import NoServer, find_server, name_of
from comfyui_agent.domain.events import EventName
from comfyui_agent.domain.server_states import ServerState
from comfyui_agent.store import operations as ops
from comfyui_agent.web.api.models import ServerHalted, ServerShown
from comfyui_agent.web.api.openapi_responses import problems
from comfyui_agent.web.api.responses import PREFIX, ByAdmin, Here, User
from comfyui_agent.web.context import Context
from comfyui_agent.web.problems import Problem

router = APIRouter(prefix=f"{PREFIX}/servers", tags=["servers"])
ServerName = Annotated[
    str, Path(min_length=1, max_length=300, description="A server as it is listed, or a part that no other has.")
]
RUN_KEYS = ("job_id", "config_name", "stage", "node_type", "step", "steps")


@router.get("", response_model=list[ServerShown], responses=problems())
async def list_servers(context: Here, _: User) -> Any:
    """State, version, devices, memory and queue of each server, and what of ours is there."""
    runs = await context.fleet.live()
    return [
        report.as_json()
        | {"runs": [{key: asdict(run)[key] for key in RUN_KEYS} for run in runs if run.server == report.url]}
        for report in await context.fleet.reports()
    ]


@router.post("/{name}/pause", status_code=202, response_model=ServerHalted, responses=problems(404))
async def pause(context: Here, by: ByAdmin, name: ServerName) -> Any:
    """Give a server no new prompts. What it has runs on there and is brought home. For admins."""
    url = await _find(context, name)
    halt = await context.store.run(ops.pause_server, url)
    await by.audit(EventName.AUDIT_SERVER_PAUSE, server=url)
    return _halted(url, halt)


@router.post("/{name}/drain", status_code=202, response_model=ServerHalted, responses=problems(404))
async def drain(context: Here, by: ByAdmin, name: ServerName) -> Any:
    """Empty a server: no new prompts, what waits there goes elsewhere, what runs there finishes. For admins."""
    url = await _find(context, name)
    halt = await context.store.run(ops.drain_server, url)
    await by.audit(EventName.AUDIT_SERVER_DRAIN, server=url)
    return _halted(url, halt)


@router.post("/{name}/resume", status_code=202, response_model=ServerHalted, responses=problems(404))
async def resume(context: Here, by: ByAdmin, name: ServerName) -> Any:
    """Put a server back to work that was paused or drained. For admins."""
    url = await _find(context, name)
    await context.store.run(ops.resume_server, url)
    await by.audit(EventName.AUDIT_SERVER_RESUME, server=url)
    return _halted(url, None)


async def _find(context: Context, name: str) -> str:
    try:
        return find_server(name, await context.fleet.known())
    except NoServer as error:
        raise Problem(404, str(error), f"See {PREFIX}/servers.") from None


def _halted(url: str, halt: ServerState | None) -> dict[str, Any]:
    return {"name": name_of(url), "url": url, "state": halt.value if halt else "working"}
