"""A thousand prompts on one websocket: none missed, none twice, memory flat."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from collections import Counter
from collections.abc import Callable

import pytest

from comfyui_agent.comfy.client import ComfyClient
from comfyui_agent.domain.prompts import mint_prompt_id
from comfyui_agent.sim.process import ServerProcess
from support.graphs import picture
from support.promises import succeeded

PROMPTS = 1000
IN_FLIGHT = 16
MOST_GROWTH = 2_000_000


@pytest.mark.slow
async def test_a_thousand_prompts_are_each_known_once_in_flat_memory(
    comfyui_simulator: Callable[..., ServerProcess],
) -> None:
    server = comfyui_simulator()
    ends: Counter[str] = Counter()
    files: Counter[str] = Counter()
    gate = asyncio.Semaphore(IN_FLIGHT)
    async with ComfyClient(server.url) as comfy:

        async def one(number: int) -> None:
            async with gate:
                watch = await comfy.submit(picture(f"many{number // 200}/picture"), mint_prompt_id())
                outcome = succeeded(await watch.outcome(timeout=60))
                ends[outcome.prompt_id] += 1
                files[f"{outcome.results.files[0].subfolder}/{outcome.results.files[0].filename}"] += 1

        await asyncio.gather(*(one(number) for number in range(200)))
        tracemalloc.start()
        before = _allocated()
        for start in range(200, PROMPTS, 200):
            await asyncio.gather(*(one(number) for number in range(start, start + 200)))
        grown = _allocated() - before
        tracemalloc.stop()
        assert comfy.websocket_connections == 1
    assert (len(ends), max(ends.values())) == (PROMPTS, 1)
    assert (len(files), max(files.values())) == (PROMPTS, 1)
    assert len(list(server.output_dir.rglob("*.png"))) == PROMPTS
    assert grown < MOST_GROWTH


def _allocated() -> int:
    gc.collect()
    return tracemalloc.get_traced_memory()[0]
