"""The seed decides how long each render takes and which ones fail."""

from __future__ import annotations

import random

import pytest

from comfyui_agent.sim.engine.pace import (
    AcceleratorError,
    InterruptProcessingException,
    RenderPace,
    SimulatedFailure,
)
from comfyui_agent.sim.settings import Duration, SimSettings
from support.simulation import MovedTime


def renders(seed: int, spec: str = "uniform:0.1:9", failure_rate: float = 0.4) -> list[tuple[float, bool]]:
    settings = SimSettings(render_seconds=Duration.parse(spec), failure_rate=failure_rate)
    pace = RenderPace(settings, random.Random(seed))
    return [pace.begin_render() for _ in range(50)]


@pytest.mark.parametrize("spec", ["uniform:0.1:9", "lognormal:4:0.5"])
def test_renders_repeat_with_the_seed(spec: str) -> None:
    assert renders(7, spec) == renders(7, spec) != renders(8, spec)
    assert len({seconds for seconds, _ in renders(7, spec)}) == 50
    assert {fails for _, fails in renders(7, spec)} == {True, False}


def test_none_fails_at_0_and_all_fail_at_1() -> None:
    assert {fails for _, fails in renders(7, failure_rate=0)} == {False}
    assert {fails for _, fails in renders(7, failure_rate=1)} == {True}


def test_a_render_fails_halfway_and_once() -> None:
    steps: list[int] = []
    pace = RenderPace(SimSettings(failure_rate=1), random.Random(1))
    pace.start_prompt(1, lambda _node, step, _most, _draw: steps.append(step))
    pace.enter("5")
    with pytest.raises(SimulatedFailure, match="node 5 was its choice"):
        pace.work(10, None)
    assert steps == [1, 2, 3, 4]
    pace.work(2, None)
    assert steps[4:] == [1, 2]


def test_an_interrupt_stops_a_wait_and_counts_once() -> None:
    pace = RenderPace(SimSettings(), random.Random(1))
    pace.interrupted.set()
    with pytest.raises(InterruptProcessingException):
        pace.sleep(60)
    pace.check_interrupt()


def test_a_model_takes_its_own_time_to_load_or_that_of_all_others() -> None:
    settings = SimSettings(model_load_seconds=Duration.parse("2"), load_seconds_of={"big": Duration.parse("8")})
    pace = RenderPace(settings, random.Random(1))
    pace.interrupted = time = MovedTime()
    for name in ("small", "big", "big"):
        pace.load_model(name)
    assert time.waits == [2, 8, 8]
    assert (pace.loads, pace.load_seconds) == (3, 18)


def test_a_load_that_is_interrupted_does_not_count() -> None:
    pace = RenderPace(SimSettings(model_load_seconds=Duration.parse("60")), random.Random(1))
    pace.interrupted.set()
    with pytest.raises(InterruptProcessingException):
        pace.load_model("ink")
    assert (pace.loads, pace.load_seconds) == (0, 0)


def test_without_its_cuda_context_nothing_renders_any_more() -> None:
    pace = RenderPace(SimSettings(cuda_lost_after=1), random.Random(1))
    pace.start_prompt(0, lambda *_: None)
    pace.enter("1")
    for _ in range(2):
        pace.start_prompt(0, lambda *_: None)
        with pytest.raises(AcceleratorError, match=r"^CUDA error: an illegal memory access was encountered\n"):
            pace.enter("1")
