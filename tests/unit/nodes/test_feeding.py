"""Members are queued behind the first, each as a prompt of its own, and the batch follows all of them to their end."""

from __future__ import annotations

import contextlib
import json
import logging
import sys
import threading
import time
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from comfyui_agent.nodes.core import feeder, iteration_state
from comfyui_agent.nodes.core.batch_state import BatchState
from comfyui_agent.nodes.core.iteration_state import EXPIRY_SECONDS
from comfyui_agent.nodes.core.member_endings import GONE, REMOVED
from support.comfyui_inside import comfyui_inside
from support.node_pack import Graph
from support.packs import Pack, alone, painting, until

SECRET = "token-that-nobody-sees"
GRID = {"filename": "grid_00001_.png", "subfolder": "E3", "type": "output"}
VERSIONS = pytest.mark.parametrize("is_old", [False, True], ids=["0.7.0", "0.3.44"])


class Feeding(Pack):
    """The pack in an imitated ComfyUI of some version, and what was queued there."""

    def __init__(self, folder: Path, **version: Any) -> None:
        self._context = comfyui_inside(folder, **version)
        super().__init__(self._context.__enter__())
        self.items: list[tuple[Any, ...]] = []
        """What was queued, in order."""
        self.watch_puts(lambda _: None)

    def watch_puts(self, before: Callable[[tuple[Any, ...]], None]) -> None:
        put = type(self.inside.queue).put

        def watched(item: tuple[Any, ...]) -> None:
            before(item)
            self.items.append(item)
            put(self.inside.queue, item)

        self.inside.queue.put = watched  # type: ignore[method-assign]

    def close(self) -> None:
        super().close()
        self._context.__exit__(None, None, None)

    def batch(self, prompt: Graph, **body: Any) -> BatchState:
        known = {each["batch_id"] for each in self.manager.summaries()}
        self.post(prompt, **body)
        (batch_id,) = {each["batch_id"] for each in self.manager.summaries()} - known
        batch = self.manager.find(batch_id)
        assert batch is not None
        return batch

    def fed(self, prompt: Graph, **body: Any) -> BatchState:
        """A batch all of whose members are in the queue."""
        batch = self.batch(prompt, **body)
        until(lambda: batch.queued == batch.total, "all are queued")
        return batch

    def ended(self, batch: BatchState) -> BatchState:
        until(lambda: batch.ended_as, f"the batch ends, which is {batch.summary()}")
        assert self.is_clean
        return batch

    @property
    def is_clean(self) -> bool:
        """Nothing of batches that ended is known any more."""
        ids = {each for batch in self.manager._active_batches.values() for each in batch.prompt_ids}
        return set(self.manager._prompt_to_batch) == ids

    def numbers(self, batch: BatchState) -> list[float]:
        return [next(item[0] for item in self.items if item[1] == prompt_id) for prompt_id in batch.prompt_ids]


@pytest.fixture
def pack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Feeding]]:
    monkeypatch.setattr(feeder, "TICK_SECONDS", 0.005)
    monkeypatch.setattr(feeder, "REFUSED_SECONDS", 0.1)
    with contextlib.ExitStack() as stack:

        def enter(**version: Any) -> Feeding:
            entered = Feeding(tmp_path, **version)
            stack.callback(entered.close)
            monkeypatch.setattr(iteration_state, "_instance", entered.manager)
            return entered

        yield enter


@pytest.fixture
def _grids(monkeypatch: pytest.MonkeyPatch) -> None:
    """A grid is named, not made."""
    module = types.ModuleType("comfyui_agent.nodes.core.batch_grid")
    module.save_grid = lambda *_: [GRID]  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)


