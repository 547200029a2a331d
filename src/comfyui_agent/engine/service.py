"""Agents at work for a purpose: all in one with a monitor, or to take back what a cancelled batch has at servers."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

from comfyui_agent.comfy.tasks import end_tasks
from comfyui_agent.config.workspace import Workspace
from comfyui_agent.engine.agent import Agent
from comfyui_agent.engine.composition import make_agent
from comfyui_agent.store import operations as ops
from comfyui_agent.store.agent_lock import living
from comfyui_agent.store.store import Store

if TYPE_CHECKING:
    from comfyui_agent.engine.intake.monitor import Monitor

PATIENCE = 15.0
NOT_YET = "its prompts could not be taken back from the server yet: the next agent does so"


async def serve(agent: Agent, monitor: Monitor, *, until_idle: bool = False) -> int:
    """Take files in and work them off; how many jobs failed meanwhile."""
    working = asyncio.create_task(agent.run(until_idle=until_idle, is_quiet=lambda: monitor.is_idle))
    tasks: list[asyncio.Task[Any]] = [working]
    try:
        await agent.is_ready.wait()
        watching = asyncio.create_task(monitor.run())
        tasks.append(watching)
        await asyncio.wait({working, watching}, return_when=asyncio.FIRST_COMPLETED)
        if watching.done():
            watching.result()
        failures = await working
        await monitor.put_away_finished()
        return failures
    finally:
        await end_tasks(reversed(tasks))


async def take_back(store: Store, workspace: Workspace, batch_id: str) -> bool:
    """Agents take prompts back; where none lives it is done here. False if that could not be done yet."""
    workers = {each.attempt_worker for each in await store.run(ops.open_attempts) if each.batch_id == batch_id}
    if not workers or workers & set(living(workspace.locks)) or await ops.is_attended(store, workspace.locks):
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
