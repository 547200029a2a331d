"""The knee: where it was put, and none where there is none."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest

from comfyui_agent.lab.load.document import Step, find_knee
from comfyui_agent.lab.reports.load import KneeFacts

UNIT = "prompts at once"


def ramp(rates: Sequence[float], success: Sequence[float] | None = None) -> list[Step]:
    success = success or [1.0] * len(rates)
    return [Step(number, *each) for number, each in enumerate(zip(rates, success, strict=True), start=1)]


def knee_of(rates: Sequence[float], success: Sequence[float] | None = None) -> KneeFacts | None:
    return find_knee(ramp(rates, success), 0.02, UNIT)


@pytest.mark.parametrize("put_at", range(1, 8))
def test_it_is_found_where_it_was_put(put_at: int) -> None:
    """`put_at` cards that each bring 20 pictures a minute: more prompts at once bring no more."""
    found = knee_of([20.0 * min(level, put_at) for level in range(1, 9)])
    assert found is not None
    assert found.level == put_at
    assert found.images_per_minute == 20.0 * put_at
    assert "flattens" in found.reason


def test_a_little_noise_moves_it_nowhere() -> None:
    found = knee_of([20.0, 40.5, 59.0, 60.0, 59.5, 60.4])
    assert found is not None
    assert found.level == 3


def test_while_throughput_rises_there_is_none() -> None:
    assert knee_of([20.0, 40.0, 60.0]) is None


def test_one_level_has_none() -> None:
    assert knee_of([20.0]) is None
    assert find_knee([], 0.02, UNIT) is None


def test_errors_end_it_even_if_throughput_rises() -> None:
    found = knee_of([20.0, 40.0, 60.0, 80.0], [1.0, 1.0, 0.5, 0.1])
    assert found is not None
    assert found.level == 2
    assert "errors rise after 2 prompts" in found.reason
    assert "50" in found.reason


def test_as_many_errors_as_are_allowed_are_none() -> None:
    assert knee_of([20.0, 40.0], [0.98, 0.98]) is None


def test_a_level_after_errors_counts_for_nothing() -> None:
    found = knee_of([20.0, 40.0, 10.0, 900.0], [1.0, 1.0, 0.9, 1.0])
    assert found is not None
    assert found.images_per_minute == 40.0


def test_where_nothing_works_there_is_no_knee() -> None:
    assert knee_of([0.0, 0.0]) is None
    assert knee_of([10.0, 10.0], [0.0, 1.0]) is None


def test_falling_throughput_is_a_knee_at_its_best() -> None:
    found = knee_of([30.0, 60.0, 40.0, 20.0])
    assert found is not None
    assert found.level == 2


def test_the_sentence_counts_from_what_was_reached() -> None:
    found = knee_of([50.0, 98.0, 100.0, 99.0])
    assert found is not None
    assert found.level == 2
    assert re.search(r"\b2(\.0)? ?% more", found.reason)
    assert found.as_json() == {"level": 2, "images_per_minute": 98.0, "unit": UNIT, "reason": found.reason}
