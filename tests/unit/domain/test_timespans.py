"""Spans of time as people type them."""

from __future__ import annotations

import pytest

from comfyui_agent.domain.timespans import timespan


@pytest.mark.parametrize(
    ("text", "seconds"), [("30s", 30), ("5m", 300), ("12h", 43_200), ("1d", 86_400), ("2w", 1_209_600), ("0d", 0)]
)
def test_a_number_and_a_unit_are_so_many_seconds(text: str, seconds: int) -> None:
    assert timespan(text) == seconds


@pytest.mark.parametrize("text", ["", "d", "1", "-1d", "1.5h", "1 d", "1D", "1d\n", "9999999d", "\u0661d", "1d1d"])
def test_anything_else_is_refused_with_what_would_be_right(text: str) -> None:
    with pytest.raises(ValueError, match="such as 30m"):
        timespan(text)
