"""A report sums runs up: medians of warm ones, loading from the cold one, the costliest node first."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from comfyui_agent.comfy.watch import Moment
from comfyui_agent.lab.payloads import Payload
from comfyui_agent.lab.profiling.profile import most_held
from comfyui_agent.lab.profiling.report import fits_at_once, raw_lines, report_of
from comfyui_agent.lab.profiling.runs import Kind
from comfyui_agent.lab.reports.environment import GpuSample, ServerFacts
from comfyui_agent.lab.reports.profile import NodeSeconds, RunFigures
from support.graphs import node

GRAPH = {
    "1": node("CheckpointLoaderSimple", ckpt_name="model.safetensors"),
    "5": node("KSampler", seed=1) | {"_meta": {"title": "The sampler"}},
    "6": node("VAEDecode", samples=["5", 0]),
}
SERVER = "http://127.0.0.1:8188"
CLOCK = SimpleNamespace(seconds=0.0, seconds_of=lambda moment: moment, at=lambda _: "2026-03-01T00:00:00.000Z")


def other(node_id: str, seconds: float) -> NodeSeconds:
    return NodeSeconds(node_id=node_id, seconds=seconds)


def sampler(loading: float, step: float) -> NodeSeconds:
    times = {"seconds": loading + 3 * step, "first_step_sec": loading + step}
    return NodeSeconds(node_id="5", steps=3, step_gaps=[step, step], **times)


def run(kind: Kind, number: int, *nodes: NodeSeconds, cached: bool = False) -> RunFigures:
    whole = sum(each.seconds or 0.0 for each in nodes)
    return RunFigures(
        kind=kind,
        prompt_id=str(number),
        seconds=10.0 * number,
        duration_sec=whole + 0.5,
        exec_sec=whole,
        transfer_sec=0.125 * number,
        cached=cached,
        nodes=nodes,
        peak_vram_mb=1000 + number,
    )


def sample(seconds: float, util: int | None = None, memory: int | None = None) -> GpuSample:
    moment = "2026-03-01T00:00:00.000Z"
    return GpuSample(ts=moment, seconds=seconds, gpu_util=util, gpu_mem_mb=memory, server=SERVER)


def profile_of(*runs: RunFigures, samples: tuple[GpuSample, ...] = (), is_partial: bool = False) -> Any:
    trace = SimpleNamespace(source="nvml", clock=CLOCK, samples=samples)
    starts = [run.seconds or 0.0 for run in runs]
    return SimpleNamespace(
        payload=Payload.of("portrait", GRAPH),
        client=SimpleNamespace(address=SERVER),
        trace=trace,
        runs=list(runs),
        moments=[(Moment(at, "start"), Moment(at + 1, "step", "5", 1, 3)) for at in starts],
        wanted=len(runs),
        timeout=9.0,
        idle_vram_mb=100,
        vram_total_mb=8192,
        warnings=[],
        is_partial=is_partial,
    )


def report(*runs: RunFigures, **facts: Any) -> dict[str, Any]:
    return report_of(profile_of(*runs, **facts), ServerFacts(server=SERVER)).as_json()


COLD = run(Kind.COLD, 0, other("1", 4.0), sampler(2.0, 1.5), other("6", 3.0))
WARM = [run(Kind.WARM, n, sampler(0.0, step), other("6", 1.0)) for n, step in ((1, 1.0), (2, 1.0), (3, 2.0))]


def test_warm_figures_are_medians_and_loading_is_that_of_the_cold_run() -> None:
    found = report(COLD, *WARM)
    assert found["duration_sec"] == 4.5
    assert found["cold_duration_sec"] == 14.0
    assert found["sampling_sec"] == 3.0
    assert found["model_load_sec"] == 4.0 + 3.5 - 1.25  # a usual step takes 1.25 s: the median over all runs
    assert found["transfer_sec"] == 0.25
    assert found["peak_vram_mb"] == 1003
    assert found["fits_at_once"]["count"] == 8
    assert found["environment"]["kind"] == "profile"
    assert found["environment"]["servers"] == [{"server": SERVER}]


def test_nodes_come_by_their_cost_in_warm_runs() -> None:
    nodes = report(COLD, *WARM)["nodes"]
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
    found = report(COLD, is_partial=True)
    assert found["partial"] is True
    assert (found["duration_sec"], found["sampling_sec"]) == (None, None)
    assert found["cold_duration_sec"] == 14.0
    assert found["transfer_sec"] == 0.0
    assert [(each["node_id"], each["warm_sec"], each["share"]) for each in found["nodes"]] == [
        ("5", None, None),
        ("1", None, None),
        ("6", None, None),
    ]


def test_a_run_from_the_cache_is_shown_and_not_counted() -> None:
    cached = run(Kind.WARM, 4, other("6", 0.0), cached=True)
    found = report(COLD, *WARM[:1], cached, cached)
    assert found["duration_sec"] == 4.5
    assert [each["cached"] for each in found["runs"]] == [False, False, True, True]


def test_how_busy_the_card_was_counts_while_something_ran() -> None:
    samples = (sample(9.0, 3), sample(10.5, 90), sample(12.0, 100), sample(13.0, None), sample(19.0, 5))
    assert report(WARM[0], samples=samples)["avg_gpu_util"] == 95.0
    assert report(WARM[0], samples=samples[:1])["avg_gpu_util"] is None


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


@pytest.mark.parametrize(
    ("peak", "total", "count"),
    [(4096, 24_576, 6), (5000, 24_576, 4), (12_289, 24_576, 1), (12_288, 24_576, 2), (24_576, 24_576, 1)],
)
def test_servers_fit_side_by_side_as_often_as_their_peak_does(peak: int, total: int, count: int) -> None:
    found = fits_at_once(peak, total)
    assert found.count == count
    assert f"{peak:,} MB of {total:,} MB" in found.sentence
    assert "one at a time" in found.sentence
    assert found.sentence.startswith("One such server fits" if count == 1 else f"{count} such servers fit")


@pytest.mark.parametrize(("peak", "total"), [(None, 24_576), (4096, None), (0, 24_576), (None, None)])
def test_without_knowledge_nothing_is_claimed(peak: int | None, total: int | None) -> None:
    found = fits_at_once(peak, total)
    assert found.as_json() == {"count": None, "sentence": found.sentence}
    assert "not known" in found.sentence