def warnings_in(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def test_members_are_queued_behind_the_first_and_before_what_comes_next(pack: Callable[..., Feeding]) -> None:
    here = pack(held=True)
    before = here.post(alone())
    batch = here.batch(painting("1..12"))
    after = here.post(alone())
    until(lambda: batch.queued == 12, "all are queued")
    assert here.inside.waiting() == [before, *batch.prompt_ids, after]
    assert here.numbers(batch) == sorted(here.numbers(batch))
    assert [here.inside.run_one() for _ in range(14)] == [before, *batch.prompt_ids, after]
    assert here.ended(batch).state == "complete"


def test_members_of_a_batch_in_front_are_in_front(pack: Callable[..., Feeding]) -> None:
    here = pack(held=True)
    others = [here.post(alone()) for _ in range(2)]
    batch = here.fed(painting("1..5"), front=True)
    first = here.post(alone(), front=True)
    assert here.inside.waiting() == [first, *batch.prompt_ids, *others]


def test_two_batches_at_once_are_kept_apart(pack: Callable[..., Feeding]) -> None:
    here = pack(held=True)
    one = here.batch(painting("1..7", "Fails", at=3))
    other = here.batch(painting("1..9"))
    until(lambda: one.queued == 7 and other.queued == 9, "all are queued")
    assert here.inside.waiting() == [*one.prompt_ids, *other.prompt_ids]
    here.inside.release()
    assert (here.ended(one).completed_count, list(one.failed)) == (6, [2])
    assert (here.ended(other).completed_count, other.failed) == (9, {})
    assert not set(one.prompt_ids) & set(other.prompt_ids)
    files = [image["filename"] for batch in (one, other) for r in batch.results.values() for image in r["images"]]
    folders = {image["subfolder"] for r in one.results.values() for image in r["images"]}
    assert len(files) == 15
    assert folders == {f"E3/test/{one.batch_id}"}


@VERSIONS
def test_every_result_counts_although_members_run_as_soon_as_they_are_queued(
    pack: Callable[..., Feeding], is_old: bool
) -> None:
    here = pack(is_old=is_old)
    strangers: list[str] = []

    def look(item: tuple[Any, ...]) -> None:
        is_known = here.manager.batch_of(item[1]) is not None
        strangers.extend([] if is_known or is_old else [item[1]])

    here.watch_puts(look)
    batch = here.batch(painting("1..40"))
    assert here.ended(batch).state == "complete"
    assert (batch.completed_count, batch.failed) == (40, {})
    assert strangers == []
    assert len(set(batch.prompt_ids)) == 40
    for index, prompt_id in enumerate(batch.prompt_ids):
        ran = here.inside.queue.history[prompt_id]["prompt"][2]
        assert ran["1"]["inputs"]["colour"] == index + 1
        assert ran["20"]["inputs"]["e3_index"] == index
    assert [item[1] for item in here.items] == batch.prompt_ids


@VERSIONS
def test_members_are_queued_like_the_first_and_secrets_are_not_shown(
    pack: Callable[..., Feeding], is_old: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    here = pack(is_old=is_old, held=True)
    extra = {"auth_token_comfy_org": SECRET, "extra_pnginfo": {"workflow": {"nodes": []}}, "own": 1}
    batch = here.fed(painting("1..3", "Fails", at=2), extra_data=extra, client_id="page")
    first, *others = here.items
    for item in others:
        assert len(item) == len(first) == (5 if is_old else 6)
        assert {**item[3], "create_time": 0} == {**first[3], "create_time": 0}
        assert item[3]["client_id"] == "page"
        assert item[4] == first[4]
        assert item[5:] == first[5:]
    for item in here.items:
        assert (SECRET in json.dumps(item[:5])) == is_old, "there is no other place then"
    here.inside.release()
    here.ended(batch)
    assert SECRET not in caplog.text
    assert SECRET not in json.dumps(here.manager.describe(batch.batch_id))
    assert SECRET not in json.dumps([message.data for message in here.inside.server.sent])


@VERSIONS
def test_a_first_that_is_refused_queues_nothing(
    pack: Callable[..., Feeding], is_old: bool, caplog: pytest.LogCaptureFixture
) -> None:
    here = pack(is_old=is_old)
    status, answer = here.inside.post({"prompt": painting(f"{0x1000000},1,2")})
    assert status == 400
    assert "node_errors" in answer
    (summary,) = here.manager.summaries()
    batch = here.manager.find(summary["batch_id"])
    assert batch is not None
    assert here.ended(batch).state == "cancelled"
    assert "refused" in batch.reason
    assert "max" in batch.reason
    until(lambda: here.feeder is None, "the thread ends")
    assert here.items == []
    assert any(batch.reason in message for message in warnings_in(caplog))


def test_a_first_that_never_comes_ends_the_batch(pack: Callable[..., Feeding], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeder, "TAKEN_SECONDS", 0.05)
    here = pack()
    here.manager.handle_prompt({"prompt": painting()})
    (summary,) = here.manager.summaries()
    batch = here.manager.find(summary["batch_id"])
    assert batch is not None
    assert here.ended(batch).reason == "ComfyUI did not take the first combination"
    assert here.items == []


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
    monkeypatch.setattr(here.manager.host, "queue", lambda: read() if may_look.wait(10) else None)
    prompt = painting("1..3", "Fails", at=failing)
    prompt["30"] = {"class_type": "Save", "inputs": {"images": ["1", 0], "filename_prefix": "own"}}
    batch = here.batch(prompt)
    here.inside.wait_idle()
    may_look.set()
    here.ended(batch)
    assert (batch.state, batch.reason, batch.completed_count) == ("complete", "", 3 - failing)
    assert list(batch.failed) == [0][:failing]


def test_a_limited_number_waits_and_the_rest_follows(
    pack: Callable[..., Feeding], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feeder, "MOST_WAITING", 5)
    monkeypatch.setattr(feeder, "LEAST_WAITING", 1)
    here = pack(held=True)
    most: list[int] = []
    mine: set[str] = set()
    here.watch_puts(lambda item: most.append(len(mine & {*here.inside.waiting(), item[1]})))
    others = [here.post(alone(), number=-1) for _ in range(7)]
    batch = here.batch(painting("1..23"))
    mine.update(batch.prompt_ids)
    until(lambda: batch.queued == 5, "there is room for five, whatever else waits")
    assert here.inside.waiting()[7:] == batch.prompt_ids[:5]
    for _ in others:
        here.inside.run_one()
    here.inside.run_one()
    until(lambda: batch.queued == 6, "one has ended")
    later = here.post(alone())
    here.inside.release()
    assert here.ended(batch).completed_count == 23
    here.inside.wait_ended(later)
    assert max(most) == 5
    assert [item[1] for item in here.items if item[1] in mine] == batch.prompt_ids
    ran = [each for each in here.inside.queue.history if each not in others]
    assert ran.index(later) > ran.index(batch.prompt_ids[5])


def test_of_large_prompts_fewer_wait(pack: Callable[..., Feeding], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeder, "MOST_WAITING_LETTERS", 50_000)
    here = pack(held=True)
    batch = here.batch(painting("1..30", note="x" * 4000))
    until(lambda: batch.queued >= 8, "some are queued")
    here.inside.run_one()
    until(lambda: batch.completed_count == 1, "one has ended")
    until(lambda: len(here.inside.waiting()) in range(8, 13), "its place is taken")
    assert batch.queued < 15
    here.inside.release()
    assert here.ended(batch).completed_count == 30


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


def test_the_thread_ends_with_the_last_batch_and_comes_back(pack: Callable[..., Feeding]) -> None:
    here = pack()
    assert here.feeder is None
    for _ in range(3):
        batch = here.batch(painting("1..3"))
        here.ended(batch)
        until(lambda: here.feeder is None, "the thread ends")
        until(lambda: "e3-iterator" not in [thread.name for thread in threading.enumerate()], "no thread is left")


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
    assert here.is_clean


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


def test_an_error_of_the_queue_is_tried_again(pack: Callable[..., Feeding], caplog: pytest.LogCaptureFixture) -> None:
    here = pack()
    stumbles = [3]

    def stumble(item: tuple[Any, ...]) -> None:
        if item[2]["20"]["inputs"]["e3_index"] == 2 and stumbles[0]:
            stumbles[0] -= 1
            raise OSError("not now")

    here.watch_puts(stumble)
    batch = here.ended(here.batch(painting("1..4")))
    assert (batch.state, batch.completed_count, batch.failed) == ("complete", 4, {})
    assert [item[1] for item in here.items] == batch.prompt_ids
    assert "not now" in caplog.text


def test_errors_without_end_cancel_the_batch_with_a_reason(
    pack: Callable[..., Feeding], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feeder, "MOST_ERRORS", 3)
    here = pack()

    def refuse(item: tuple[Any, ...]) -> None:
        if here.manager.batch_of(item[1]) and item[2]["20"]["inputs"]["e3_index"]:
            raise OSError("never")

    here.watch_puts(refuse)
    other = here.post(alone())
    batch = here.ended(here.batch(painting("1..4")))
    assert batch.state == "cancelled"
    assert "never" in batch.reason
    assert here.inside.wait_ended(other)["status"]["completed"]


def test_without_a_queue_nothing_is_begun(pack: Callable[..., Feeding], caplog: pytest.LogCaptureFixture) -> None:
    here = pack()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(here.inside.queue, "put", None)
        body = {"prompt": painting()}
        before = json.dumps(body)
        for _ in range(3):
            assert here.manager.handle_prompt(body) is body
    assert json.dumps(body) == before
    assert here.manager.summaries() == []
    assert len([record for record in caplog.records if record.levelno == logging.WARNING]) == 1


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
    monkeypatch.setattr(save, "save_grid", lambda *_: may_end.wait(10) and [GRID])
    here = pack()
    slow = here.batch(painting("1,2", "Fails", grid=True, at=2))
    until(lambda: slow.claimed, "its grid is being made")
    other = here.ended(here.batch(painting("1..5")))
    assert (other.completed_count, slow.ended_as) == (5, "")
    may_end.set()
    assert here.ended(slow).state == "complete"


def test_what_is_wrong_is_told_to_the_page_that_asked(pack: Callable[..., Feeding]) -> None:
    here = pack()
    prompt = painting("1,2")
    prompt["101"]["inputs"]["node_id"] = "77"
    here.post(prompt, client_id="mine")
    assert [sid for event, _, sid in here.inside.server.sent if event == "e3.notice"] == ["mine", "mine"]


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


def test_only_the_targets_that_were_asked_for_run(pack: Callable[..., Feeding]) -> None:
    here = pack(held=True)
    prompt = painting("1..3")
    prompt["31"] = {"class_type": "Save", "inputs": {"images": ["1", 0], "filename_prefix": "other"}}
    here.fed(prompt, partial_execution_targets=["31"], extra_data={"auth_token_comfy_org": SECRET})
    assert [item[4] for item in here.items] == [["31"]] * 3
    (feeding,) = here.manager._feeder._feedings
    until(lambda: SECRET not in repr(feeding), "the request is forgotten once all are queued")


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


def test_a_prompt_id_that_was_used_before_is_not_taken_for_the_first(pack: Callable[..., Feeding]) -> None:
    here = pack()
    used = here.post(alone())
    here.inside.wait_ended(used)
    status, _ = here.inside.post({"prompt": painting("99999999,1,2"), "prompt_id": used})
    assert status == 400
    batch = here.manager.find(here.manager.summaries()[0]["batch_id"])
    assert batch is not None
    assert here.ended(batch).state == "cancelled"
    assert [item[1] for item in here.items] == [used]
