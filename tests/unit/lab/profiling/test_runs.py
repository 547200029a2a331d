"""Loading models is told apart from sampling."""

from __future__ import annotations

from typing import Any

import pytest

from comfyui_agent.lab.profiling.runs import Kind, is_loader, is_sampler, split, typical_steps
from comfyui_agent.lab.reports.profile import NodeSeconds, RunFigures


def node(class_type: str, **inputs: Any) -> dict[str, Any]:
    return {"class_type": class_type, "inputs": inputs}


GRAPH = {
    "1": node("CheckpointLoaderSimple", ckpt_name="model.safetensors"),
    "5": node("KSampler", seed=1, sampler_name="euler"),
    "6": node("ImageUpscaleWithModel", image=["5", 0]),
    "7": node("SaveImage", filename_prefix="x"),
}


def run(kind: Kind, *nodes: NodeSeconds, exec_sec: float | None = None) -> RunFigures:
    return RunFigures(kind=kind, exec_sec=exec_sec, nodes=nodes)


def other(node_id: str, seconds: float) -> NodeSeconds:
    return NodeSeconds(node_id=node_id, seconds=seconds)


def stepped(node_id: str, seconds: float, first: float, *gaps: float) -> NodeSeconds:
    return NodeSeconds(
        node_id=node_id, seconds=seconds, first_step_sec=first, steps=len(gaps) + 1, step_gaps=list(gaps)
    )


def sampler(seconds: float, first: float, *gaps: float) -> NodeSeconds:
    return stepped("5", seconds, first, *gaps)


def split_of(run: RunFigures, typical: dict[str, float]) -> tuple[float | None, ...]:
    """Loading, sampling and the rest."""
    split(run, GRAPH, typical)
    return run.model_load_sec, run.sampling_sec, run.other_sec


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
        other("1", 2.0),
        sampler(7.0, 4.0, 1.0, 1.0, 1.0),
        other("7", 0.5),
        exec_sec=10.0,
    )
    assert split_of(cold, {"5": 1.0}) == (5.0, 4.0, 1.0)


def test_a_warm_sampler_loads_nothing_even_if_its_first_step_was_quick() -> None:
    warm = run(Kind.WARM, sampler(4.0, 0.9, 1.0, 1.0, 1.0), exec_sec=4.0)
    assert split_of(warm, {"5": 1.0}) == (0.0, 4.0, 0.0)


def test_steps_of_a_node_that_samples_nothing_are_no_sampling() -> None:
    upscaled = run(Kind.WARM, stepped("6", 6.0, 3.0, 1.0, 1.0, 1.0), exec_sec=6.0)
    assert split_of(upscaled, {"6": 1.0}) == (2.0, 0.0, 4.0)


def test_without_the_servers_clock_the_nodes_are_the_whole() -> None:
    assert split_of(run(Kind.WARM, other("7", 0.5)), {}) == (0.0, 0.0, 0.5)


def test_what_was_not_heard_is_not_known() -> None:
    assert split_of(run(Kind.COLD, exec_sec=3.0), {}) == (None, None, None)


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
