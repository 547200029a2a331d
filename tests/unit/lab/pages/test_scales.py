"""Scales with round ticks, and points thinned without losing an extreme."""

from __future__ import annotations

import math
import random

import pytest

from comfyui_agent.lab.pages import scales
from comfyui_agent.lab.pages.marks import thinned


def test_a_scale_puts_its_ends_at_its_places() -> None:
    scale = scales.fitted(0, 50, 200, 20)
    assert [scale(0), scale(25), scale(50)] == [200, 110, 20]


def test_ticks_are_round_numbers_that_hold_the_values() -> None:
    scale = scales.fitted(0, 47.3, 0, 100)
    assert scale.ticks == (0, 10, 20, 30, 40, 50)
    small = scales.fitted(0, 0.31, 0, 100)
    assert [small.text(tick) for tick in small.ticks] == ["0.0", "0.1", "0.2", "0.3", "0.4"]


def test_a_tight_scale_ends_at_the_values_and_its_ticks_lie_inside() -> None:
    scale = scales.fitted(3, 47, 0, 100, is_tight=True)
    assert (scale.low, scale.high, scale.ticks) == (3, 47, (10, 20, 30, 40))


def test_what_lies_beyond_a_scale_is_drawn_at_its_end() -> None:
    scale = scales.fitted(0, 10, 0, 100)
    assert [scale(-5), scale(99)] == [0, 100]


@pytest.mark.parametrize("is_tight", [True, False])
@pytest.mark.parametrize(
    ("low", "high"),
    [(0, 0), (5, 5), (-3, -3), (0, 1e-9), (0, 1e15), (-1e15, 1e15), (1e15, 1e15 + 1), (0.1, 0.1), (7, -7)],
)
def test_any_values_make_a_scale_with_few_ticks(low: float, high: float, is_tight: bool) -> None:
    scale = scales.fitted(low, high, 0, 100, most=6, is_tight=is_tight)
    assert 1 <= len(scale.ticks) <= 8
    assert scale.low < scale.high
    assert all(math.isfinite(scale(value)) and 0 <= scale(value) <= 100 for value in (low, high, 0, *scale.ticks))


def test_zero_has_no_minus() -> None:
    assert "-0" not in [text for low in (-0.5, -5, -50) for text in map(str, scales.fitted(low, 3, 0, 9).ticks)]
    assert scales.fitted(-1, 1, 0, 9).text(-0.0) == "0.0"


def test_few_points_are_all_drawn_in_order() -> None:
    assert thinned([(2, 5), (1, 7)], most=10) == [(1, 7), (2, 5)]


def test_thinning_keeps_the_extremes_and_the_ends() -> None:
    chance = random.Random(1)
    points = [(float(at), chance.random()) for at in range(20_000)]
    points[777], points[15_432] = (777.0, 50.0), (15_432.0, -50.0)
    kept = thinned(points, most=1_000)
    assert len(kept) <= 1_000
    assert kept == sorted(kept)
    assert {points[0], points[-1], (777.0, 50.0), (15_432.0, -50.0)} <= set(kept)
    assert set(kept) <= set(points)


def test_every_stretch_keeps_its_own_extremes() -> None:
    points = [(float(at), 9.0 if at % 100 == 50 else 1.0) for at in range(10_000)]
    assert sum(value == 9.0 for _, value in thinned(points, most=202)) == 100


@pytest.mark.parametrize(
    ("longest", "label", "at_an_hour"),
    [(300, "Time (s)", 3600.0), (301, "Time (min)", 60.0), (20_000, "Time (h)", 1.0)],
)
def test_time_is_in_the_unit_that_gives_round_numbers(longest: float, label: str, at_an_hour: float) -> None:
    unit = scales.time_unit(longest)
    assert f"Time ({unit.name})" == label
    assert unit.points([(3600.0, 7.0)]) == [(at_an_hour, 7.0)]
