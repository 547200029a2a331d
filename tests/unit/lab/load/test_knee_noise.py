"""The knee of a server whose renders take now longer, now shorter: chance moves it seldom, a real one is found."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from comfyui_agent.config.settings import Sla
from comfyui_agent.lab.load.document import Step, build_report, find_knee
from comfyui_agent.lab.load.measurement import LevelRun, LoadRun, short_figures
from comfyui_agent.lab.load.plan import LoadPlan, Mode
from comfyui_agent.lab.measurement.machine import RunClock
from comfyui_agent.lab.payloads import Payload
from comfyui_agent.lab.reports.environment import ServerFacts
from comfyui_agent.lab.reports.load import Row, RowStatus

PAGE = Payload.of("page", {"1": {"class_type": "X", "inputs": {"seed": 1}}})
SIGMA = 0.2
TRIES = 100


def ends_in_line(level: int, most: int, jobs: int, chance: random.Random) -> Iterator[tuple[float, str]]:
    """When the prompts of a level end, and where, if so many at once bring so many times the throughput of one."""
    now = 0.0
    for _ in range(jobs):
        now += chance.lognormvariate(0.0, SIGMA) / min(level, most)
        yield now, "http://a"


def ends_apart(level: int, most: int, jobs: int, chance: random.Random) -> Iterator[tuple[float, str]]:
    """The same at `most` servers, each of which renders one prompt after another."""
    free = [0.0] * min(level, most)
    for _ in range(jobs):
        which = free.index(min(free))
        free[which] += chance.lognormvariate(0.0, SIGMA)
        yield free[which], f"http://{which}"


Model = Callable[[int, int, int, random.Random], Iterator[tuple[float, str]]]


def level_run(level: int, ends: Sequence[tuple[float, str]], is_whole: bool = True) -> LevelRun:
    """What a closed loop sees: each prompt is sent when the one that is `level` before it ends."""
    moments = sorted(moment for moment, _ in ends)
    sent = [0.0] * level + moments
    row = {"status": RowStatus.COMPLETED, "level": level, "images": 1}
    rows = [
        Row.model_validate(row | {"index": number, "server": server, "seconds": begun, "duration_sec": moment - begun})
        for number, ((moment, server), begun) in enumerate(zip(sorted(ends), sent, strict=False))
    ]
    return LevelRun(level, tuple(rows), moments[-1] if moments else 0.0, is_whole)


def step(run: LevelRun) -> Step:
    found = short_figures(run.rows, run.wall_clock_sec)
    return Step(run.level, found["images_per_minute"], found["success_rate"], run.noise)


def found_at(put_at: int, levels: Sequence[int], model: Model, jobs: Callable[[int], int]) -> list[float | None]:
    """Where the knee is found in so many ramps."""
    places: list[float | None] = []
    for seed in range(TRIES):
        chance = random.Random(seed)
        steps = [step(level_run(level, list(model(level, put_at, jobs(level), chance)))) for level in levels]
        knee = find_knee(steps, 0.02, "prompts at once")
        places.append(None if knee is None else knee.level)
    return places


def planned(level: int) -> int:
    """As many prompts as a level has if nothing else is said; twenty at least."""
    jobs = LoadPlan(("http://a",), (PAGE,)).jobs_of(level)
    assert jobs is not None
    assert jobs >= 20
    return jobs


@pytest.mark.slow
@pytest.mark.parametrize("jobs", [planned, lambda _: 40], ids=["as planned", "40"])
def test_chance_makes_no_knee_of_a_server_that_renders_one_at_a_time(jobs: Callable[[int], int]) -> None:
    assert found_at(1, range(1, 9), ends_in_line, jobs).count(1) >= 90


@pytest.mark.parametrize("jobs", [planned, lambda _: 20, lambda _: 40], ids=["as planned", "20", "40"])
def test_a_real_knee_is_found_where_it_is(jobs: Callable[[int], int]) -> None:
    assert found_at(4, (1, 2, 4, 8, 16), ends_in_line, jobs).count(4) >= 90


def test_four_servers_have_their_knee_at_four() -> None:
    assert found_at(4, (1, 2, 4, 8, 16), ends_apart, lambda _: 60).count(4) >= 90


def test_noise_is_the_standard_error_of_the_throughput() -> None:
    """By drawing the same level again and again: the spread of what is measured."""
    chance = random.Random(7)
    runs = [level_run(1, list(ends_in_line(1, 1, 50, chance))) for _ in range(400)]
    rates = [step(run).images_per_minute for run in runs]
    mean = sum(rates) / len(rates)
    spread = (sum((rate - mean) ** 2 for rate in rates) / len(rates)) ** 0.5 / mean
    assert sum(run.noise for run in runs) / len(runs) == pytest.approx(spread, rel=0.1)


def test_a_level_that_is_too_small_to_tell_has_no_noise() -> None:
    assert level_run(1, []).noise == 0.0
    assert level_run(1, [(1.0, "http://a")]).noise == 0.0
    assert level_run(1, [(1.0, "http://a"), (2.0, "http://a")]).noise == 0.0


def test_steady_servers_are_not_called_unsteady_because_they_do_not_keep_step() -> None:
    """Each renders once a second, the second a moment after the first."""
    apart = [(float(second) + late, server) for second in range(20) for late, server in ((0, "a"), (0.01, "b"))]
    assert level_run(2, apart).noise == pytest.approx(0.0, abs=1e-9)


# Levels that were never reached.


class Trace:
    samples: tuple[Any, ...] = ()
    source = "none"


def knee_of(levels: Sequence[LevelRun], mode: Mode = Mode.CLOSED) -> Any:
    plan = LoadPlan(("http://a",), (PAGE,), mode, tuple(run.level for run in levels))
    run = LoadRun(plan, RunClock(), [ServerFacts(server="http://a")], Trace(), list(levels), [])  # type: ignore[arg-type]
    return build_report(run, Sla()).summary.knee


def steady(level: int, rate: float, jobs: int) -> LevelRun:
    return level_run(level, [((number + 1) / rate, "http://a") for number in range(jobs)])


def test_a_level_with_fewer_prompts_than_at_once_is_no_part_of_the_knee() -> None:
    reached = [steady(1, 1.0, 12), steady(2, 2.0, 12), steady(4, 2.0, 12)]
    never = steady(16, 9.0, 12)
    assert knee_of([*reached, never]).level == 2
    assert knee_of([*reached, steady(16, 9.0, 16)]) is None  # it was reached, and throughput still rose


def test_a_rate_and_books_are_no_numbers_of_prompts_at_once() -> None:
    levels = [steady(60, 1.0, 12), steady(120, 2.0, 12), steady(240, 2.0, 12)]
    assert knee_of(levels, Mode.OPEN).level == 120
