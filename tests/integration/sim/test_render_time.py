"""How long renders take: --render-seconds, --model-load-seconds."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from support.graphs import picture, text_to_image
from support.wire import Wire

from .conftest import Connect, Start


def seconds(entry: dict[str, Any]) -> float:
    """From the start of a prompt to its end, as its history tells."""
    messages = entry["status"]["messages"]
    return float(messages[-1][1]["timestamp"] - messages[0][1]["timestamp"]) / 1000


async def renders(wire: Wire, count: int) -> list[float]:
    return [seconds(await wire.run(await text_to_image(wire))) for _ in range(count)]


@pytest.mark.slow
@pytest.mark.timing
async def test_without_the_switch_a_render_takes_no_time(plain: Wire) -> None:
    assert min(await renders(plain, 3)) < 0.2


@pytest.mark.slow
@pytest.mark.timing
async def test_every_prompt_takes_the_render_time_once(start: Start, connect: Connect) -> None:
    async with connect(start("--render-seconds", "0.3")) as wire:
        for taken in await renders(wire, 2):
            assert 0.29 <= taken < 0.6
        graph = await text_to_image(wire)
        second = {**graph["5"], "inputs": {**graph["5"]["inputs"], "latent_image": ["5", 0], "denoise": 0.5}}
        graph = {**graph, "5b": second, "6": {**graph["6"], "inputs": {**graph["6"]["inputs"], "samples": ["5b", 0]}}}
        assert 0.29 <= seconds(await wire.run(graph)) < 0.55, "two samplers share it"
        without_sampler = picture()
        assert seconds(await wire.run(without_sampler)) >= 0.29
        assert seconds(await wire.run(without_sampler)) < 0.2, "the cache answers"


@pytest.mark.timing
async def test_a_model_is_loaded_once_and_again_after_it_was_freed(start: Start, connect: Connect) -> None:
    switches = ("--models", "ink.safetensors", "--models", "oil.safetensors", "--model-load-seconds", "0.3")
    async with connect(start(*switches)) as wire:
        for name, loads in (
            ("ink", True),
            ("ink", False),
            ("oil", True),
            ("oil", False),
            ("free", None),
            ("oil", True),
        ):
            if loads is None:
                assert (await wire.post("/free", {"unload_models": True})).status == 200
                while (await wire.get("/system_stats")).body["e3_simulator"]["loaded"]:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)  # a prompt that came at once might run before
                continue
            graph = await text_to_image(wire)
            graph["1"]["inputs"]["ckpt_name"] = f"{name}.safetensors"
            assert (seconds(await wire.run(graph)) >= 0.29) is loads, name
