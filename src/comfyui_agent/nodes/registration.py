"""Registering the pack with the ComfyUI that imports it. Runs on Python 3.9."""

from __future__ import annotations

import sys
from typing import Any

from comfyui_agent.nodes.core.batch_state import LOG
from comfyui_agent.nodes.core.iteration_state import IterationStateManager
from comfyui_agent.nodes.routes import add_routes

JOINED = "e3_iterator_is_here"


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
