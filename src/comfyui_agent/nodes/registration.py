"""Registering the pack with the ComfyUI that imports it: its prompt handler and its routes. Runs on Python 3.9."""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from comfyui_agent.nodes.core.batch_state import LOG
from comfyui_agent.nodes.core.iteration_state import IterationStateManager

if TYPE_CHECKING:
    from aiohttp.web import RouteTableDef

JOINED = "e3_iterator_is_here"
NO_SUCH = "There is no batch {!r:.80}. It ended more than an hour ago, ComfyUI was restarted, or it never was."


def join() -> bool:
    """Add the prompt handler and the routes, if this is a ComfyUI; False if another copy of the pack has done so."""
    server = getattr(getattr(sys.modules.get("server"), "PromptServer", None), "instance", None)
    if server is None:
        return True
    if getattr(server, JOINED, False):
        LOG.error("E3's nodes are installed twice: delete one of the folders in custom_nodes. The second is not used.")
        return False
    try:
        setattr(server, JOINED, True)
        handler = IterationStateManager.instance().handle_prompt
        server.add_on_prompt_handler(handler)
        add_routes(server.routes)
        app = getattr(server, "app", None)
        if app is not None:
            app.on_startup.append(lambda _: _go_last(server.on_prompt_handlers, handler))
    except Exception:  # noqa: BLE001 - ComfyUI must start
        LOG.exception("This ComfyUI does not let E3's nodes hear of prompts: an E3 Iterator will do nothing")
    return True


async def _go_last(handlers: list[Any], ours: Any) -> None:
    """Move our handler behind all others, so that members get what those do to a prompt."""
    if ours in handlers:
        handlers.remove(ours)
        handlers.append(ours)


def add_routes(routes: RouteTableDef) -> None:
    """Add the three routes. ComfyUI serves each below /api, too."""
    from aiohttp import web

    manager = IterationStateManager.instance

    async def in_thread(call: Any, *arguments: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(None, call, *arguments)

    async def answer(call: Any, request: web.Request) -> web.Response:
        batch_id = request.match_info["batch_id"]
        found = await in_thread(_json_of, call, batch_id)
        if found is None:
            return web.json_response({"error": NO_SUCH.format(batch_id)}, status=404)
        return web.Response(text=found, content_type="application/json")

    @routes.get("/wi/batches")
    async def batches(_: web.Request) -> web.Response:
        return web.json_response({"batches": await in_thread(manager().summaries)})

    @routes.get("/wi/batch/{batch_id}")
    async def batch(request: web.Request) -> web.Response:
        return await answer(manager().describe, request)

    @routes.post("/wi/cancel_batch/{batch_id}")
    async def cancel_batch(request: web.Request) -> web.Response:
        return await answer(manager().cancel_batch, request)


def _json_of(call: Any, batch_id: str) -> str | None:
    """Encoded piece by piece, so that other threads get their turn: a batch may have ten thousand members."""
    found = call(batch_id)
    return None if found is None else "".join(json.JSONEncoder(default=asdict).iterencode(found))
