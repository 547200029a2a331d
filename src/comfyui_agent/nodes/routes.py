"""Batches over HTTP, beside ComfyUI's own routes. Runs on Python 3.9."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from comfyui_agent.nodes.core.iteration_state import IterationStateManager

if TYPE_CHECKING:
    from aiohttp.web import RouteTableDef

NO_SUCH = "There is no batch {!r:.80}. It ended more than an hour ago, ComfyUI was restarted, or it never was."


def add_routes(routes: RouteTableDef) -> None:
    """Add the three routes to aiohttp's table; ComfyUI serves each below /api, too."""
    from aiohttp import web

    def answer(batch_id: str, found: Any) -> web.Response:
        if found is None:
            return web.json_response({"error": NO_SUCH.format(batch_id)}, status=404)
        return web.json_response(found)

    @routes.get("/wi/batches")
    async def batches(_: web.Request) -> web.Response:
        return web.json_response({"batches": await _elsewhere(_manager().summaries)})

    @routes.get("/wi/batch/{batch_id}")
    async def batch(request: web.Request) -> web.Response:
        batch_id = request.match_info["batch_id"]
        return answer(batch_id, await _elsewhere(_manager().describe, batch_id))

    @routes.post("/wi/cancel_batch/{batch_id}")
    async def cancel_batch(request: web.Request) -> web.Response:
        batch_id = request.match_info["batch_id"]
        said = await _elsewhere(_manager().cancel_batch, batch_id)
        return answer(batch_id, said and said.as_json())


def _manager() -> IterationStateManager:
    return IterationStateManager.instance()


async def _elsewhere(call: Any, *arguments: Any) -> Any:
    """In a thread, so that ComfyUI goes on meanwhile."""
    return await asyncio.get_running_loop().run_in_executor(None, call, *arguments)
