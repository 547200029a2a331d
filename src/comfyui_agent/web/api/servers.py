"""/api/v1/servers: what the ComfyUI servers are and do, and taking one out of work."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path

from comfyui_agent.access.problem import Problem
from comfyui_agent.comfy.address import NoServer, find_server
from comfyui_agent.domain.tokens import Role
from comfyui_agent.usecases import servers as usecases
from comfyui_agent.usecases.actor import Actor
from comfyui_agent.web.api.models import ProcessShown, RunShown, ServerHalted, ServerShown
from comfyui_agent.web.api.parameters import PREFIX, ByAdmin, Here, User
from comfyui_agent.web.api.responses import fields_of
from comfyui_agent.web.context import Context
from comfyui_agent.web.openapi import problems

router = APIRouter(prefix=f"{PREFIX}/servers", tags=["servers"])
ServerName = Annotated[
    str, Path(min_length=1, max_length=300, description="A server as it is listed, or a part that no other has.")
]


@router.get("", response_model=list[ServerShown], responses=problems())
async def list_servers(context: Here, caller: User) -> Any:
    """State, version, devices, memory and queue of each server, and what of ours is there.

    Why a process is not up may be a line of its log: only admins see it.
    """
    hidden = {} if caller.role is Role.ADMIN else {"reason": None}
    runs, processes = await context.fleet.live(), await context.fleet.processes()
    reports = await context.fleet.reports()
    uses = await usecases.server_uses(context.store, context.submissions.intake, reports)
    return [
        report.as_json()
        | {
            "runs": [fields_of(RunShown, run) for run in runs if run.server == report.url],
            "process": processes[report.url].as_json() | hidden if report.url in processes else None,
            "routing": uses[report.url],
        }
        for report in reports
    ]


@router.post("/{name}/pause", status_code=202, response_model=ServerHalted, responses=problems(404))
async def pause(context: Here, by: ByAdmin, name: ServerName) -> Any:
    """Give a server no new prompts. What it has runs on there and is brought home. For admins."""
    return await _change(context, by, name, usecases.ServerChange.PAUSE)


@router.post("/{name}/drain", status_code=202, response_model=ServerHalted, responses=problems(404))
async def drain(context: Here, by: ByAdmin, name: ServerName) -> Any:
    """Empty a server: no new prompts, what waits there goes elsewhere, what runs there finishes. For admins."""
    return await _change(context, by, name, usecases.ServerChange.DRAIN)


@router.post("/{name}/resume", status_code=202, response_model=ServerHalted, responses=problems(404))
async def resume(context: Here, by: ByAdmin, name: ServerName) -> Any:
    """Put a server back to work that was paused or drained. For admins."""
    return await _change(context, by, name, usecases.ServerChange.RESUME)


@router.post("/{name}/restart", status_code=202, response_model=ProcessShown, responses=problems(404, 409))
async def restart(context: Here, by: ByAdmin, name: ServerName) -> Any:
    """Restart a ComfyUI that E3 launched: drained, stopped, started, and put back to work. For admins."""
    url = await _find(context, name)
    process = (await context.fleet.processes()).get(url)
    if process is None:
        raise Problem(409, f"{name} was not launched by E3.", "Restart that ComfyUI where it was started.")
    if not await context.fleet.agents():
        raise Problem(409, "No agent works here to restart it.", "Start one with e3 run, or: e3 comfyui restart")
    await usecases.change_process(context.store, by, process.folder, url, usecases.ProcessChange.RESTART)
    return usecases.report_of(process.folder).as_json()


async def _find(context: Context, name: str) -> str:
    try:
        return find_server(name, await context.fleet.known())
    except NoServer as error:
        raise Problem(404, str(error), f"See {PREFIX}/servers.") from None


async def _change(context: Context, by: Actor, name: str, change: usecases.ServerChange) -> dict[str, Any]:
    return (await usecases.change_server(context.store, by, await _find(context, name), change)).as_json()
