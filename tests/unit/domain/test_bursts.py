"""How large the next burst is, how slowly it asks, and whose word counts about an item."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from comfyui_agent.domain.bursts import Item, ItemRequest, ItemStatus, poll_of, size_of, sizes, wish_for, word_of
from comfyui_agent.domain.jobs import JobId
from comfyui_agent.domain.states import JobStatus

WORDS = st.sampled_from(ItemStatus)
MAYBE = st.none() | WORDS


@pytest.mark.parametrize(
    ("ceiling", "ladder"),
    [(15, [15, 5, 1]), (1, [1]), (2, [2, 1]), (3, [3, 1]), (9, [9, 3, 1]), (100, [100, 33, 11, 3, 1]), (0, [1])],
)
def test_each_step_down_is_a_third(ceiling: int, ladder: list[int]) -> None:
    assert sizes(ceiling) == ladder


@given(st.integers(-5, 10_000))
def test_the_ladder_goes_down_from_the_ceiling_to_one(ceiling: int) -> None:
    ladder = sizes(ceiling)
    assert ladder[0] == max(1, ceiling)
    assert ladder[-1] == 1
    assert ladder == sorted(set(ladder), reverse=True)


@given(st.integers(1, 1000), st.integers(-10, 1000))
def test_a_size_is_always_one_of_the_ladder(ceiling: int, level: int) -> None:
    ladder = sizes(ceiling)
    assert size_of(ceiling, level) == ladder[min(max(level, 0), len(ladder) - 1)]
    assert size_of(ceiling, level) >= size_of(ceiling, level + 1)


def test_polling_gets_slower_with_every_step_and_never_slower_than_a_minute() -> None:
    assert [poll_of(5.0, level) for level in (-1, 0, 1, 2, 3, 4, 50)] == [5.0, 5.0, 10.0, 20.0, 40.0, 60.0, 60.0]
    assert poll_of(0.1, 1) == pytest.approx(0.2)


@pytest.mark.parametrize(
    ("status", "word"),
    [("pending", "pending"), ("processing", "pending"), ("done", "completed"), ("failed", "failed")],
)
def test_a_state_file_has_three_words(status: str, word: str) -> None:
    assert word_of(JobStatus(status)) == word
    assert Item(JobId(1), "a", JobStatus(status), None, is_at_server=False).word is ItemStatus(word)
    assert str(ItemStatus(word)) == word


@given(said=MAYBE, written=MAYBE, known=MAYBE)
def test_a_file_that_nobody_touched_is_nobodys_wish(
    said: ItemStatus | None, written: ItemStatus | None, known: ItemStatus | None
) -> None:
    assert wish_for(said, written, known, is_untouched=True) is ItemRequest.KEEP


@given(said=WORDS, written=MAYBE)
def test_where_file_and_memory_agree_nothing_is_to_do(said: ItemStatus, written: ItemStatus | None) -> None:
    assert wish_for(said, written, said, is_untouched=False) is ItemRequest.KEEP


@given(written=MAYBE, known=MAYBE, is_untouched=st.booleans())
def test_an_item_that_the_file_does_not_name_is_as_the_memory_knows_it(
    written: ItemStatus | None, known: ItemStatus | None, is_untouched: bool
) -> None:
    assert wish_for(None, written, known, is_untouched=is_untouched) is ItemRequest.KEEP


@given(word=WORDS, known=WORDS)
def test_what_a_crash_left_behind_in_the_file_is_repaired_and_not_rendered_again(
    word: ItemStatus, known: ItemStatus
) -> None:
    """It says what it was last told: nobody has changed it since."""
    assert wish_for(word, word, known, is_untouched=False) is ItemRequest.KEEP


@pytest.mark.parametrize("known", [ItemStatus.COMPLETED, ItemStatus.FAILED])
@pytest.mark.parametrize("written", [ItemStatus.COMPLETED, ItemStatus.FAILED, None])
def test_what_a_hand_set_to_pending_is_rendered_again(known: ItemStatus, written: ItemStatus | None) -> None:
    assert wish_for(ItemStatus.PENDING, written, known, is_untouched=False) is ItemRequest.AGAIN


@pytest.mark.parametrize("known", [ItemStatus.PENDING, ItemStatus.FAILED, None])
@pytest.mark.parametrize("written", [ItemStatus.PENDING, ItemStatus.FAILED, None])
def test_what_a_hand_set_to_completed_is_trusted(known: ItemStatus | None, written: ItemStatus | None) -> None:
    assert wish_for(ItemStatus.COMPLETED, written, known, is_untouched=False) is ItemRequest.TRUST


@pytest.mark.parametrize("known", [ItemStatus.PENDING, ItemStatus.COMPLETED, None])
@pytest.mark.parametrize("written", [ItemStatus.PENDING, ItemStatus.COMPLETED, None])
def test_what_a_hand_set_to_failed_is_skipped(known: ItemStatus | None, written: ItemStatus | None) -> None:
    assert wish_for(ItemStatus.FAILED, written, known, is_untouched=False) is ItemRequest.SKIP


@given(written=MAYBE)
def test_a_file_from_another_tool_is_taken_at_its_word(written: ItemStatus | None) -> None:
    """The memory knows nothing of its items."""
    wishes = [wish_for(said, written, None, is_untouched=False) for said in ItemStatus]
    assert wishes == [ItemRequest.KEEP, ItemRequest.TRUST, ItemRequest.SKIP]
