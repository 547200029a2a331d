"""Routes for prompts: queue, history, and what runs."""

from __future__ import annotations

import json
from typing import Any

from aiohttp import web

from comfyui_agent.wire.backend import Backend
from comfyui_agent.wire.dialect import Dialect
from comfyui_agent.wire.prompts import Json, Rejected, Submission, is_canonical

NOT_CANONICAL = (
    "prompt_id must be a UUID string in canonical lowercase hyphenated form; omit it to let the server generate one"
)


class PromptRoutes:
    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect

    async def submit(self, backend: Backend, request: web.Request) -> web.Response:
        body = await request.json()
        number = float(body["number"]) if "number" in body else None
        parsed: Submission | Rejected | None = None
        try:
            parsed = self._submission(body, number, request.headers.get("Comfy-Usage-Source"))
        finally:
            if number is None and not isinstance(parsed, Submission):
                await backend.skip_number()
        answer = await backend.submit(parsed) if isinstance(parsed, Submission) else parsed
        return web.json_response(vars(answer), status=400 if isinstance(answer, Rejected) else 200)

    def _submission(self, body: Any, number: float | None, source: str | None) -> Submission | Rejected:
        if "prompt" not in body:
            return _refused("no_prompt", "No prompt provided", "No prompt provided")
        given = body.get("prompt_id")
        prompt_id = str(given) if "prompt_id" in body else None
        if self._dialect.prompt_id_must_be_uuid:
            prompt_id = given
            if given is not None and not is_canonical(given):
                return _refused("invalid_prompt_id", "prompt_id must be a valid UUID", NOT_CANONICAL)
        extra_data = body.get("extra_data", {})
        if "client_id" in body:
            extra_data["client_id"] = body["client_id"]
        if source and self._dialect.usage_source_kept:
            extra_data.setdefault("comfy_usage_source", source)
        targets = body.get("partial_execution_targets")
        return Submission(body["prompt"], prompt_id, number, bool(body.get("front")), extra_data, targets)

    async def change_queue(self, backend: Backend, request: web.Request) -> web.Response:
        body = await request.json()
        if _field(body, "clear"):
            await backend.delete(None)
        await backend.delete(list(_field(body, "delete", ())))
        return web.Response()

    async def interrupt(self, backend: Backend, request: web.Request) -> web.Response:
        try:
            body = await request.json()
        except json.JSONDecodeError:
            body = {}
        prompt_id = body.get("prompt_id") if self._dialect.targeted_interrupt else None
        await backend.interrupt(prompt_id or None)
        return web.Response()


async def remaining(backend: Backend, _: web.Request) -> Json:
    return {"exec_info": {"queue_remaining": await backend.remaining()}}


async def queue(backend: Backend, _: web.Request) -> Json:
    running, pending = await backend.queue()
    return {
        "queue_running": [item.shown() for item in running],
        "queue_pending": [item.shown() for item in pending],
    }


async def history(backend: Backend, request: web.Request) -> Json:
    query = request.rel_url.query
    max_items = int(query["max_items"]) if "max_items" in query else None
    return await backend.history(max_items, int(query.get("offset", "-1")))


async def history_of(backend: Backend, request: web.Request) -> Json:
    prompt_id = request.match_info["id"]
    entry = await backend.history_of(prompt_id)
    return {} if entry is None else {prompt_id: entry}


async def change_history(backend: Backend, request: web.Request) -> web.Response:
    body = await request.json()
    if _field(body, "clear"):
        await backend.forget(None)
    await backend.forget(list(_field(body, "delete", ())))
    return web.Response()


async def free(backend: Backend, request: web.Request) -> web.Response:
    body = await request.json()
    await backend.free(bool(body.get("unload_models")), bool(body.get("free_memory")))
    return web.Response()


def _field(body: Any, name: str, default: Any = None) -> Any:
    """A field of a JSON body. A list or a text counts as an object without the field, as in the real server."""
    if name in body:
        return body[name]
    return default


def _refused(kind: str, message: str, details: str) -> Rejected:
    return Rejected({"type": kind, "message": message, "details": details, "extra_info": {}}, {})
