"""The `/api/jobs` view of queue and history."""

from __future__ import annotations

import json
from typing import Any

from aiohttp import web

from comfyui_agent.sim.engine.simulated import SimulatedEngine
from comfyui_agent.sim.prompt_queue import Json, QueueItem

PREVIEWED = ("images", "video", "audio")
SOLIDS = (".obj", ".fbx", ".gltf", ".glb")


class JobRoutes:
    """Lists jobs with filters, sorting and pages; shows one; in newer versions cancels."""

    def __init__(self, engine: SimulatedEngine) -> None:
        self._engine = engine
        self._prompts = engine.prompts
        self._states = ["pending", "in_progress", "completed", "failed"]
        if engine.dialect.jobs_cancelled_status:
            self._states.append("cancelled")

    async def listing(self, request: web.Request) -> web.Response:
        query = request.rel_url.query
        states = self._states_in(query.get("status"))
        sort_by = _one_of(query.get("sort_by", "created_at"), "sort_by", ("created_at", "execution_duration"))
        order = _one_of(query.get("sort_order", "desc"), "sort_order", ("asc", "desc"))
        limit = _integer(query["limit"], "limit") if "limit" in query else None
        if limit is not None and limit <= 0:
            raise _bad_query("limit must be a positive integer")
        offset = max(0, _integer(query.get("offset", "0"), "offset"))
        jobs = self._waiting() + [self._ended(entry) for entry in self._prompts.history().values()]
        jobs = [job for job in jobs if job["status"] in states]
        if workflow_id := query.get("workflow_id"):
            jobs = [job for job in jobs if job.get("workflow_id") == workflow_id]
        key = _duration if sort_by == "execution_duration" else lambda job: job.get("create_time", 0)
        jobs.sort(key=key, reverse=order == "desc")
        page = jobs[offset:] if limit is None else jobs[offset : offset + limit]
        has_more = offset + len(page) < len(jobs)
        pagination = {"offset": offset, "limit": limit, "total": len(jobs), "has_more": has_more}
        return web.json_response({"jobs": page, "pagination": pagination})

    async def show(self, request: web.Request) -> web.Response:
        job_id = request.match_info["job_id"]
        entry = self._prompts.history_of(job_id).get(job_id)
        if entry is not None:
            details = {
                "outputs": entry["outputs"],
                "execution_status": entry["status"],
                "workflow": {"prompt": entry["prompt"][2], "extra_data": entry["prompt"][3]},
            }
            return web.json_response({**self._ended(entry), **details})
        for job in self._waiting():
            if job["id"] == job_id:
                return web.json_response(job)
        return web.json_response({"error": "Job not found"}, status=404)

    async def cancel(self, request: web.Request) -> web.Response:
        return web.json_response({"cancelled": self._cancel(request.match_info["job_id"])})

    async def cancel_many(self, request: web.Request) -> web.Response:
        body = await request.json()
        cancelled = [self._cancel(job_id) for job_id in body["job_ids"]]
        return web.json_response({"cancelled": any(cancelled)})

    def _cancel(self, job_id: str) -> bool:
        if self._prompts.delete(job_id):
            return True
        if self._prompts.is_running(job_id):
            self._engine.interrupt()
            return True
        return False

    def _states_in(self, text: str | None) -> list[str]:
        if not text:
            return self._states
        states = [part.strip().lower() for part in text.split(",") if part.strip()]
        wrong = [state for state in states if state not in self._states]
        if wrong:
            raise _bad_query(f"Invalid status value(s): {', '.join(wrong)}. Valid values: {', '.join(self._states)}")
        return states

    def _waiting(self) -> list[Json]:
        running, pending = self._prompts.running_and_pending()
        return [_job(item, "in_progress") for item in running] + [_job(item, "pending") for item in pending]

    def _ended(self, entry: Json) -> Json:
        status = "failed" if entry["status"]["status_str"] == "error" else "completed"
        times: Json = {}
        for event, data in entry["status"]["messages"]:
            if event == "execution_start":
                times["execution_start_time"] = data["timestamp"]
            elif event in ("execution_success", "execution_error", "execution_interrupted"):
                times["execution_end_time"] = data["timestamp"]
                if event == "execution_error":
                    times["execution_error"] = data
                if event == "execution_interrupted" and "cancelled" in self._states:
                    status = "cancelled"
        count, preview = _summary(entry["outputs"])
        job = _job(QueueItem._make([*entry["prompt"], {}]), status) | times | {"outputs_count": count}
        return job if preview is None else {**job, "preview_output": preview}


def _job(item: QueueItem, status: str) -> Json:
    workflow_id = item.extra_data.get("extra_pnginfo", {}).get("workflow", {}).get("id")
    optional = {"create_time": item.extra_data.get("create_time"), "workflow_id": workflow_id}
    described = {key: value for key, value in optional.items() if value is not None}
    return {"id": item.prompt_id, "status": status, "priority": item.number, **described, "outputs_count": 0}


def _summary(outputs: Json) -> tuple[int, Json | None]:
    """How many results there are, and the one to show: a saved one, if there is any."""
    items = [
        (node_id, kind, item)
        for node_id, shown in outputs.items()
        for kind, listed in shown.items()
        if kind != "animated" and isinstance(listed, list)
        for item in listed
        if isinstance(item, dict)
    ]
    candidates = [
        {**item, "nodeId": node_id, "mediaType": kind}
        for node_id, kind, item in items
        if kind in PREVIEWED or str(item.get("filename", "")).lower().endswith(SOLIDS)
    ]
    saved = [item for item in candidates if item.get("type") == "output"]
    return len(items), next(iter(saved or candidates), None)


def _duration(job: Json) -> Any:
    start, end = job.get("execution_start_time"), job.get("execution_end_time")
    return end - start if start and end else 0


def _one_of(value: str, name: str, choices: tuple[str, str]) -> str:
    if value.lower() not in choices:
        raise _bad_query(f"{name} must be '{choices[0]}' or '{choices[1]}'")
    return value.lower()


def _integer(text: str, name: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise _bad_query(f"{name} must be an integer") from None


def _bad_query(message: str) -> web.HTTPBadRequest:
    return web.HTTPBadRequest(text=json.dumps({"error": message}), content_type="application/json")
