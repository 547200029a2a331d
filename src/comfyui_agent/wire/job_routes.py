"""Routes of the jobs API."""

from __future__ import annotations

import json

from aiohttp import web

from comfyui_agent.wire.backend import Backend
from comfyui_agent.wire.dialect import Dialect
from comfyui_agent.wire.jobs import JobQuery, job_states
from comfyui_agent.wire.prompts import is_canonical


class JobRoutes:
    """Lists jobs with filters, sorting and pages; shows one; in newer versions cancels."""

    def __init__(self, dialect: Dialect) -> None:
        self._states = job_states(dialect)

    async def listing(self, backend: Backend, request: web.Request) -> web.Response:
        asked = request.rel_url.query
        states = self._states_in(asked.get("status"))
        sort_by = _one_of(asked.get("sort_by", "created_at"), "sort_by", ("created_at", "execution_duration"))
        order = _one_of(asked.get("sort_order", "desc"), "sort_order", ("asc", "desc"))
        limit = _integer(asked["limit"], "limit") if "limit" in asked else None
        if limit is not None and limit <= 0:
            raise _bad_query("limit must be a positive integer")
        offset = max(0, _integer(asked.get("offset", "0"), "offset"))
        by_duration = sort_by == "execution_duration"
        query = JobQuery(states, asked.get("workflow_id"), by_duration, order == "desc", limit, offset)
        page = await backend.jobs(query)
        has_more = offset + len(page.jobs) < page.total
        pagination = {"offset": offset, "limit": limit, "total": page.total, "has_more": has_more}
        return web.json_response({"jobs": page.jobs, "pagination": pagination})

    async def show(self, backend: Backend, request: web.Request) -> web.Response:
        job = await backend.job(request.match_info["job_id"])
        if job is None:
            return web.json_response({"error": "Job not found"}, status=404)
        return web.json_response(job)

    async def cancel(self, backend: Backend, request: web.Request) -> web.Response:
        return web.json_response({"cancelled": await backend.cancel(request.match_info["job_id"])})

    async def cancel_many(self, backend: Backend, request: web.Request) -> web.Response:
        try:
            body = await request.json()
        except json.JSONDecodeError:
            raise _bad_query("Request body must be valid JSON") from None
        job_ids = body.get("job_ids") if isinstance(body, dict) else None
        if not isinstance(job_ids, list):
            raise _bad_query("job_ids must be a list")
        invalid = [each if isinstance(each, str) else repr(each) for each in job_ids if not is_canonical(each)]
        if invalid:
            raise _bad_query("job_ids contains invalid id(s)", invalid_ids=invalid)
        cancelled = [await backend.cancel(job_id) for job_id in job_ids]
        return web.json_response({"cancelled": any(cancelled)})

    def _states_in(self, text: str | None) -> list[str]:
        if not text:
            return self._states
        states = [part.strip().lower() for part in text.split(",") if part.strip()]
        wrong = [state for state in states if state not in self._states]
        if wrong:
            raise _bad_query(f"Invalid status value(s): {', '.join(wrong)}. Valid values: {', '.join(self._states)}")
        return states


def _one_of(value: str, name: str, choices: tuple[str, str]) -> str:
    if value.lower() not in choices:
        raise _bad_query(f"{name} must be '{choices[0]}' or '{choices[1]}'")
    return value.lower()


def _integer(text: str, name: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise _bad_query(f"{name} must be an integer") from None


def _bad_query(message: str, **more: list[str]) -> web.HTTPBadRequest:
    return web.HTTPBadRequest(text=json.dumps({"error": message, **more}), content_type="application/json")
