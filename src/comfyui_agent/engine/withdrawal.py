"""Prompts of a batch that was cancelled, taken back from their servers."""

from __future__ import annotations

import asyncio
import time

from comfyui_agent.comfy.tasks import end_tasks
from comfyui_agent.config.workspace import Workspace
from comfyui_agent.engine.composition import make_agent
from comfyui_agent.store import operations as ops
from comfyui_agent.store.agent_lock import is_attended, living
from comfyui_agent.store.store import Store

PATIENCE = 15.0
NOT_YET = "its prompts could not be taken back from the server yet: the next agent does so"


async def take_back(store: Store, workspace: Workspace, batch_id: str) -> bool:
    """Agents take prompts back; where none lives it is done here. False if that could not be done yet."""
    workers = {each.attempt_worker for each in await store.run(ops.open_attempts) if each.batch_id == batch_id}
    if not workers or is_attended(workspace.locks) or workers & set(living(workspace.locks)):
        return True
    working = asyncio.create_task(make_agent(store, workspace, only=batch_id).run())
    until = time.monotonic() + PATIENCE
    try:
        while any(each.batch_id == batch_id for each in await store.run(ops.open_attempts)):
            if working.done() or time.monotonic() > until:
                return False
            await asyncio.sleep(0.1)
        return True
    finally:
        await end_tasks([working])
