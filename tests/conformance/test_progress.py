"""How samplers count their steps, and in which order the outputs of a prompt run."""

from __future__ import annotations

from typing import Any

import pytest

from support.graphs import node, picture, text_to_image
from support.wire import Graph, Wire, told_steps

ADVANCED = {
    "add_noise": "enable",
    "return_with_leftover_noise": "disable",
    "start_at_step": 0,
    "end_at_step": 10_000,
}


async def expect_steps(wire: Wire, server_kind: str, graph: Graph, reported: int, steps: int) -> None:
    """The sampler "5" reports so many of its steps, from the first on."""
    found = await counted(wire, graph)
    told = told_steps(wire, server_kind, [step for step, _ in found], steps, reported)
    assert found == [(step, steps) for step in told]


async def counted(wire: Wire, graph: Graph) -> list[tuple[int, int]]:
    """The steps that the sampler "5" reports, and of how many."""
    async with wire.socket() as recorder:
        prompt_id = await wire.submit(graph)
        await recorder.last_frame_of(prompt_id)
        last = recorder.events("progress_state")[-1]["nodes"]["5"]
        steps = [(data["value"], data["max"]) for data in recorder.events("progress")]
    most = steps[-1][1] if steps else 1
    assert (last["state"], last["value"], last["max"]) == ("finished", most, most)
    return steps


@pytest.mark.parametrize(
    ("start", "end", "steps"),
    [(0, 10_000, 4), (1, 3, 2), (3, 10_000, 1), (0, 2, 2), (4, 10_000, 0), (3, 3, 0), (3, 1, 0)],
)
async def test_a_part_of_the_steps_is_counted_by_itself(
    wire: Wire, server_kind: str, start: int, end: int, steps: int
) -> None:
    graph = await text_to_image(wire, steps=4)
    inputs = {**graph["5"]["inputs"], **ADVANCED, "start_at_step": start, "end_at_step": end}
    inputs["noise_seed"] = inputs.pop("seed")
    del inputs["denoise"]
    graph["5"] = node("KSamplerAdvanced", **inputs)
    await expect_steps(wire, server_kind, graph, steps, steps)


@pytest.mark.parametrize(("denoise", "steps"), [(0.0, 0), (0.01, 4), (0.5, 4)])
async def test_denoising_a_part_takes_all_steps_and_nothing_takes_none(
    wire: Wire, server_kind: str, denoise: float, steps: int
) -> None:
    graph = await text_to_image(wire, steps=4)
    graph["5"]["inputs"]["denoise"] = denoise
    await expect_steps(wire, server_kind, graph, steps, steps)


@pytest.mark.parametrize(("steps", "reported"), [(1, 1), (3, 2), (4, 2), (6, 3)])
async def test_a_sampler_that_does_three_steps_at_once_stops_early(
    wire: Wire, server_kind: str, steps: int, reported: int
) -> None:
    graph = await text_to_image(wire, steps=steps)
    graph["5"]["inputs"]["sampler_name"] = "dpm_fast"
    await expect_steps(wire, server_kind, graph, reported, steps)


async def test_outputs_run_in_the_order_in_which_they_are_listed(wire: Wire) -> None:
    graph: dict[str, Any] = {}
    for number in range(4):
        first, save = picture().values()
        graph |= {f"{number}": first, f"save {number}": save}
        save["inputs"]["images"] = [f"{number}", 0]
    async with wire.socket() as recorder:
        prompt_id = await wire.submit(graph)
        await recorder.last_frame_of(prompt_id)
        executed = [data["node"] for data in recorder.events("executed")]
    assert (await wire.finished(prompt_id))["prompt"][4] == executed
    assert sorted(executed) == [f"save {number}" for number in range(4)]
