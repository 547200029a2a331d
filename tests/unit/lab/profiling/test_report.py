"""A report sums runs up: medians of warm ones, loading from the cold one, the costliest node first."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from comfyui_agent.comfy.watch import Moment
from comfyui_agent.lab.payloads import Payload
from comfyui_agent.lab.profiling.profile import most_held
from comfyui_agent.lab.profiling.report import raw_lines, report_of
from comfyui_agent.lab.profiling.runs import Kind, Run
from comfyui_agent.lab.profiling.timeline import NodeTime
from comfyui_agent.lab.reports.environment import Environment, GpuSample
from support.graphs import node

GRAPH = {
    "1": node("CheckpointLoaderSimple", ckpt_name="model.safetensors"),
    "5": node("KSampler", seed=1) | {"_meta": {"title": "The sampler"}},
    "6": node("VAEDecode", samples=["5", 0]),
}
SERVER = "http://127.0.0.1:8188"


def sampler(loading: float, step: float) -> NodeTime:
    return NodeTime("5", "KSampler", loading + 3 * step, loading + step, 3, (step, step))


def run(kind: Kind, number: int, *nodes: NodeTime, cached: bool = False) -> Run:
    whole = sum(each.seconds for each in nodes)
    return Run(
        kind=kind,
        prompt_id=str(number),
        started_at="",
        seconds=10.0 * number,
        ended_seconds=10.0 * number + whole,
        duration_sec=whole + 0.5,
        exec_sec=whole,
        queue_sec=0.25,
        transfer_sec=0.125 * number,
        cached_nodes=frozenset(),
        cached=cached,
        nodes=nodes,
        moments=(Moment(10.0 * number, "start"), Moment(10.0 * number + 1, "step", "5", 1, 3)),
        peak_vram_mb=1000 + number,
    )


def sample(seconds: float, util: int | None = None, memory: int | None = None) -> GpuSample:
    moment = "2026-03-01T00:00:00.000Z"
    return GpuSample(ts=moment, seconds=seconds, gpu_util=util, gpu_mem_mb=memory, server=SERVER)


def profile_of(*runs: Run, samples: tuple[GpuSample, ...] = (), **facts: Any) -> Any:
    payload = Payload.of("portrait", GRAPH)
    known = {"idle_vram_mb": 100, "vram_total_mb": 8192, "warnings": [], "is_partial": False} | facts
    return SimpleNamespace(
        payload=payload,
        subject=SimpleNamespace(payload=payload),
        client=SimpleNamespace(address=SERVER),
        trace=SimpleNamespace(source="nvml", at=lambda moment: moment),
        runs=list(runs),
        samples=list(samples),
        **known,
    )


COLD = run(
    Kind.COLD, 0, NodeTime("1", "CheckpointLoaderSimple", 4.0), sampler(2.0, 1.5), NodeTime("6", "VAEDecode", 3.0)
)
WARM = [
    run(Kind.WARM, n, sampler(0.0, step), NodeTime("6", "VAEDecode", 1.0)) for n, step in ((1, 1.0), (2, 1.0), (3, 2.0))
]


def test_warm_figures_are_medians_and_loading_is_that_of_the_cold_run() -> None:
    report = report_of(profile_of(COLD, *WARM), Environment(kind="profile")).as_json()
    assert report["duration_sec"] == 4.5
    assert report["cold_duration_sec"] == 14.0
    assert report["sampling_sec"] == 3.0
    assert report["model_load_sec"] == 4.0 + 3.5 - 1.25  # a usual step takes 1.25 s: the median over all runs
    assert report["transfer_sec"] == 0.25
    assert report["peak_vram_mb"] == 1003
    assert report["fits_at_once"]["count"] == 8
    assert report["environment"] == {"kind": "profile"}


def test_nodes_come_by_their_cost_in_warm_runs() -> None:
    nodes = report_of(profile_of(COLD, *WARM), Environment()).as_json()["nodes"]
    assert [each["node_id"] for each in nodes] == ["5", "6", "1"]
    assert nodes[0] == {
        "node_id": "5",
        "class_type": "KSampler",
        "title": "The sampler",
        "cold_sec": 6.5,
        "warm_sec": 3.0,
        "share": 0.75,
        "steps": 3,
    }
    assert (nodes[2]["cold_sec"], nodes[2]["warm_sec"], nodes[2]["share"]) == (4.0, 0.0, 0.0)


def test_with_a_cold_run_alone_what_is_warm_is_not_known() -> None:
    report = report_of(profile_of(COLD, is_partial=True), Environment()).as_json()
    assert report["partial"] is True
    assert (report["duration_sec"], report["sampling_sec"]) == (None, None)
    assert report["cold_duration_sec"] == 14.0
    assert report["transfer_sec"] == 0.0
    assert [(each["node_id"], each["warm_sec"], each["share"]) for each in report["nodes"]] == [
        ("5", None, None),
        ("1", None, None),
        ("6", None, None),
    ]


def test_a_run_from_the_cache_is_shown_and_not_counted() -> None:
    cached = run(Kind.WARM, 4, NodeTime("6", "VAEDecode", 0.0), cached=True)
    report = report_of(profile_of(COLD, *WARM[:1], cached, cached), Environment()).as_json()
    assert report["duration_sec"] == 4.5
    assert [each["cached"] for each in report["runs"]] == [False, False, True, True]


def test_how_busy_the_card_was_counts_while_something_ran() -> None:
    samples = (sample(9.0, 3), sample(10.5, 90), sample(12.0, 100), sample(13.0, None), sample(19.0, 5))
    assert report_of(profile_of(WARM[0], samples=samples), Environment()).avg_gpu_util == 95.0
    assert report_of(profile_of(WARM[0], samples=samples[:1]), Environment()).avg_gpu_util is None


def test_the_most_that_was_held_is_of_the_stretch_alone() -> None:
    samples = [
        sample(0.5, memory=900),
        sample(1.0, memory=100),
        sample(2.0, memory=700),
        sample(3.0),
        sample(3.5, memory=999),
    ]
    assert most_held(samples, 1.0, 3.0) == 700
    assert most_held(samples, 2.5, 3.0) is None


def test_raw_lines_are_every_sample_and_every_moment() -> None:
    lines = list(raw_lines(profile_of(COLD, WARM[0], samples=(sample(0.5, 90, 700),))))
    assert lines[0] == {"kind": "gpu", **sample(0.5, 90, 700).as_json()}
    assert lines[-1] == {
        "kind": "moment",
        "run": 1,
        "run_kind": "warm",
        "prompt_id": "1",
        "seconds": 11.0,
        "moment": "step",
        "node_id": "5",
        "step": 1,
        "steps": 3,
    }
    assert len(lines) == 5
