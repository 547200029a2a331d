"""How a SPEC on the command line becomes seconds."""

from __future__ import annotations

import random
import statistics

import pytest

from comfyui_agent.sim.settings import AT_ONCE, LONGEST, Duration


def draws(spec: str, seed: int = 1, count: int = 500) -> list[float]:
    dice = random.Random(seed)
    duration = Duration.parse(spec)
    return [duration.draw(dice) for _ in range(count)]


@pytest.mark.parametrize(("spec", "seconds"), [("0", 0.0), ("0.5", 0.5), ("3", 3.0), ("1e-3", 0.001)])
def test_a_plain_number_is_always_that_many_seconds(spec: str, seconds: float) -> None:
    assert set(draws(spec)) == {seconds}


def test_a_uniform_duration_stays_between_its_ends_and_reaches_towards_both() -> None:
    seconds = draws("uniform:2:4")
    assert min(seconds) >= 2
    assert max(seconds) <= 4
    assert min(seconds) < 2.1
    assert max(seconds) > 3.9


def test_a_lognormal_duration_has_the_median_it_was_given() -> None:
    seconds = draws("lognormal:4:0.3")
    assert min(seconds) > 0
    assert statistics.median(seconds) == pytest.approx(4, rel=0.1)


def test_a_lognormal_duration_around_nothing_is_nothing() -> None:
    assert set(draws("lognormal:0:1")) == {0.0}


def test_a_wild_lognormal_duration_ends_some_day() -> None:
    assert max(draws("lognormal:1:1000")) == pytest.approx(LONGEST)


@pytest.mark.parametrize("spec", ["uniform:0:9", "lognormal:4:0.5"])
def test_the_same_seed_draws_the_same_seconds(spec: str) -> None:
    assert draws(spec, seed=7) == draws(spec, seed=7)
    assert draws(spec, seed=7) != draws(spec, seed=8)


def test_a_bad_spec_is_refused_with_the_forms_that_would_be_right() -> None:
    specs = [
        "",
        "fast",
        "1s",
        "-1",
        "nan",
        "inf",
        "1e300",
        "1:",
        "1:2",
        "fixed:1:2",
        "uniform",
        "uniform:",
        "uniform:1",
        "uniform:2:1",
        "uniform:1:2:3",
        "uniform:-1:1",
        "uniform:a:b",
        "lognormal:1",
        "lognormal:-1:1",
        "lognormal:1:nan",
        "gauss:1:2",
    ]
    for spec in specs:
        with pytest.raises(ValueError) as refusal:
            pytest.fail(f"{spec!r} is {Duration.parse(spec)}")
        for part in ("is not a duration", repr(spec), "uniform:A:B"):
            assert part in str(refusal.value), spec


def test_the_default_takes_no_time() -> None:
    assert AT_ONCE.draw(random.Random(1)) == 0
