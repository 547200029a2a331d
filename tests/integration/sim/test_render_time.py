"""How long renders take: --render-seconds, --model-load-seconds, --seed."""

from __future__ import annotations

from typing import Any

import pytest

from support.graphs import picture, text_to_image
from support.sampling import some
from support.wire import Wire

from .conftest import Connect, Start


def seconds(entry: dict[str, Any]) -> float:
    """From the start of a prompt to its end, as its history tells."""
    messages = entry["status"]["messages"]
    return float(messages[-1][1]["timestamp"] - messages[0][1]["timestamp"]) / 1000


async def renders(wire: Wire, count: int) -> list[float]:
    return [seconds(await wire.run(await text_to_image(wire))) for _ in range(count)]


@pytest.mark.timing
async def test_without_the_switch_a_render_takes_no_time(start: Start, connect: Connect) -> None:
    async with connect(start()) as wire:
        assert min(await renders(wire, 3)) < 0.2


@pytest.mark.timing
async def test_every_render_takes_a_fixed_time(start: Start, connect: Connect) -> None:
    async with connect(start("--render-seconds", "0.3")) as wire:
        for taken in await renders(wire, 3):
            assert 0.29 <= taken < 0.6


@pytest.mark.timing
async def test_a_prompt_without_a_sampler_takes_the_time_too_and_a_cached_one_none(
    start: Start, connect: Connect
) -> None:
    async with connect(start("--render-seconds", "0.3")) as wire:
        graph = picture()
        assert seconds(await wire.run(graph)) >= 0.29
        assert seconds(await wire.run(graph)) < 0.2


@pytest.mark.timing
async def test_two_samplers_share_the_time_of_one_render(start: Start, connect: Connect) -> None:
    async with connect(start("--render-seconds", "0.4")) as wire:
        graph = await text_to_image(wire)
        second = {**graph["5"], "inputs": {**graph["5"]["inputs"], "latent_image": ["5", 0], "denoise": 0.5}}
        graph = {**graph, "5b": second, "6": {**graph["6"], "inputs": {**graph["6"]["inputs"], "samples": ["5b", 0]}}}
        assert 0.39 <= seconds(await wire.run(graph)) < 0.7


@pytest.mark.timing
@pytest.mark.parametrize("spec", some(["uniform:0.02:0.3", "lognormal:0.1:0.7"], 2))
async def test_drawn_times_differ_and_repeat_with_the_seed(start: Start, connect: Connect, spec: str) -> None:
    rows = []
    for _ in range(2):
        async with connect(start("--render-seconds", spec, "--seed", "7")) as wire:
            rows.append(await renders(wire, 6))
    assert max(rows[0]) - min(rows[0]) > 0.05
    assert rows[0] == pytest.approx(rows[1], abs=0.07)


@pytest.mark.timing
async def test_a_model_is_loaded_once_and_again_after_it_was_freed(start: Start, connect: Connect) -> None:
    async with connect(start("--model-load-seconds", "0.4")) as wire:
        first, second = await renders(wire, 2)
        assert first >= 0.39
        assert second < 0.3
        assert (await wire.post("/free", {"unload_models": True})).status == 200
        assert (await renders(wire, 1))[0] >= 0.39


@pytest.mark.timing
async def test_each_model_is_loaded_for_itself(start: Start, connect: Connect) -> None:
    switches = ("--models", "ink.safetensors", "--models", "oil.safetensors", "--model-load-seconds", "0.4")
    async with connect(start(*switches)) as wire:
        for name, loads in (("ink", True), ("oil", True), ("ink", False)):
            graph = await text_to_image(wire)
            graph["1"]["inputs"]["ckpt_name"] = f"{name}.safetensors"
            assert (seconds(await wire.run(graph)) >= 0.39) is loads
