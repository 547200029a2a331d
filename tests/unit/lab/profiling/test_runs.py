"""Loading models is told apart from sampling."""

from __future__ import annotations

from typing import Any

import pytest

from comfyui_agent.lab.profiling.runs import (
    Kind,
    Run,
    Split,
    is_loader,
    is_sampler,
    measured_runs,
    split,
    typical_steps,
)
from comfyui_agent.lab.profiling.timeline import NodeTime


def node(class_type: str, **inputs: Any) -> dict[str, Any]:
    return {"class_type": class_type, "inputs": inputs}


GRAPH = {
    "1": node("CheckpointLoaderSimple", ckpt_name="model.safetensors"),
    "5": node("KSampler", seed=1, sampler_name="euler"),
    "6": node("ImageUpscaleWithModel", image=["5", 0]),
    "7": node("SaveImage", filename_prefix="x"),
}


def run(kind: Kind, *nodes: NodeTime, exec_sec: float | None = None, cached: bool = False) -> Run:
    return Run(
        kind=kind,
        prompt_id="",
        started_at="",
        seconds=0.0,
        ended_seconds=1.0,
        duration_sec=1.0,
        exec_sec=exec_sec,
        queue_sec=0.0,
        transfer_sec=0.0,
        cached_nodes=frozenset(),
        cached=cached,
        nodes=nodes,
        moments=(),
    )


def sampler(seconds: float, first: float, *gaps: float) -> NodeTime:
    return NodeTime("5", "KSampler", seconds, first, len(gaps) + 1, gaps)


def test_the_usual_step_is_the_median_over_all_runs() -> None:
    runs = [run(Kind.COLD, sampler(9.0, 5.0, 1.0, 3.0)), run(Kind.WARM, sampler(4.0, 1.0, 1.0, 2.0))]
    assert typical_steps(runs) == {"5": 1.5}


def test_a_single_step_is_known_by_its_warm_runs() -> None:
    runs = [run(Kind.COLD, sampler(9.0, 9.0)), run(Kind.WARM, sampler(1.0, 1.0)), run(Kind.WARM, sampler(2.0, 2.0))]
    assert typical_steps(runs) == {"5": 1.5}
    assert typical_steps(runs[:1]) == {}


def test_loading_is_loader_nodes_and_what_comes_before_the_first_step_beyond_a_usual_one() -> None:
    cold = run(
        Kind.COLD,
        NodeTime("1", "CheckpointLoaderSimple", 2.0),
        sampler(7.0, 4.0, 1.0, 1.0, 1.0),
        NodeTime("7", "SaveImage", 0.5),
        exec_sec=10.0,
    )
    assert split(cold, GRAPH, {"5": 1.0}) == Split(model_load_sec=5.0, sampling_sec=4.0, other_sec=1.0)


def test_a_warm_sampler_loads_nothing_even_if_its_first_step_was_quick() -> None:
    warm = run(Kind.WARM, sampler(4.0, 0.9, 1.0, 1.0, 1.0), exec_sec=4.0)
    assert split(warm, GRAPH, {"5": 1.0}) == Split(0.0, 4.0, 0.0)


def test_steps_of_a_node_that_samples_nothing_are_no_sampling() -> None:
    upscaled = run(Kind.WARM, NodeTime("6", "ImageUpscaleWithModel", 6.0, 3.0, 4, (1.0, 1.0, 1.0)), exec_sec=6.0)
    assert split(upscaled, GRAPH, {"6": 1.0}) == Split(model_load_sec=2.0, sampling_sec=0.0, other_sec=4.0)


def test_without_the_servers_clock_the_nodes_are_the_whole() -> None:
    assert split(run(Kind.WARM, NodeTime("7", "SaveImage", 0.5)), GRAPH, {}).other_sec == 0.5


def test_what_was_not_heard_is_not_known() -> None:
    assert split(run(Kind.COLD, exec_sec=3.0), GRAPH, {}) == Split(None, None, None)


def test_runs_that_the_cache_answered_do_not_count() -> None:
    cold, warm, cached = run(Kind.COLD), run(Kind.WARM), run(Kind.WARM, cached=True)
    assert measured_runs([cold, warm, cached], Kind.WARM) == [warm]


@pytest.mark.parametrize(
    ("one", "loads", "samples"),
    [
        (node("CheckpointLoaderSimple", ckpt_name="a.safetensors"), True, False),
        (node("LoraLoader", lora_name="LORA.PT", model=["1", 0]), True, False),
        (node("IPAdapterUnifiedLoader", preset="PLUS", model=["1", 0]), True, False),
        (node("LoadImage", image="castle.png"), False, False),
        (node("ImageLoaderFancy", image="castle.png"), False, False),
        (node("KSampler", seed=1), False, True),
        (node("SamplerCustomAdvanced", sigmas=["3", 0]), False, True),
        (node("TiledRefiner", sampler_name="euler"), False, True),
        (node("VAEDecode", samples=["5", 0]), False, False),
    ],
    ids=lambda value: value["class_type"] if isinstance(value, dict) else "",
)
def test_nodes_are_known_by_what_they_take(one: dict[str, Any], loads: bool, samples: bool) -> None:
    assert (is_loader({"9": one}, "9"), is_sampler({"9": one}, "9")) == (loads, samples)
