"""What fits on a card at once is said in a sentence."""

from __future__ import annotations

import pytest

from comfyui_agent.lab.profiling.capacity import fits_at_once


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
