"""Batches over HTTP, beside ComfyUI's own routes. Runs on Python 3.9."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

from comfyui_agent.nodes.core.iteration_state import IterationStateManager

if TYPE_CHECKING:
    from aiohttp.web import RouteTableDef

NO_SUCH = "There is no batch {!r:.80}. It ended more than an hour ago, ComfyUI was restarted, or it never was."


def add_routes(routes: RouteTableDef) -> None:
    """Add the three routes. ComfyUI serves each below /api, too."""
    from aiohttp import web

    def answer(batch_id: str, found: str | None) -> web.Response:
        if found is None:
            return web.json_response({"error": NO_SUCH.format(batch_id)}, status=404)
        return web.Response(text=found, content_type="application/json")

    @routes.get("/wi/batches")
    async def batches(_: web.Request) -> web.Response:
        return web.json_response({"batches": await _in_thread(_manager().summaries)})

    @routes.get("/wi/batch/{batch_id}")
    async def batch(request: web.Request) -> web.Response:
        batch_id = request.match_info["batch_id"]
        return answer(batch_id, await _in_thread(_described, batch_id))

    @routes.post("/wi/cancel_batch/{batch_id}")
    async def cancel_batch(request: web.Request) -> web.Response:
        batch_id = request.match_info["batch_id"]
        done = await _in_thread(_manager().cancel_batch, batch_id)
        return answer(batch_id, done and json.dumps(done.as_json()))


def _manager() -> IterationStateManager:
    return IterationStateManager.instance()


def _described(batch_id: str) -> str | None:
    """Written piece by piece, so that other threads get their turn: a batch may have ten thousand members."""
    found = _manager().describe(batch_id)
    if found is None:
        return None
    members = ",".join(json.dumps(member) for member in found.pop("members"))
    results = ",".join(f"{json.dumps(index)}:{json.dumps(result)}" for index, result in found.pop("results").items())
    return f'{json.dumps(found)[:-1]},"results":{{{results}}},"members":[{members}]}}'


async def _in_thread(call: Any, *arguments: Any) -> Any:
    """In a thread, so that ComfyUI goes on meanwhile."""
    return await asyncio.get_running_loop().run_in_executor(None, call, *arguments)
