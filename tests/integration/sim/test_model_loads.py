"""When a model is loaded: a server forgets one when a prompt does not use it."""

from __future__ import annotations

from typing import Any

import aiohttp
import pytest

from comfyui_agent.sim.settings import Duration, SimSettings
from comfyui_agent.sim.simulator import Simulator
from support.graphs import fresh_prefix, picture, sampled
from support.wire import Graph, Wire


async def run(wire: Wire, name: str) -> None:
    seed = len(wire.submitted)
    graph: Graph = picture() if name == "none" else sampled(name, fresh_prefix(), seed=seed, steps=1, edge=16)
    await wire.run(graph)


async def facts_after(names: str, settings: SimSettings) -> dict[str, Any]:
    """What the simulator says of itself after prompts with these models."""
    async with Simulator(settings) as simulator, aiohttp.ClientSession() as session:
        wire = Wire(session, simulator.url)
        for name in names.split():
            await run(wire, name)
        facts: dict[str, Any] = (await wire.get("/system_stats")).body["e3_simulator"]
        return facts


@pytest.mark.parametrize(
    ("names", "loads", "loaded"),
    [
        ("ink ink ink ink", 1, ["ink"]),
        ("ink oil ink oil", 4, ["oil"]),
        ("ink ink oil oil", 2, ["oil"]),
        ("ink none", 1, []),
    ],
)
async def test_a_model_is_loaded_when_the_prompt_before_did_not_use_it(
    names: str, loads: int, loaded: list[str]
) -> None:
    facts = await facts_after(names, SimSettings(models=("ink", "oil")))
    assert facts == {"loaded": loaded, "loads": loads, "load_seconds": 0, "card": None, "card_processes": 1}


async def test_the_seconds_of_all_loads_are_told() -> None:
    slow_oil = {"oil": Duration.parse("0.03")}
    settings = SimSettings(models=("ink", "oil"), model_load_seconds=Duration.parse("0.01"), load_seconds_of=slow_oil)
    assert (await facts_after("ink oil ink ink", settings))["load_seconds"] == pytest.approx(0.05)
