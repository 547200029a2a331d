"""Forecasts: measured seconds, loads, what comes before, and no answer where nobody can know."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from comfyui_agent.domain.forecast import Schedule, Work

STAY = 120.0
RENDERS = {"fast": {"ink": 1.0, "oil": 3.0}, "slow": {"ink": 2.0, "oil": 6.0}}
LOADS = {"ink": 4.0, "oil": 7.0}


def some(
    jobs: float, models: str = "ink", *, priority: int = 50, is_later: bool = False, **at: str | None
) -> list[Work]:
    """Jobs that the named servers can run, each with the models that it has loaded."""
    kind = (priority, models, models, is_later, jobs)
    found = [Work(*kind, server, loaded, RENDERS[server][models], LOADS[models]) for server, loaded in at.items()]
    return found or [Work(*kind, "", None, 0.001, 0.0)]


def left(*work: list[Work], stay: float = STAY) -> float | None:
    return Schedule([each for kind in work for each in kind], stay).seconds()


@pytest.mark.parametrize(
    ("found", "seconds"),
    [
        (left(some(10, fast="ink")), 10.0),
        (left(some(9.5, fast="ink")), 9.5),
        (left(some(10, fast="oil")), 14.0),
        (left(some(10, fast=None)), 14.0),
        (left(some(9, fast="ink", slow="ink")), 6.0),
        (left(some(1_000_000, fast="ink", slow="ink")), 1_000_000 / 1.5),
        (left(some(10, fast="ink"), some(2, "oil", fast="ink")), 10.0 + 7.0 + 6.0),
        (left(some(10, fast="ink"), some(2, "oil", priority=1, fast="ink")), 7.0 + 6.0 + 4.0 + 10.0),
        (left(some(4, fast="ink", slow="oil"), some(1, "oil", fast="ink", slow="oil")), 6.0),
        (left(some(4, fast="ink"), some(1, "oil", slow="oil")), 6.0),
        (left(some(4, fast=None, slow=None), some(1, "oil", fast=None, slow=None)), 7.0 + 6.0),
        (left(some(10, fast="ink"), some(10, is_later=True, fast="ink")), 10.0),
    ],
)
def test_the_time_is_that_of_renders_and_loads(found: float | None, seconds: float) -> None:
    assert found == pytest.approx(seconds)


@pytest.mark.parametrize(("stay", "overtaken"), [(20.0, 20.0), (0.0, 0.0), (500.0, 100.0)])
def test_later_jobs_whose_models_are_loaded_overtake_for_a_while(stay: float, overtaken: float) -> None:
    asked, later = some(1, "oil", fast="ink"), some(100, is_later=True, fast="ink")
    assert left(asked, later, stay=stay) == pytest.approx(overtaken + 7.0 + 3.0)


@pytest.mark.parametrize(
    "found",
    [left(), left(some(10)), left(some(10), some(5, "oil", fast="oil")), left(some(10, is_later=True, fast="ink"))],
    ids=["nothing left", "no server", "no server for some", "nothing asked for"],
)
def test_what_nobody_can_know_is_not_foretold(found: float | None) -> None:
    assert found is None


NUMBERS, ROUNDING = st.integers(1, 250), 1e-6


@settings(max_examples=40)
@given(jobs=NUMBERS, more=NUMBERS, oil=NUMBERS, stay=st.floats(0.0, 500.0))
def test_it_is_never_negative_and_more_jobs_never_end_earlier(jobs: int, more: int, oil: int, stay: float) -> None:
    few = left(some(jobs, fast="ink", slow="oil"), stay=stay)
    many = left(some(jobs + more, fast="ink", slow="oil"), stay=stay)
    both = left(some(jobs, fast="ink", slow="oil"), some(oil, "oil", priority=60, fast="ink", slow="oil"), stay=stay)
    assert few is not None
    assert many is not None
    assert both is not None
    assert 0.0 < few <= min(many, both) + ROUNDING
