"""The class of a failure decides what happens next."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from comfyui_agent.domain.failures import FailureClass
from comfyui_agent.domain.retry_policy import Decision, GiveUp, Retry, RetryPolicy, Tally, decide

POLICY = RetryPolicy(retry_limit=2, backoff_seconds=(15, 45, 90), poison_limit=3)


def after(kind: FailureClass, tally: Tally = Tally(), suspect: bool = False) -> Decision:  # noqa: B008 - frozen
    return decide(kind, tally, POLICY, suspect=suspect, chance=0.5)


def test_a_failed_run_is_tried_again_as_often_as_the_limit_allows() -> None:
    for kind in [FailureClass.EXECUTION, FailureClass.OOM, FailureClass.TIMEOUT, FailureClass.OUTPUT]:
        assert after(kind, Tally(0)) == Retry(15, charged=True), kind
        assert after(kind, Tally(1)) == Retry(45, charged=True), kind
        assert after(kind, Tally(2)) == GiveUp(kind), kind


def test_a_rejected_prompt_is_tried_once_more_and_then_needs_regeneration() -> None:
    for kind in [FailureClass.INVALID, FailureClass.MISSING]:
        assert after(kind, Tally(0)) == Retry(15, charged=True), kind
        assert after(kind, Tally(1)) == GiveUp(kind, needs_regeneration=True), kind
        assert after(kind, Tally(0, retry_limit=0)) == GiveUp(kind, needs_regeneration=True), kind


def test_a_choice_that_the_server_does_not_offer_is_not_tried_again() -> None:
    found = decide(FailureClass.INVALID, Tally(0), POLICY, suspect=False, chance=0.5, by_choice=True)
    assert found == GiveUp(FailureClass.INVALID, needs_regeneration=True)
    found = decide(FailureClass.MISSING, Tally(0), POLICY, suspect=False, chance=0.5, by_choice=True)
    assert found == Retry(15, charged=True), "a model may be put there"


def test_the_interrupt_of_a_stranger_costs_nothing() -> None:
    assert after(FailureClass.INTERRUPTED, Tally(2)) == Retry(0, charged=False)


def test_a_lost_server_costs_nothing_to_those_that_only_waited_there() -> None:
    for strikes in range(10):
        assert after(FailureClass.SERVER_LOST, Tally(2, strikes)) == Retry(0, charged=False)


def test_a_job_under_which_servers_die_is_poison_after_three_crashes() -> None:
    assert after(FailureClass.SERVER_LOST, Tally(0, 0), suspect=True) == Retry(0, charged=False, strike=True)
    assert after(FailureClass.SERVER_LOST, Tally(0, 1), suspect=True) == Retry(0, charged=False, strike=True)
    assert after(FailureClass.SERVER_LOST, Tally(0, 2), suspect=True) == GiveUp(FailureClass.POISON)


def test_an_end_is_an_end() -> None:
    for kind in [FailureClass.CANCELLED, FailureClass.POISON]:
        assert after(kind) == GiveUp(kind), kind


def test_a_jobs_own_limit_wins_over_the_general_one() -> None:
    assert after(FailureClass.EXECUTION, Tally(0, retry_limit=0)) == GiveUp(FailureClass.EXECUTION)
    assert isinstance(after(FailureClass.EXECUTION, Tally(4, retry_limit=5)), Retry)


@given(st.integers(0, 50), st.floats(0, 1))
def test_backoff_stays_within_a_fifth_of_what_was_asked_for(retries: int, chance: float) -> None:
    base = (15, 45, 90)[min(retries, 2)]
    assert base * 0.8 - 1e-9 <= POLICY.backoff(retries, chance) <= base * 1.2 + 1e-9


def test_no_backoff_means_at_once() -> None:
    assert RetryPolicy(backoff_seconds=()).backoff(3, 0.7) == 0


@given(st.sampled_from(FailureClass), st.integers(0, 9), st.integers(0, 9), st.integers(0, 9), st.booleans())
def test_every_job_ends_after_a_bounded_number_of_charges_and_crashes(
    kind: FailureClass, retries: int, strikes: int, limit: int, suspect: bool
) -> None:
    decision = decide(kind, Tally(retries, strikes, limit), POLICY, suspect=suspect, chance=0.0)
    if isinstance(decision, Retry):
        assert not decision.charged or retries < limit
        assert not decision.strike or strikes + 1 < POLICY.poison_limit
