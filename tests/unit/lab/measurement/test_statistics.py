"""Percentiles are those of numpy, linear between neighbours."""

from __future__ import annotations

import pytest

from comfyui_agent.lab.load.measurement import percentile


@pytest.mark.parametrize(
    ("share", "expected"), [(0.0, 1.0), (0.25, 2.0), (0.5, 3.0), (0.9, 8.2), (0.95, 9.6), (0.99, 10.72), (1.0, 11.0)]
)
def test_a_percentile_lies_between_its_neighbours(share: float, expected: float) -> None:
    assert percentile([11.0, 1.0, 3.0, 2.0, 4.0], share) == pytest.approx(expected)


def test_every_percentile_of_one_value_is_that_value() -> None:
    assert [percentile([7.5], share) for share in (0.0, 0.5, 0.99, 1.0)] == [7.5] * 4
