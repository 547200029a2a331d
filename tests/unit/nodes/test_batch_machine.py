"""Whatever happens to batches in whatever order, the manager knows what happened."""

from __future__ import annotations

import logging

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from comfyui_agent.nodes.core import iteration_state, member_endings
from comfyui_agent.nodes.core.batch_state import BatchState
from comfyui_agent.nodes.core.iteration_state import EXPIRY_SECONDS
from support.idle_manager import IMAGE, Clock, Unfed


class Model:
    """What a batch should be."""

    def __init__(self, batch: BatchState, at: float) -> None:
        self.batch = batch
        self.ids = list(batch.prompt_ids)
        self.total = batch.total
        self.done: set[int] = set()
        self.failed: set[int] = set()
        self.sign_at = at
        self.fired = 0
        self.state = ""
        self.is_cancelled = False

    @property
    def missing(self) -> int:
        return self.total - len(self.done) - len(self.failed)


class Batches(RuleBasedStateMachine):
    """Whatever happens to batches in whatever order, what is known of them is what happened."""

    MOST = 3
    PICK = st.integers(0, 10)
    INDEX = st.integers(-1, 4)

    def __init__(self) -> None:
        super().__init__()
        self.patches = pytest.MonkeyPatch()
        self.patches.setattr(iteration_state, "MOST_ENDED", self.MOST)
        self.patches.setattr(member_endings, "STOP_SECONDS", -1.0)
        self.clock = Clock()
        self.manager = Unfed(self.clock)
        self.active: dict[str, Model] = {}
        self.ended: dict[str, Model] = {}
        self.gone: dict[str, Model] = {}

    def teardown(self) -> None:
        self.patches.undo()

    def any_of(self, pick: int) -> tuple[str, Model]:
        known = {**self.active, **self.ended, **self.gone}
        return list(known.items())[pick % len(known)]

    def over(self, batch_id: str, state: str) -> None:
        model = self.active.pop(batch_id)
        model.state = state
        model.sign_at = self.clock.now
        self.ended[batch_id] = model
        while len(self.ended) > self.MOST:
            oldest = next(iter(self.ended))
            self.gone[oldest] = self.ended.pop(oldest)

    @rule(total=st.integers(1, 4))
    def create(self, total: int) -> None:
        self.expire()
        batch = self.manager.batch(total)
        assert batch.batch_id not in {**self.active, **self.ended, **self.gone}
        self.active[batch.batch_id] = Model(batch, self.clock.now)

    @precondition(lambda self: self.active or self.ended or self.gone)
    @rule(pick=PICK, index=INDEX)
    def register(self, pick: int, index: int) -> None:
        batch_id, model = self.any_of(pick)
        answer = self.manager.register_result(batch_id, index, [IMAGE], {})
        assert answer == self.counts(batch_id, model, index, model.done)

    @precondition(lambda self: self.active or self.ended or self.gone)
    @rule(pick=PICK, index=INDEX)
    def fail(self, pick: int, index: int) -> None:
        batch_id, model = self.any_of(pick)
        answer = self.manager.register_failure(batch_id, index, "no")
        assert answer == self.counts(batch_id, model, index, model.failed)

    def counts(self, batch_id: str, model: Model, index: int, kind: set[int]) -> bool:
        """Note it in the model; whether it is the last that was missing."""
        is_new = index in range(model.total) and index not in model.done | model.failed
        if batch_id not in self.active or not is_new:
            return False
        kind.add(index)
        model.sign_at = self.clock.now
        model.fired += model.missing == 0
        return model.missing == 0

    @precondition(lambda self: self.active)
    @rule(pick=PICK)
    def finish(self, pick: int) -> None:
        """All that is missing comes, in one go."""
        batch_id, model = list(self.active.items())[pick % len(self.active)]
        for index in range(model.total):
            answer = self.manager.register_result(batch_id, index, [IMAGE], {})
            assert answer == self.counts(batch_id, model, index, model.done)
        assert model.fired == 1
        self.manager.end_if_over(batch_id)
        self.over(batch_id, "complete")

    @precondition(lambda self: self.active or self.ended or self.gone)
    @rule(pick=PICK)
    def end_if_over(self, pick: int) -> None:
        batch_id, model = self.any_of(pick)
        self.manager.end_if_over(batch_id)
        if batch_id in self.active and model.missing == 0:
            self.over(batch_id, "complete")

    @precondition(lambda self: self.active or self.ended or self.gone)
    @rule(pick=PICK)
    def cancel(self, pick: int) -> None:
        batch_id, model = self.any_of(pick)
        answer = self.manager.cancel_batch(batch_id)
        assert (answer is None) == (batch_id in self.gone)
        if batch_id in self.active:
            model.is_cancelled = model.missing > 0
            self.over(batch_id, "cancelled" if model.missing else "complete")
        if answer is not None:
            assert answer.state == model.state

    @precondition(lambda self: self.active or self.ended or self.gone)
    @rule(pick=PICK)
    def clean_up(self, pick: int) -> None:
        batch_id, model = self.any_of(pick)
        self.manager.cleanup_batch(batch_id)
        if batch_id in self.active:
            self.over(batch_id, "cancelled" if model.missing else "complete")

    @rule(seconds=st.sampled_from([1.0, EXPIRY_SECONDS / 2, EXPIRY_SECONDS - 1, EXPIRY_SECONDS + 1]))
    def wait(self, seconds: float) -> None:
        self.clock.now += seconds

    @rule()
    def expire(self) -> None:
        """A prompt without an iterator comes."""
        self.manager.handle_prompt({"prompt": {}})
        for batch_id, model in list(self.ended.items()):
            if self.clock.now - model.sign_at > EXPIRY_SECONDS:
                self.gone[batch_id] = self.ended.pop(batch_id)
        for batch_id, model in list(self.active.items()):
            if self.clock.now - model.sign_at > EXPIRY_SECONDS:
                self.over(batch_id, "expired")

    @precondition(lambda self: self.active or self.ended or self.gone)
    @rule(pick=PICK)
    def describe(self, pick: int) -> None:
        batch_id, model = self.any_of(pick)
        answer = self.manager.describe(batch_id)
        assert (answer is None) == (batch_id in self.gone)
        if answer is not None:
            assert answer["prompt_ids"] == model.ids
            assert set(answer["results"]) == {str(index) for index in model.done}
            assert [member["state"] for member in answer["members"]] == [
                "done" if index in model.done else "failed" if index in model.failed else self.otherwise(model)
                for index in range(model.total)
            ]

    def otherwise(self, model: Model) -> str:
        return "cancelled" if model.state else "pending"

    @invariant()
    def what_is_active_is_known_with_its_prompts(self) -> None:
        batches = self.manager._active_batches
        assert {batch_id: batch.prompt_ids for batch_id, batch in batches.items()} == {
            batch_id: model.ids for batch_id, model in self.active.items()
        }
        assert all(self.manager.is_active(batch_id) == (batch_id in self.active) for batch_id in {**self.ended})

    @invariant()
    def what_has_ended_is_bounded(self) -> None:
        assert list(self.manager._ended) == list(self.ended)
        assert len(self.ended) <= self.MOST

    @invariant()
    def summaries_are_the_model(self) -> None:
        answer = {each["batch_id"]: each for each in self.manager.summaries()}
        assert set(answer) == {*self.active, *self.ended}
        for batch_id, model in {**self.active, **self.ended}.items():
            summary = answer[batch_id]
            assert summary["completed_count"] == len(model.done)
            assert summary["failed"] == len(model.failed)
            assert summary["cancelled"] == model.is_cancelled
            assert summary["state"] == (model.state or ("collecting" if model.missing < model.total else "pending"))

    @invariant()
    def nothing_fires_twice_and_what_is_whole_has_fired(self) -> None:
        for model in {**self.active, **self.ended, **self.gone}.values():
            assert model.fired == (model.missing == 0)


def test_batches_follow_the_model_whatever_happens(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, "e3_iterator")
    run_state_machine_as_test(
        Batches,
        settings=settings(
            max_examples=40, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )
