"""Jobs, outputs and assets as this contract shows them."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path

from aiohttp import web

from comfyui_agent.comfy.shapes import optional_list, optional_object
from comfyui_agent.domain.failures import FailureClass
from comfyui_agent.gateway.context import Caller
from comfyui_agent.gateway.v2.errors import PREFIX
from comfyui_agent.gateway.v2.live import LiveJobs, progress_of
from comfyui_agent.gateway.v2.outputs import JobOutput, outputs_of
from comfyui_agent.pools import FILES
from comfyui_agent.store.assets import Asset
from comfyui_agent.store.posted_prompts import PostedPrompt
from comfyui_agent.wire.prompts import Json

NEVER = "9000-01-01T00:00:00Z"
"""For times that this contract wants where nothing ends."""
GONE = {"code": "results_gone", "message": "its results are not kept any more"}


def moment(text: str | None) -> str | None:
    """A time of the database as ISO 8601."""
    return None if text is None else f"{text.replace(' ', 'T')}Z"


def content_url(request: web.Request, asset_id: str) -> str:
    return f"{request.scheme}://{request.host}{PREFIX}/assets/{asset_id}/content"


async def job_view(caller: Caller, live: LiveJobs, request: web.Request, prompt: PostedPrompt) -> Json:
    """A job. One that is done and whose results are gone has expired."""
    url = f"{PREFIX}/jobs/{prompt.prompt_id}"
    view: Json = {
        "id": prompt.prompt_id,
        "created_at": moment(prompt.created_at),
        "started_at": moment(prompt.start_time),
        "completed_at": moment(prompt.ended_at and (prompt.end_time or prompt.ended_at)),
        "expires_at": _expiry(caller, prompt) or NEVER,
        "queue_position": None,
        "progress": None,
        "outputs": [],
        "error": None,
        "metrics": {
            "queue_ms": _milliseconds(prompt.created_at, prompt.start_time),
            "execution_ms": _milliseconds(prompt.start_time, prompt.end_time if prompt.ended_at else None),
        },
        "urls": {"self": url, "events": f"{url}/events", "cancel": f"{url}/cancel"},
    }
    if prompt.ended_at is None:
        run = (await live.look()).runs.get(prompt.job_id)
        return {**view, **await live.status(prompt, run), "progress": progress_of(run)}
    if prompt.status != "done":
        is_cancelled = prompt.failure_class == FailureClass.CANCELLED.value
        return {**view, "status": "canceled" if is_cancelled else "failed", "error": await _error(caller, prompt)}
    outputs = [await output_view(caller, request, each) for each in await outputs_of(caller, prompt)]
    if None in outputs:
        return {**view, "status": "expired", "error": GONE}
    nodes = len(prompt.graph)
    whole = {"value": 1.0, "nodes_done": nodes, "nodes_total": nodes}
    return {**view, "status": "succeeded", "outputs": outputs, "progress": whole}


async def brief_view(live: LiveJobs, prompt: PostedPrompt) -> Json:
    """A job in a list."""
    status = "succeeded" if prompt.status == "done" else "failed"
    if prompt.failure_class == FailureClass.CANCELLED.value:
        status = "canceled"
    if prompt.ended_at is None:
        run = (await live.look()).runs.get(prompt.job_id)
        status = (await live.status(prompt, run))["status"]
    changed = prompt.ended_at or prompt.start_time or prompt.created_at
    return {
        "id": prompt.prompt_id,
        "status": status,
        "create_time": moment(prompt.created_at),
        "update_time": moment(changed),
    }


async def output_view(caller: Caller, request: web.Request, output: JobOutput) -> Json | None:
    """An output. None if its file is gone."""
    try:
        found = await output.content(caller)
        size = len(found) if isinstance(found, bytes) else (await FILES.run(Path.stat, found)).st_size
    except (FileNotFoundError, ValueError):
        return None
    return {
        "node_id": output.node_id,
        "name": output.name,
        "type": output.kind,
        "content_type": output.content_type,
        "size_bytes": size,
        "id": output.id,
        "hash": None,
        "url": content_url(request, output.id),
        "url_expires_at": NEVER,
        "job_id": output.prompt.prompt_id,
    }


async def output_asset_view(caller: Caller, request: web.Request, output: JobOutput) -> Json | None:
    """An output, as an asset."""
    view = await output_view(caller, request, output)
    if view is None:
        return None
    kept = {key: value for key, value in view.items() if key not in ("node_id", "name", "type")}
    created = moment(output.prompt.end_time or output.prompt.created_at)
    return {**kept, "file_path": output.name, "created_at": created, "expires_at": _expiry(caller, output.prompt)}


def asset_view(request: web.Request, asset: Asset, created_new: bool | None = None) -> Json:
    """An uploaded asset. `created_new` tells on creation whether the bytes were new."""
    return {
        "id": asset.id,
        "hash": f"blake3:{asset.hash}",
        "size_bytes": asset.bytes,
        "content_type": asset.content_type,
        "file_path": asset.file_path,
        **({} if created_new is None else {"created_new": created_new}),
        "created_at": moment(asset.created_at),
        "url": content_url(request, asset.id),
        "url_expires_at": moment(asset.expires_at) or NEVER,
        "expires_at": moment(asset.expires_at),
    }


def _expiry(caller: Caller, prompt: PostedPrompt) -> str | None:
    """When retention removes a job. None if it never does, or the job has not ended."""
    days = caller.gateway.workspace.settings.retention.jobs_days
    if not days or prompt.end_time is None or prompt.ended_at is None:
        return None
    at = _time(prompt.end_time) + timedelta(days=days)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=timezone.utc)


def _milliseconds(begin: str | None, end: str | None) -> int | None:
    return None if begin is None or end is None else round((_time(end) - _time(begin)).total_seconds() * 1000)


async def _error(caller: Caller, prompt: PostedPrompt) -> Json | None:
    """Why a job failed, with the node if one of its nodes did."""
    if prompt.failure_class == FailureClass.CANCELLED.value:
        return None
    entry = await caller.gateway.entries.entry(prompt) or {}
    messages = optional_list(optional_object(entry.get("status")).get("messages"))
    said = next((optional_object(each[1]) for each in reversed(messages) if each[0] == "execution_error"), {})
    kind = said.get("node_type") or None
    message = str(said.get("exception_message") or prompt.error_trace or "it failed").strip()
    return {
        "code": "node_execution_error" if kind else prompt.failure_class or "failed",
        "message": message,
        "node_id": str(said["node_id"]) if kind else None,
        "class_type": kind,
        "traceback": "".join(map(str, optional_list(said.get("traceback")))) or None,
    }
