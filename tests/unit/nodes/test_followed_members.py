"""However a member ends, the batch that was queued in ComfyUI follows it to its end."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from comfyui_agent.nodes.core import feeder
from comfyui_agent.nodes.core.iteration_state import EXPIRY_SECONDS
from comfyui_agent.nodes.core.member_endings import GONE, REMOVED
from support.node_pack import Graph
from support.packs import alone, painting, until
from support.queued_members import GRID, VERSIONS, Feeding


def test_a_member_that_is_refused_fails_for_the_reason_that_its_node_gives(pack: Callable[..., Feeding]) -> None:
    here = pack()
    batch = here.ended(here.batch(painting(f"1,{0x1000000},3")))
    assert (batch.state, batch.completed_count, list(batch.failed)) == ("complete", 2, [1])
    assert "Colour (node 1)" in batch.failed[1]
    assert "bigger than max" in batch.failed[1]
    assert [item[1] for item in here.items] == [batch.prompt_ids[0], batch.prompt_ids[2]]


@pytest.mark.parametrize("failing", [1, 2, 3])
def test_a_member_that_fails_says_which_node_and_why(pack: Callable[..., Feeding], failing: int) -> None:
    here = pack()
    batch = here.ended(here.batch(painting("1..3", "Fails", at=failing)))
    assert (batch.state, batch.completed_count) == ("complete", 2)
    assert batch.failed == {failing - 1: f"Fails (node 1): the colour is {failing}"}


def test_a_member_that_somebody_interrupts_leaves_the_others_alone(pack: Callable[..., Feeding]) -> None:
    here = pack(held=True)
    batch = here.fed(painting("1..3", "Blocks"))
    assert here.inside.start_one() == batch.prompt_ids[0]
    until(lambda: batch.running == 0, "it is seen to run")
    here.inside.interrupted.set()
    until(lambda: 0 in batch.failed, "the interrupt is seen")
    here.inside.unblocked.set()
    here.inside.release()
    assert here.ended(batch).failed == {0: "interrupted"}
    assert batch.completed_count == 2


def test_a_member_whose_history_is_cleared_has_failed_as_gone(
    pack: Callable[..., Feeding], monkeypatch: pytest.MonkeyPatch
) -> None:
    here = pack(held=True)
    prompt = painting("1..2", "Blocks")
    prompt["30"] = {"class_type": "Save", "inputs": {"images": ["1", 0], "filename_prefix": "own"}}
    batch = here.fed(prompt)
    here.inside.start_one()
    until(lambda: batch.running == 0, "it is seen to run")
    monkeypatch.setattr(here.inside.queue, "get_history", lambda **_: {})
    here.inside.unblocked.set()
    until(lambda: 0 in batch.failed, "its end is seen")
    assert batch.failed == {0: GONE}


def test_a_batch_that_saves_with_comfyuis_own_node_is_followed_by_its_history(pack: Callable[..., Feeding]) -> None:
    here = pack()
    prompt = painting("1..4", "Fails", at=2)
    prompt["30"] = {"class_type": "Save", "inputs": {"images": ["1", 0], "filename_prefix": "own"}}
    batch = here.ended(here.batch(prompt))
    assert (batch.completed_count, list(batch.failed)) == (3, [1])
    assert [image["type"] for image in batch.results[3]["images"]] == ["output"]


@VERSIONS
@pytest.mark.parametrize("failing", [0, 1])
def test_a_first_that_ended_before_anybody_looked_is_found(
    pack: Callable[..., Feeding], monkeypatch: pytest.MonkeyPatch, is_old: bool, failing: int
) -> None:
    monkeypatch.setattr(feeder, "TAKEN_SECONDS", 1.0)
    here = pack(is_old=is_old)
    may_look = threading.Event()
    read = here.manager.host.queue
    monkeypatch.setattr(here.manager.host, "queue", lambda: read() if may_look.wait(60) else None)
    prompt = painting("1..3", "Fails", at=failing)
    prompt["30"] = {"class_type": "Save", "inputs": {"images": ["1", 0], "filename_prefix": "own"}}
    batch = here.batch(prompt)
    here.inside.wait_idle()
    may_look.set()
    here.ended(batch)
    assert (batch.state, batch.reason, batch.completed_count) == ("complete", "", 3 - failing)
    assert list(batch.failed) == [0][:failing]


def test_a_queue_that_is_cleared_takes_those_that_were_still_to_come_with_it(
    pack: Callable[..., Feeding], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feeder, "MOST_WAITING", 8)
    here = pack(held=True)
    batch = here.batch(painting("1..30"))
    until(lambda: batch.queued == 8, "there is room for eight")
    here.inside.queue.wipe_queue()
    assert here.ended(batch).failed == dict.fromkeys(range(30), REMOVED)
    assert here.inside.waiting() == []
    assert len(here.items) == 8


def test_a_batch_does_not_expire_while_comfyui_works_on_it(
    pack: Callable[..., Feeding], monkeypatch: pytest.MonkeyPatch
) -> None:
    start, jump = time.time(), [0.0]
    here = pack(held=True)
    monkeypatch.setattr(here.manager, "now", lambda: start + jump[0])
    batch = here.fed(painting("1..3", "Blocks"))
    here.inside.start_one()
    for _ in range(3):
        jump[0] += EXPIRY_SECONDS
        until(lambda: batch.last_sign_at >= start + jump[0], "it is seen at work")
        here.manager.handle_prompt({"prompt": {}})
        assert here.manager.is_active(batch.batch_id)
    here.inside.unblocked.set()
    here.inside.wait_ended(batch.prompt_ids[0])
    until(lambda: batch.completed_count == 1, "the result is there")
    until(lambda: batch.running is None, "nothing runs")
    jump[0] += EXPIRY_SECONDS + 1
    reads, read = [0], here.manager.host.queue

    def counted() -> Any:
        reads[0] += 1
        return read()

    monkeypatch.setattr(here.manager.host, "queue", counted)
    until(lambda: reads[0] >= 3, "the thread reads the queue again")
    here.manager.handle_prompt({"prompt": {}})
    assert batch.state == "expired", "the rest waits, and nothing runs"
    assert not here.manager.is_active(batch.batch_id)


@pytest.mark.usefixtures("_grids")
def test_the_grid_is_made_by_the_thread_if_the_last_member_cannot(pack: Callable[..., Feeding]) -> None:
    here = pack()
    batch = here.ended(here.batch(painting("1..3", "Fails", grid=True, at=3), client_id="page"))
    assert (batch.state, batch.summary()["grid"]) == ("complete", GRID)
    (message,) = [
        each
        for each in here.inside.server.sent
        if each.event == "executed" and each.data["node"] == "40" and each.data["output"]["images"]
    ]
    assert message.sid == "page"
    assert message.data["output"] == {"images": [GRID]}
    assert message.data["prompt_id"] in batch.prompt_ids


def test_pages_get_the_progress(pack: Callable[..., Feeding]) -> None:
    here = pack(held=True)
    batch = here.fed(painting("1..3"))
    for count in (1, 2, 3):
        here.inside.run_one()
        until(lambda: count in [each["completed_count"] for each in here.inside.sent("e3.batch")], "it is sent")  # noqa: B023
    here.ended(batch)
    until(lambda: here.inside.sent("e3.batch")[-1]["state"] == "complete", "the end is sent")


def test_several_that_are_deleted_at_once_stop_no_other(
    pack: Callable[..., Feeding], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feeder, "MOST_WAITING", 8)
    here = pack(held=True)
    batch = here.batch(painting("1..20"))
    until(lambda: batch.queued == 8, "as many wait as may")
    until(lambda: here.manager._feeder._feedings[0].queued == 8, "they were seen to wait")
    with here.inside.queue.mutex:
        for index in range(2, 7):
            here.inside.queue.delete_queue_item(lambda item, index=index: item[1] == batch.prompt_ids[index])
    here.inside.release()
    assert here.ended(batch).failed == dict.fromkeys(range(2, 7), REMOVED)
    assert batch.completed_count == 15


def test_a_member_whose_own_nodes_are_refused_fails_although_others_would_run(pack: Callable[..., Feeding]) -> None:
    here = pack()
    prompt = painting("1,99999999,3")
    prompt |= {
        "5": dict(alone()["1"]),
        "6": {"class_type": "Save", "inputs": {"images": ["5", 0], "filename_prefix": "x"}},
    }
    batch = here.ended(here.batch(prompt))
    assert (batch.completed_count, list(batch.failed)) == (2, [1])
    assert "Colour (node 1)" in batch.failed[1]
    assert len(here.items) == 2, "the refused one was queued"


@pytest.mark.usefixtures("_grids")
def test_a_grid_that_takes_long_keeps_no_other_batch_waiting(
    pack: Callable[..., Feeding], monkeypatch: pytest.MonkeyPatch
) -> None:
    may_end = threading.Event()
    save = sys.modules["comfyui_agent.nodes.core.batch_grid"]
    monkeypatch.setattr(save, "save_grid", lambda *_: may_end.wait(60) and [GRID])
    here = pack()
    slow = here.batch(painting("1,2", "Fails", grid=True, at=2))
    until(lambda: slow.claimed, "its grid is being made")
    other = here.ended(here.batch(painting("1..5")))
    assert (other.completed_count, slow.ended_as) == (5, "")
    may_end.set()
    assert here.ended(slow).state == "complete"


def test_a_first_that_ended_long_ago_is_found_by_its_id(
    pack: Callable[..., Feeding], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("comfyui_agent.nodes.host.RECENT_ENTRIES", 2)
    here = pack()
    see_first = here.manager._feeder._find_taken
    may_look = threading.Event()
    monkeypatch.setattr(
        here.manager._feeder, "_find_taken", lambda feeding: see_first(feeding) if may_look.is_set() else False
    )
    batch = here.batch(painting("1..3", "Fails", at=1))
    for _ in range(5):
        here.inside.wait_ended(here.post(alone()))
    may_look.set()
    assert (here.ended(batch).completed_count, list(batch.failed)) == (2, [0])


def test_a_check_that_raises_is_a_refusal(pack: Callable[..., Feeding], monkeypatch: pytest.MonkeyPatch) -> None:
    here = pack()
    execution = here.inside.modules["execution"]
    validate = execution.validate_prompt

    async def raises(prompt_id: str, prompt: Graph, targets: Any) -> Any:
        if prompt["1"]["inputs"]["colour"] == 2:
            raise KeyError("of another's node")
        return await validate(prompt_id, prompt, targets)

    monkeypatch.setattr(execution, "validate_prompt", raises)
    batch = here.ended(here.batch(painting("1,2,3")))
    assert (batch.completed_count, list(batch.failed)) == (2, [1])
    assert "of another's node" in batch.failed[1]
