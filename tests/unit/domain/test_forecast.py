"""Forecasts: measured seconds, loads, what stands in front, and no answer where nobody can know."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from comfyui_agent.domain.forecast import Backlog, Running, Speeds, Waiting, Work, WorkingServer, seconds_left
from comfyui_agent.domain.needs import Timing

Described = tuple[str, str, int, str]
STAY = 120.0
FAST, SLOW = "http://fast", "http://slow"
INK, OIL = ("ink-512", "portrait", 512, "ink"), ("oil-512", "portrait", 512, "oil")


def timed(work: Described, server: str, seconds: float | None, cold: float | None = None) -> Timing:
    runs, loads = int(seconds is not None), int(cold is not None)
    needs, workflow, pixels, model_set = work
    return Timing(needs, server, workflow, pixels, model_set, runs, seconds, loads, cold)


MEASURED = (timed(INK, FAST, 1.0, 5.0), timed(INK, SLOW, 2.0, 8.0), timed(OIL, FAST, 3.0, 10.0))


def some(jobs: int, work: Described = INK, *, first: int = 1, priority: int = 50, is_asked: bool = True) -> Waiting:
    return Waiting(*work, priority, jobs, first, first + jobs - 1, is_asked)


def left(
    *waiting: Waiting,
    running: tuple[Running, ...] = (),
    timings: tuple[Timing, ...] = MEASURED,
    stay: float = STAY,
    **servers: str | None,
) -> float | None:
    loaded = {name.replace("_", "://"): WorkingServer(model_set) for name, model_set in servers.items()}
    return seconds_left(Backlog(waiting, running, loaded, timings), stay)


@pytest.mark.parametrize(
    ("found", "seconds"),
    [
        (left(some(10), http_fast="ink"), 10.0),
        (left(some(10), http_fast="oil"), 14.0),
        (left(some(10), http_fast=None), 14.0),
        (left(some(9), http_fast="ink", http_slow="ink"), 6.0),
        (left(some(10), some(2, OIL, first=11), http_fast="ink"), 10.0 + 7.0 + 6.0),
        (left(some(10), running=(Running(*OIL, FAST, False, 2.0),), http_fast="oil"), 1.0 + 14.0),
        (left(some(1), running=(Running(*INK, FAST, False, 9.0),), http_fast="ink"), 1.0),
        (left(running=(Running(*INK, FAST, True, 2.0),), http_fast="ink"), 3.0),
        (left(some(10), some(10, priority=1, is_asked=False), http_fast="ink"), 20.0),
        (left(some(10), some(10, priority=99, is_asked=False), http_fast="ink"), 10.0),
        (left(some(10), some(10, first=11, is_asked=False), http_fast="ink"), 10.0),
        (left(Waiting(*INK, 50, 1, 1, 1, after=30.0), http_fast="ink"), 30.0),
    ],
)
def test_the_time_is_that_of_renders_loads_and_what_comes_before(found: float | None, seconds: float) -> None:
    assert found == pytest.approx(seconds)


def test_a_set_is_gone_on_with_until_the_oldest_job_has_waited_long_enough() -> None:
    asked, others = some(1, OIL, first=1), some(100, first=2, is_asked=False)
    assert left(asked, others, stay=20.0, http_fast="ink") == pytest.approx(20.0 + 7.0 + 3.0)
    assert left(asked, others, stay=0.0, http_fast="ink") == pytest.approx(7.0 + 3.0)


@pytest.mark.parametrize(
    ("work", "server", "seconds"),
    [
        (INK, SLOW, 2.0),
        (INK, "http://new", 1.5),
        (OIL, SLOW, 2.0),
        (("ink-1024", "portrait", 1024, "ink"), FAST, 2.0),
        (("ink-poster", "poster", 512, "ink"), FAST, 1.5),
        (("?", "?", 0, "?"), FAST, 2.0),
    ],
)
def test_what_was_not_measured_takes_as_long_as_what_is_most_like_it(
    work: Described, server: str, seconds: float
) -> None:
    assert Speeds(MEASURED).render(Work(*work), server) == pytest.approx(seconds)


def test_a_load_is_what_a_render_takes_longer_with_it() -> None:
    speeds = Speeds((*MEASURED, timed(("oil-1024", "portrait", 1024, "oil"), SLOW, None, 12.0)))
    assert (speeds.load("ink", FAST), speeds.load("ink", SLOW)) == (4.0, 6.0)
    assert speeds.load("oil", SLOW) == pytest.approx(10.0)  # beside renders of that workflow, of two seconds
    assert Speeds((timed(INK, FAST, 9.0, 8.0),)).load("ink", FAST) == 0.0


@pytest.mark.parametrize(
    "found",
    [
        left(http_fast="ink"),
        left(some(10)),
        left(some(10), timings=(), http_fast="ink"),
        left(some(10), timings=(timed(INK, FAST, None, 9.0),), http_fast="ink"),
    ],
    ids=["nothing left", "no server", "nothing measured", "only loads measured"],
)
def test_what_nobody_can_know_is_not_foretold(found: float | None) -> None:
    assert found is None


def test_a_server_that_passed_jobs_over_is_not_counted_on() -> None:
    """It was given job 50 while job 1 waited. If it noted that it overtook job 1, it can run it later."""
    able, unable = WorkingServer("ink", 50, 50, overtaken_job=1), WorkingServer("ink", 50, 50)
    oil = [some(10, OIL, first=1)]
    assert seconds_left(Backlog(oil, (), {FAST: able}, MEASURED), STAY) == pytest.approx(7.0 + 30.0)
    assert seconds_left(Backlog(oil, (), {FAST: unable}, MEASURED), STAY) is None
    both = {FAST: unable, SLOW: WorkingServer("oil")}
    assert seconds_left(Backlog(oil, (), both, MEASURED), STAY) == pytest.approx(20.0)
    held = [Waiting(*OIL, 50, 1, 1, 1, after=0.0)]  # it could not be given to anyone then
    assert seconds_left(Backlog(held, (), {FAST: unable}, MEASURED), STAY) == pytest.approx(7.0 + 3.0)


def test_a_million_jobs_are_foretold_as_well_as_a_few() -> None:
    assert left(some(1_000_000), http_fast="ink", http_slow="ink") == pytest.approx(1_000_000 / 1.5, rel=0.01)


NUMBERS, ROUNDING = st.integers(1, 250), 1e-6
SECONDS = st.floats(0.01, 100.0)


@settings(max_examples=40)
@given(jobs=NUMBERS, more=NUMBERS, oil=NUMBERS, fast=SECONDS, slow=SECONDS, load=SECONDS, stay=st.floats(0.0, 500.0))
def test_it_is_never_negative_and_more_jobs_never_end_earlier(
    jobs: int, more: int, oil: int, fast: float, slow: float, load: float, stay: float
) -> None:
    timings = (timed(INK, FAST, fast, fast + load), timed(INK, SLOW, slow, slow + load), timed(OIL, SLOW, slow))
    few = left(some(jobs), timings=timings, stay=stay, http_fast="ink", http_slow="oil")
    many = left(some(jobs + more), timings=timings, stay=stay, http_fast="ink", http_slow="oil")
    later = left(some(jobs), some(oil, OIL, priority=60), timings=timings, stay=stay, http_fast="ink", http_slow="oil")
    assert few is not None
    assert many is not None
    assert later is not None
    assert 0.0 < few <= min(many, later) + ROUNDING
