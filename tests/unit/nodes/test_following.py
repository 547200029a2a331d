"""However the prompt of a member ends, the member ends with its pictures or with a reason."""

from __future__ import annotations

from typing import Any

import pytest

from comfyui_agent.nodes.core.batch_state import BatchState
from comfyui_agent.nodes.core.iteration_state import IterationStateManager
from comfyui_agent.nodes.core.member_endings import GONE, NO_PICTURE, REMOVED, look
from comfyui_agent.nodes.host import ComfyUI, Ending, MissingPiece, Standing

IMAGE = {"filename": "a.png", "subfolder": "", "type": "output"}


class Seen(ComfyUI):
    """A ComfyUI of which a test says what is seen."""

    def __init__(self) -> None:
        super().__init__()
        self.stands: Standing | None = Standing()
        self.endings: dict[str, Ending] = {}
        self.has_history = True

    def standing(self) -> Standing | None:
        return self.stands

    def ending(self, prompt_id: str) -> Ending | None:
        if not self.has_history:
            raise MissingPiece
        return self.endings.get(prompt_id)

    def send(self, *_: Any) -> None:
        pass


@pytest.fixture
def seen() -> Seen:
    return Seen()


@pytest.fixture
def manager(seen: Seen) -> IterationStateManager:
    return IterationStateManager(seen)


@pytest.fixture
def batch(manager: IterationStateManager) -> BatchState:
    """Three members, all in ComfyUI's hands; node 30 saves pictures."""
    batch = BatchState("b_1", 3, None, "b", "matrix")
    batch.prompt_ids, batch.queued, batch.reporters = ["p0", "p1", "p2"], 3, frozenset({"30"})
    manager._active_batches["b_1"] = batch
    return batch


def test_what_waits_and_what_runs_has_not_ended(manager: IterationStateManager, seen: Seen, batch: BatchState) -> None:
    seen.stands = Standing({"p0": {}}, {"p1": {}, "p2": {}})
    look(batch, seen, manager)
    assert (batch.failed, batch.results, batch.running, batch.seen_running) == ({}, {}, 0, {0})


@pytest.mark.parametrize(
    ("ending", "reason"),
    [
        (Ending(problem="KSampler (node 3): out of memory"), "KSampler (node 3): out of memory"),
        (Ending(problem="interrupted"), "interrupted"),
        (Ending(), NO_PICTURE),
        (Ending(images=[IMAGE]), NO_PICTURE),
        (None, REMOVED),
    ],
    ids=["error", "interrupted", "nothing", "only what another node saved", "no history"],
)
def test_a_member_whose_nodes_said_nothing_has_failed(
    manager: IterationStateManager, seen: Seen, batch: BatchState, ending: Ending | None, reason: str
) -> None:
    seen.stands = Standing({}, {"p0": {}, "p2": {}})
    seen.endings = {} if ending is None else {"p1": ending}
    look(batch, seen, manager)
    assert (batch.failed, batch.results) == ({1: reason}, {})
    assert batch.removed == ({1} if ending is None else set())


def test_a_member_that_was_seen_to_run_was_not_taken_out(
    manager: IterationStateManager, seen: Seen, batch: BatchState
) -> None:
    seen.stands = Standing({"p0": {}}, {"p1": {}, "p2": {}})
    look(batch, seen, manager)
    seen.stands = Standing({"p1": {}}, {"p2": {}})
    look(batch, seen, manager)
    assert (batch.failed, batch.removed) == ({0: GONE}, set())


def test_a_member_counts_when_all_that_save_have_said_so(
    manager: IterationStateManager, seen: Seen, batch: BatchState
) -> None:
    batch.reporters = frozenset({"30", "31"})
    assert not manager.report("b_1", 1, "31", [{**IMAGE, "filename": "b.png"}], {})
    assert batch.results == {}
    manager.report("b_1", 1, "30", [IMAGE], {})
    assert [image["filename"] for image in batch.results[1]["images"]] == ["a.png", "b.png"]


def test_a_member_fails_if_one_of_those_that_save_never_did(
    manager: IterationStateManager, seen: Seen, batch: BatchState
) -> None:
    batch.reporters = frozenset({"30", "31"})
    manager.report("b_1", 1, "30", [IMAGE], {})
    seen.stands = Standing({}, {"p0": {}, "p2": {}})
    seen.endings = {"p1": Ending(problem="Upscale (node 8): out of memory")}
    look(batch, seen, manager)
    assert batch.failed == {1: "Upscale (node 8): out of memory"}


def test_what_else_went_wrong_is_remarked_where_the_pictures_are_there(
    manager: IterationStateManager, seen: Seen, batch: BatchState
) -> None:
    manager.report("b_1", 1, "30", [IMAGE], {})
    seen.stands = Standing({}, {"p0": {}, "p2": {}})
    seen.endings = {"p1": Ending(problem="SaveVideo (node 9): no such codec")}
    look(batch, seen, manager)
    member = batch.as_json()["members"][1]
    assert (member["state"], member["reason"]) == ("done", "SaveVideo (node 9): no such codec")
    assert batch.failed == {}


def test_where_nobody_reports_the_history_has_the_result(
    manager: IterationStateManager, seen: Seen, batch: BatchState
) -> None:
    batch.reporters = frozenset()
    seen.endings = {"p0": Ending(images=[IMAGE]), "p1": Ending(), "p2": Ending(problem="interrupted")}
    look(batch, seen, manager)
    assert list(batch.results) == [0]
    assert batch.failed == {1: NO_PICTURE, 2: "interrupted"}


def test_nothing_is_judged_that_cannot_be_seen(manager: IterationStateManager, seen: Seen, batch: BatchState) -> None:
    seen.has_history = False
    look(batch, seen, manager)
    seen.stands = None
    look(batch, seen, manager)
    assert (batch.failed, batch.results) == ({}, {})


def test_a_batch_lives_as_long_as_comfyui_works_before_it_is_whole(
    seen: Seen, batch: BatchState, manager: IterationStateManager
) -> None:
    manager.now = lambda: 5000.0
    seen.stands = Standing({"another": {}}, {"p0": {}, "p1": {}, "p2": {}})
    look(batch, seen, manager)
    assert batch.last_sign_at == 5000.0
    manager.now = lambda: 6000.0
    seen.stands = Standing({}, {"p0": {}, "p1": {}, "p2": {}})
    look(batch, seen, manager)
    assert batch.last_sign_at == 5000.0
