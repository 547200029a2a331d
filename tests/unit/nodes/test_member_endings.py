"""However the prompt of a member ends, the member ends with its pictures or with a reason."""

from __future__ import annotations

from typing import Any

import pytest

from comfyui_agent.nodes.core.batch_state import BatchState
from comfyui_agent.nodes.core.iteration_state import IterationStateManager
from comfyui_agent.nodes.core.member_endings import GONE, NO_PICTURE, REMOVED, record_endings
from comfyui_agent.nodes.host import ComfyUI, Ending, QueueSnapshot

IMAGE = {"filename": "a.png", "subfolder": "", "type": "output"}
REMARK = Ending(problem="SaveVideo (node 9): no such codec")


class Shown(ComfyUI):
    """A ComfyUI whose queue and history a test sets."""

    def __init__(self) -> None:
        super().__init__()
        self.snapshot = QueueSnapshot()
        self.endings: dict[str, Ending] = {}

    def queue(self) -> QueueSnapshot:
        return self.snapshot

    def ending(self, prompt_id: str) -> Ending | None:
        return self.endings.get(prompt_id)

    def send(self, *_: Any) -> None:
        pass


class Following:
    """A batch of three members that are all queued; node 30 saves pictures."""

    def __init__(self) -> None:
        self.host = Shown()
        self.manager = IterationStateManager(self.host)
        self.batch = BatchState("b_1", 3, None, "b", "matrix")
        self.batch.prompt_ids, self.batch.queued, self.batch.reporters = ["p0", "p1", "p2"], 3, frozenset({"30"})
        self.manager._active_batches["b_1"] = self.batch

    def sees(self, running: str = "", queued: str = "", **endings: Ending) -> None:
        self.host.snapshot = QueueSnapshot(
            {each: {} for each in running.split()}, {each: {} for each in queued.split()}
        )
        self.host.endings = endings
        record_endings(self.batch, self.host, self.manager)


@pytest.fixture
def here() -> Following:
    return Following()


def test_a_member_that_waits_or_runs_has_not_ended(here: Following) -> None:
    here.sees(running="p0", queued="p1 p2")
    assert (here.batch.failed, here.batch.results, here.batch.running) == ({}, {}, 0)
    here.sees(running="p1", queued="p2")
    assert here.batch.failed == {0: GONE}, "it ran, so nobody took it out of the queue"
    assert here.batch.removed == set()


@pytest.mark.parametrize(
    ("ending", "reason"),
    [
        (Ending(problem="KSampler (node 3): out of memory"), "KSampler (node 3): out of memory"),
        (Ending(problem="interrupted"), "interrupted"),
        (Ending(), NO_PICTURE),
        (Ending(images=[IMAGE]), NO_PICTURE),
        (None, REMOVED),
    ],
    ids=["error", "interrupted", "nothing", "only pictures of another node", "no history"],
)
def test_a_member_that_reported_nothing_has_failed(here: Following, ending: Ending | None, reason: str) -> None:
    here.sees(queued="p0 p2", **({"p1": ending} if ending else {}))
    assert (here.batch.failed, here.batch.results) == ({1: reason}, {})
    assert here.batch.removed == (set() if ending else {1})


def test_a_member_fails_if_one_of_two_reporters_is_missing(here: Following) -> None:
    here.batch.reporters = frozenset({"30", "31"})
    here.manager.report("b_1", 1, "30", [IMAGE], {})
    here.sees(queued="p0 p2", p1=REMARK)
    assert here.batch.failed == {1: REMARK.problem}


def test_a_failure_behind_the_saved_pictures_is_a_remark(here: Following) -> None:
    here.manager.report("b_1", 1, "30", [IMAGE], {})
    here.sees(queued="p0 p2", p1=REMARK)
    member = here.batch.as_json()["members"][1]
    assert (member["state"], member["reason"]) == ("done", REMARK.problem)
    assert here.batch.failed == {}


def test_without_reporters_the_history_has_the_result(here: Following) -> None:
    here.batch.reporters = frozenset()
    here.sees(p0=Ending(images=[IMAGE]), p1=Ending(), p2=Ending(problem="interrupted"))
    assert list(here.batch.results) == [0]
    assert here.batch.failed == {1: NO_PICTURE, 2: "interrupted"}


def test_a_running_prompt_of_anybody_is_a_sign_of_life(here: Following) -> None:
    here.manager.now = lambda: 5000.0
    here.sees(running="another", queued="p0 p1 p2")
    here.manager.now = lambda: 6000.0
    here.sees(queued="p0 p1 p2")
    assert here.batch.last_sign_at == 5000.0
