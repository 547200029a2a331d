"""How fast it goes and how long it will take, as people say it."""

from __future__ import annotations

import pytest

from comfyui_agent.domain.pace import ENOUGH, WINDOW_SECONDS, Pace, duration_of, rate_of


def pace_of(*moments: float) -> Pace:
    pace = Pace()
    for moment in moments:
        pace.count(moment)
    return pace


def test_nothing_is_said_until_there_is_enough_to_tell_by() -> None:
    for moments in [(), (1.0,), (1.0, 2.0)]:
        assert len(moments) < ENOUGH, moments
        assert pace_of(*moments).per_second(3.0) is None, moments


def test_the_pace_is_results_by_the_time_since_the_first() -> None:
    assert pace_of(0.0, 10.0, 20.0).per_second(20.0) == pytest.approx(0.1)
    assert pace_of(*(number / 10 for number in range(101))).per_second(10.0) == pytest.approx(10.0)


def test_a_pause_slows_it_down() -> None:
    pace = pace_of(0.0, 1.0, 2.0)
    early, late = pace.per_second(2.0), pace.per_second(200.0)
    assert early is not None
    assert late is not None
    assert late == pytest.approx(0.01)
    assert early == pytest.approx(1.0)


def test_what_is_long_ago_counts_no_more() -> None:
    pace = pace_of(*(float(number) for number in range(100)), 1000.0, 1001.0, 1002.0)
    assert pace.per_second(1002.0) == pytest.approx(1.0)
    later = pace.per_second(1002.0 + 2 * WINDOW_SECONDS)
    assert later is not None
    assert later < 0.01


def test_results_at_one_moment_are_no_division_by_zero() -> None:
    found = pace_of(5.0, 5.0, 5.0).per_second(5.0)
    assert found is not None
    assert found > 0
    assert pace_of(5.0, 5.0, 5.0).per_second(4.0) is not None


def test_very_many_results_are_not_all_remembered() -> None:
    pace = pace_of(*(number / 1000 for number in range(100_000)))
    assert pace.per_second(99.999) == pytest.approx(1000.0, rel=0.01)
    assert len(pace._moments) <= 5000


def test_films_of_three_minutes_have_a_pace_too() -> None:
    pace = pace_of(*(180.0 * number for number in range(20)))
    assert pace.per_second(180.0 * 19) == pytest.approx(1 / 180)


def test_a_rate_is_said_in_the_unit_that_reads_best() -> None:
    for per_second, text in [
        (2.0, "2.0 images/s"),
        (123.456, "123.5 images/s"),
        (1.99, "119.4 images/min"),
        (1 / 60, "1.0 images/min"),
        (0.001, "0.1 images/min"),
    ]:
        assert rate_of(per_second) == text, (per_second, text)


def test_a_duration_is_said_as_people_say_it() -> None:
    for seconds, text in [
        (0, "1 s"),
        (0.2, "1 s"),
        (40, "40 s"),
        (89.4, "89 s"),
        (90, "2 min"),
        (12 * 60, "12 min"),
        (89 * 60, "89 min"),
        (90 * 60, "1 h 30 min"),
        (3 * 3600 + 20 * 60, "3 h 20 min"),
        (119.6 * 60, "2 h 0 min"),
        (47 * 3600 + 59 * 60, "47 h 59 min"),
        (48 * 3600, "2 d 0 h"),
        (52 * 3600, "2 d 4 h"),
        (400 * 86400, "400 d 0 h"),
    ]:
        assert duration_of(seconds) == text, (seconds, text)
