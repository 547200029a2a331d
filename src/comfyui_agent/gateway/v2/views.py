"""Jobs and assets as this contract shows them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from typing import Any

from aiohttp import web

from comfyui_agent.comfy.shapes import optional_list, optional_object
from comfyui_agent.domain.failures import FailureClass
from comfyui_agent.engine.live_runs import LiveRun, read_live
from comfyui_agent.gateway.context import Caller
from comfyui_agent.gateway.v2.errors import PREFIX, not_found
from comfyui_agent.gateway.v2.outputs import JobOutput, content_of, outputs_of
from comfyui_agent.pools import FILES
from comfyui_agent.store import operations as ops
from comfyui_agent.store.assets import Asset
from comfyui_agent.store.posted_prompts import PostedPrompt
from comfyui_agent.wire.prompts import Json

NEVER = "9000-01-01T00:00:00Z"
"""For times that this contract wants where nothing ends."""
GONE = {"code": "results_gone", "message": "its results are not kept any more"}
AT_WORK = ("rendering", "fetching")
MOST_COUNTED = 1_000


async def live_runs(caller: Caller) -> dict[int, LiveRun]:
    """What agents on this machine have at work, by job."""
    return {run.job_id: run for run in await FILES.run(read_live, caller.gateway.workspace.locks)}


async def find_job(caller: Caller, prompt_id: str) -> PostedPrompt:
    """404 if there is none, if it is not the caller's, or if a server refused it at once."""
    prompt = await caller.find(prompt_id)
    if prompt is None or "rejected" in prompt.entry:
        raise not_found("job")
    return prompt


async def job_view(caller: Caller, request: web.Request, prompt: PostedPrompt, runs: Mapping[int, LiveRun]) -> Json:
    """A job. One that is done and whose results are gone has expired."""
    url = f"{PREFIX}/jobs/{prompt.prompt_id}"
    created, started = _time(prompt.created_at), _time(prompt.start_time)
    ended = _time(prompt.end_time or prompt.ended_at) if prompt.ended_at else None
    return {
        "id": prompt.prompt_id,
        "created_at": _shown(created),
        "started_at": _shown(started),
        "completed_at": _shown(ended),
        "expires_at": _expiry(caller, prompt) or NEVER,
        "queue_position": None,
        "progress": None,
        "outputs": [],
        "error": None,
        "metrics": {"queue_ms": _milliseconds(created, started), "execution_ms": _milliseconds(started, ended)},
        "urls": {"self": url, "events": f"{url}/events", "cancel": f"{url}/cancel"},
        **(
            await (
                _open_state(caller, prompt, runs.get(prompt.job_id))
                if ended is None
                else _ended_state(caller, request, prompt)
            )
        ),
    }


async def _open_state(caller: Caller, prompt: PostedPrompt, run: LiveRun | None) -> Json:
    """What changes while a job waits or runs."""
    is_heard = caller.gateway.relay.started(prompt.prompt_id) is not None or (run and run.stage in AT_WORK)
    if prompt.status == "processing" and (is_heard or prompt.has_run):
        return {"status": "running", "progress": _progress(run)}
    asked = prompt.job_id, prompt.priority, MOST_COUNTED
    ahead = await caller.gateway.store.run(ops.queue_position, *asked) if prompt.status == "pending" else 0
    return {"status": "queued", "queue_position": ahead}


async def _ended_state(caller: Caller, request: web.Request, prompt: PostedPrompt) -> Json:
    if prompt.failure_class == FailureClass.CANCELLED.value:
        return {"status": "canceled"}
    if prompt.status != "done":
        return {"status": "failed", "error": await _error(caller, prompt)}
    try:
        outputs = [await output_view(caller, request, each) for each in await outputs_of(caller, prompt)]
    except FileNotFoundError:
        return {"status": "expired", "error": GONE}
    nodes = len(prompt.graph)
    whole = {"value": 1.0, "nodes_done": nodes, "nodes_total": nodes}
    return {"status": "succeeded", "outputs": outputs, "progress": whole}


def _progress(run: LiveRun | None) -> Json | None:
    """How far a run is: its nodes, and the steps of the one at work."""
    if run is None or run.stage not in AT_WORK or not run.nodes_total:
        return None
    step = run.step / run.steps if run.steps else 0.0
    return {
        "value": max(0.0, min(1.0, (run.nodes_done + step) / run.nodes_total)),
        "nodes_done": run.nodes_done,
        "nodes_total": run.nodes_total,
        "current_node": run.node_id or None,
        "current_node_class": run.node_type or None,
        **(
            {"step": run.step, "steps": run.steps, "message": f"{run.node_type} {run.step}/{run.steps}"} if step else {}
        ),
    }


async def _error(caller: Caller, prompt: PostedPrompt) -> Json:
    """Why a job failed, with the node if one of its nodes did."""
    entry = await caller.gateway.entries.entry(prompt) or {}
    messages = optional_list(optional_object(entry.get("status")).get("messages"))
    said: Any = next((each[1] for each in reversed(messages) if each[0] == "execution_error"), {})
    kind = said.get("node_type") or None
    message = str(said.get("exception_message") or prompt.error_trace or "it failed").strip()
    return {
        "code": "node_execution_error" if kind else prompt.failure_class or "failed",
        "message": message,
        "node_id": str(said["node_id"]) if kind else None,
        "class_type": kind,
        "traceback": "".join(map(str, said.get("traceback") or ())) or None,
    }


async def output_view(caller: Caller, request: web.Request, output: JobOutput) -> Json:
    """A result, as an output of its job and as an asset. FileNotFoundError if it is gone."""
    found = await content_of(caller, output)
    return {
        "node_id": output.node_id,
        "name": output.name,
        "type": output.kind,
        "content_type": output.content_type,
        "size_bytes": len(found) if isinstance(found, bytes) else found.stat().st_size,
        "id": output.id,
        "hash": None,
        "url": _content_url(request, output.id),
        "url_expires_at": NEVER,
        "job_id": output.prompt.prompt_id,
        "file_path": output.name,
        "created_at": _shown(_time(output.prompt.end_time or output.prompt.created_at)),
        "expires_at": _expiry(caller, output.prompt),
    }


def asset_view(request: web.Request, asset: Asset, **created: bool) -> Json:
    """An upload. `created_new` tells on creation whether the bytes were new."""
    return {
        "id": asset.id,
        "hash": f"blake3:{asset.hash}",
        "size_bytes": asset.bytes,
        "content_type": asset.content_type,
        "file_path": asset.file_path,
        **created,
        "created_at": _shown(_time(asset.created_at)),
        "url": _content_url(request, asset.id),
        "url_expires_at": _shown(_time(asset.expires_at)) or NEVER,
        "expires_at": _shown(_time(asset.expires_at)),
    }


def _content_url(request: web.Request, asset_id: str) -> str:
    return f"{request.scheme}://{request.host}{PREFIX}/assets/{asset_id}/content"


def _expiry(caller: Caller, prompt: PostedPrompt) -> str | None:
    """When retention removes a job. None if it never does, or the job has not ended."""
    days, ended = caller.gateway.workspace.settings.retention.jobs_days, _time(prompt.end_time)
    return _shown(ended + timedelta(days=days)) if days and ended and prompt.ended_at else None


def _time(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text).replace(tzinfo=timezone.utc)


def _shown(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _milliseconds(begin: datetime | None, end: datetime | None) -> int | None:
    return None if begin is None or end is None else round((end - begin).total_seconds() * 1000)
