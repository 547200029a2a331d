"""The size of the next burst, how often it polls, and when the state file overrules the database."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from comfyui_agent.domain.bursts import Item, ItemRequest, ItemStatus, poll_of, request_for, size_of, sizes
from comfyui_agent.domain.jobs import JobId
from comfyui_agent.domain.states import JobStatus

PENDING, COMPLETED, FAILED = ItemStatus
MAYBE = (None, *ItemStatus)


def test_each_step_down_is_a_third() -> None:
    assert [sizes(ceiling) for ceiling in (15, 1, 2, 3, 0)] == [[15, 5, 1], [1], [2, 1], [3, 1], [1]]
    assert sizes(100) == [100, 33, 11, 3, 1]


@given(st.integers(-5, 10_000), st.integers(-10, 1000))
def test_sizes_go_down_from_the_ceiling_to_one(ceiling: int, level: int) -> None:
    ladder = sizes(ceiling)
    assert ladder[0] == max(1, ceiling)
    assert ladder[-1] == 1
    assert ladder == sorted(set(ladder), reverse=True)
    assert size_of(ceiling, level) == ladder[min(max(level, 0), len(ladder) - 1)]


def test_polls_get_rarer_with_every_step_down_to_one_a_minute() -> None:
    assert [poll_of(5.0, level) for level in (-1, 0, 1, 2, 3, 4, 50)] == [5.0, 5.0, 10.0, 20.0, 40.0, 60.0, 60.0]
    assert poll_of(0.1, 1) == pytest.approx(0.2)


def test_four_job_states_are_three_in_a_state_file() -> None:
    items = [Item(JobId(1), "a", status, None, is_at_server=False) for status in JobStatus]
    assert [item.word for item in items] == [PENDING, PENDING, COMPLETED, FAILED]


def test_the_database_is_right_unless_a_person_changed_the_file() -> None:
    for in_file, written, known in itertools.product(MAYBE, repeat=3):
        case = (in_file, written, known)
        assert request_for(*case, is_untouched=True) is ItemRequest.KEEP, case
        is_unchanged = in_file in (None, known) or (known is not None and in_file is written)
        found = request_for(*case, is_untouched=False)
        if is_unchanged or (in_file is PENDING and known is None):
            assert found is ItemRequest.KEEP, case
        else:
            changed = {PENDING: ItemRequest.AGAIN, COMPLETED: ItemRequest.TRUST, FAILED: ItemRequest.SKIP}
            assert in_file is not None
            assert found is changed[in_file], case
