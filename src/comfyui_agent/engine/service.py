"""All in one: the monitor and the agent side by side, until one of them ends or both have nothing left to do."""

from __future__ import annotations

import asyncio
from typing import Any

from comfyui_agent.comfy.tasks import end_tasks
from comfyui_agent.engine.agent import Agent
from comfyui_agent.engine.intake.monitor import Monitor


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
