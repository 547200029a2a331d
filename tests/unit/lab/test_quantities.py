"""Quantities as people read them."""

from __future__ import annotations

import pytest

from comfyui_agent.lab import quantities
from comfyui_agent.lab.quantities import DASH, MINUS


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, DASH),
        (0, "0 s"),
        (0.0042, "4.2 ms"),
        (0.043, "43 ms"),
        (0.43, "0.430 s"),
        (4.314, "4.31 s"),
        (38.24, "38.2 s"),
        (412.4, "412 s"),
        (725, "12 min 5 s"),
        (3600, "60 min"),
        (12_000, "3 h 20 min"),
        (-3.5, f"{MINUS}3.50 s"),
    ],
)
def test_durations_have_the_unit_that_fits_them(value: float | None, text: str) -> None:
    assert quantities.seconds(value) == text


def test_only_all_is_a_hundred_percent_and_only_nothing_is_zero() -> None:
    told = [quantities.share(value) for value in (1, 0.99999, 0.95, 0.00001, 0)]
    assert told == ["100 %", "> 99.9 %", "95.0 %", "< 0.1 %", "0 %"]


def test_changes_have_their_sign_and_no_change_has_none() -> None:
    assert [quantities.change(value) for value in (0.12, -0.034, 0, 0.0001, 12.5)] == [
        *("+12 %", f"{MINUS}3.4 %", "0 %", "0 %", "+1,250 %"),
    ]
    assert quantities.points(0.015) == "+1.5 points"


def test_what_was_set_has_no_digits_that_were_not_set() -> None:
    assert quantities.wanted(quantities.seconds(45)) == "45 s"
    assert quantities.wanted(quantities.seconds(2.5)) == "2.5 s"
    assert quantities.wanted(quantities.seconds(120)) == "120 s"


def test_times_are_said_in_utc_and_odd_ones_as_they_stand() -> None:
    assert quantities.date("2026-11-15T23:10:01.250Z") == "2026-11-15 23:10 UTC"
    assert quantities.date("2026-11-16T00:10:01+01:00") == "2026-11-15 23:10 UTC"
    assert quantities.clock("2026-11-15T23:10:01.250Z") == "23:10:01.2"
    assert [quantities.date("yesterday"), quantities.date(None)] == ["yesterday", DASH]


def test_memory_is_reported_in_what_cards_are_sold_by() -> None:
    assert [quantities.memory(value) for value in (900, 16_384, None)] == ["900 MB", "16.0 GB", DASH]


def test_names_are_listed_as_people_list_them() -> None:
    assert [quantities.listed(names) for names in ([], ["a"], ["a", "b", "c"])] == ["", "a", "a, b and c"]
