"""Members are queued behind the first, each is a prompt of its own, and however one ends the batch hears of it."""

from __future__ import annotations

import asyncio
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
VERSIONS = [
    {"version": "six", "validate": "async3"},
    {"version": "six", "validate": "async2"},
    {"version": "five", "validate": "async3", "sensitive_keys": True},
    {"version": "five", "validate": "async3"},
    {"version": "five", "validate": "async2"},
    {"version": "five", "validate": "sync"},
]


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
    module = types.ModuleType("comfyui_agent.nodes.core.grid_files")
    module.save_grid = lambda *_: [GRID]  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)


def warnings_in(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def test_members_stand_behind_the_first_and_before_what_is_queued_next(pack: Callable[..., Feeding]) -> None:
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


def test_members_of_a_batch_with_a_number_have_it_too(pack: Callable[..., Feeding]) -> None:
    here = pack(held=True)
    later = here.post(alone(), number=6)
    earlier = here.post(alone(), number=5)
    batch = here.fed(painting("1..5"), number=5.0001)
    assert here.inside.waiting() == [earlier, *batch.prompt_ids, later]
    assert here.inside.server.number == 0


def test_two_batches_at_once_are_apart(pack: Callable[..., Feeding]) -> None:
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


@pytest.mark.parametrize("version", VERSIONS, ids=lambda each: "-".join(map(str, each.values())))
def test_every_result_counts_though_members_run_the_instant_they_are_put(
    pack: Callable[..., Feeding], version: dict[str, Any]
) -> None:
    here = pack(**version)
    strangers: list[str] = []

    def look(item: tuple[Any, ...]) -> None:
        is_known = here.manager.batch_of(item[1]) is not None
        strangers.extend([] if is_known or version["validate"] == "sync" else [item[1]])

    here.watch_puts(look)
    batch = here.batch(painting("1..40"))
    assert here.ended(batch).state == "complete"
    assert (batch.completed_count, batch.failed) == (40, {})
    assert strangers == []
    assert len(set(batch.prompt_ids)) == 40
    for index, prompt_id in enumerate(batch.prompt_ids):
        ran = here.inside.history(prompt_id)["prompt"][2]
        assert ran["1"]["inputs"]["colour"] == index + 1
        assert ran["20"]["inputs"]["e3_index"] == index
    assert [item[1] for item in here.items] == batch.prompt_ids


@pytest.mark.parametrize("version", VERSIONS, ids=lambda each: "-".join(map(str, each.values())))
def test_members_are_queued_as_the_first_is_and_secrets_stay_where_it_has_them(
    pack: Callable[..., Feeding], version: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    here = pack(**version, held=True)
    extra = {"auth_token_comfy_org": SECRET, "extra_pnginfo": {"workflow": {"nodes": []}}, "own": 1}
    batch = here.fed(painting("1..3", "Fails", at=2), extra_data=extra, client_id="page")
    first, *others = here.items
    for item in others:
        assert len(item) == len(first) == (6 if version["version"] == "six" else 5)
        assert {**item[3], "create_time": 0} == {**first[3], "create_time": 0}
        assert item[3]["client_id"] == "page"
        assert item[4] == first[4]
        assert item[5:] == first[5:]
    for item in here.items:
        assert (SECRET in json.dumps(item[:5])) == (version["version"] == "five"), "there is no other place then"
    here.inside.release()
    here.ended(batch)
    assert SECRET not in caplog.text
    assert SECRET not in json.dumps(here.manager.describe(batch.batch_id))
    assert SECRET not in json.dumps([message.data for message in here.inside.server.sent])


def test_the_request_is_forgotten_once_all_are_queued(pack: Callable[..., Feeding]) -> None:
    here = pack(held=True)
    here.fed(painting("1..3"), extra_data={"auth_token_comfy_org": SECRET})
    (feeding_,) = here.manager._feeder._feedings
    until(lambda: SECRET not in repr(feeding_), "the secret is gone")


def test_no_member_shares_anything_with_another(pack: Callable[..., Feeding]) -> None:
    here = pack(held=True)
    here.fed(painting("1..4"), extra_data={"extra_pnginfo": {"workflow": {"nodes": []}}})
    before = [json.dumps(item) for item in here.items[1:]]
    spoiled = here.items[0]
    for node in spoiled[2].values():
        node["inputs"].clear()
    spoiled[3]["extra_pnginfo"]["workflow"]["nodes"].append("spoiled")
    spoiled[4].clear()
    assert [json.dumps(item) for item in here.items[1:]] == before


def test_only_the_targets_that_were_asked_for_run_in_every_member(pack: Callable[..., Feeding]) -> None:
    here = pack(held=True)
    prompt = painting("1..3")
    prompt["31"] = {"class_type": "Save", "inputs": {"images": ["1", 0], "filename_prefix": "other"}}
    here.fed(prompt, partial_execution_targets=["31"])
    assert [item[4] for item in here.items] == [["31"]] * 3


def test_prompts_in_between_are_untouched(pack: Callable[..., Feeding]) -> None:
    here = pack(held=True)
    batch = here.fed(painting("1..4"))
    off = painting("1..4")
    off["20"]["inputs"]["enabled"] = False
    bodies = [alone(7), off]
    own = [here.post(json.loads(json.dumps(body)), front=True) for body in bodies]
    assert [next(item[2] for item in here.items if item[1] == prompt_id) for prompt_id in own] == bodies
    here.inside.release()
    assert here.ended(batch).completed_count == 4
    assert all(here.inside.wait_ended(prompt_id)["status"]["completed"] for prompt_id in own)


@pytest.mark.parametrize("version", VERSIONS, ids=lambda each: "-".join(map(str, each.values())))
def test_a_first_that_is_refused_queues_nothing(
    pack: Callable[..., Feeding], version: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    here = pack(**version)
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
    assert any(batch.reason in said for said in warnings_in(caplog))


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


def test_a_check_that_raises_is_a_refusal(pack: Callable[..., Feeding], monkeypatch: pytest.MonkeyPatch) -> None:
    here = pack()
    execution = here.inside.modules["execution"]
    validate = execution.validate_prompt

    async def stumbles(prompt_id: str, prompt: Graph, targets: Any) -> Any:
        if prompt["1"]["inputs"]["colour"] == 2:
            raise KeyError("of another's node")
        return await validate(prompt_id, prompt, targets)

    monkeypatch.setattr(execution, "validate_prompt", stumbles)
    batch = here.ended(here.batch(painting("1,2,3")))
    assert (batch.completed_count, list(batch.failed)) == (2, [1])
    assert "of another's node" in batch.failed[1]


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
    here.inside.interrupts.interrupt()
    until(lambda: 0 in batch.failed, "the interrupt is seen")
    here.inside.unblock()
    here.inside.release()
    assert here.ended(batch).failed == {0: "interrupted"}
    assert batch.completed_count == 2


def test_members_that_are_deleted_from_the_queue_have_failed(pack: Callable[..., Feeding]) -> None:
    here = pack(held=True)
    batch = here.fed(painting("1..4"))
    here.inside.queue.delete_queue_item(lambda item: item[1] == batch.prompt_ids[2])
    until(lambda: 2 in batch.failed, "it is seen to be gone")
    here.inside.release()
    assert here.ended(batch).failed == {2: REMOVED}
    assert batch.completed_count == 3


def test_a_queue_that_is_cleared_ends_the_batch(pack: Callable[..., Feeding]) -> None:
    here = pack(held=True)
    batch = here.fed(painting("1..4"))
    here.inside.run_one()
    here.inside.queue.wipe_queue()
    assert here.ended(batch).failed == dict.fromkeys([1, 2, 3], REMOVED)
    assert (batch.state, batch.completed_count) == ("complete", 1)


def test_a_history_that_is_cleared_takes_no_result_away(pack: Callable[..., Feeding]) -> None:
    here = pack(held=True)
    batch = here.fed(painting("1..4"))
    for _ in range(4):
        here.inside.run_one()
        here.inside.queue.wipe_history()
    assert here.ended(batch).completed_count == 4
    assert batch.failed == {}


def test_a_member_whose_history_is_cleared_unseen_ran_all_the_same(
    pack: Callable[..., Feeding], monkeypatch: pytest.MonkeyPatch
) -> None:
    here = pack(held=True)
    prompt = painting("1..2", "Blocks")
    prompt["30"] = {"class_type": "Save", "inputs": {"images": ["1", 0], "filename_prefix": "own"}}
    batch = here.fed(prompt)
    here.inside.start_one()
    until(lambda: batch.running == 0, "it is seen to run")
    monkeypatch.setattr(here.inside.queue, "get_history", lambda **_: {})
    here.inside.unblock()
    until(lambda: 0 in batch.failed, "its end is seen")
    assert batch.failed == {0: GONE}


def test_what_fails_behind_the_saved_picture_is_a_remark(pack: Callable[..., Feeding]) -> None:
    here = pack()
    prompt = painting("1..2")
    late = {"colour": 5, "width": 4, "height": 4, "at": 5}
    prompt["50"] = {"class_type": "Fails", "inputs": late}
    prompt["51"] = {"class_type": "Save", "inputs": {"images": ["50", 0], "filename_prefix": "late"}}
    batch = here.ended(here.batch(prompt))
    assert (batch.state, batch.completed_count, batch.failed) == ("complete", 2, {})
    member = batch.as_json()["members"][0]
    assert (member["state"], member["reason"]) == ("done", "Fails (node 50): the colour is 5")


def test_a_batch_that_saves_with_comfyuis_own_node_is_followed_by_its_history(pack: Callable[..., Feeding]) -> None:
    here = pack()
    prompt = painting("1..4", "Fails", at=2)
    prompt["30"] = {"class_type": "Save", "inputs": {"images": ["1", 0], "filename_prefix": "own"}}
    batch = here.ended(here.batch(prompt))
    assert (batch.completed_count, list(batch.failed)) == (3, [1])
    assert [image["type"] for image in batch.results[3]["images"]] == ["output"]


@pytest.mark.parametrize("version", [VERSIONS[0], VERSIONS[-1]], ids=lambda each: "-".join(map(str, each.values())))
@pytest.mark.parametrize("failing", [0, 1])
def test_a_first_that_ended_before_anybody_looked_is_found(
    pack: Callable[..., Feeding], monkeypatch: pytest.MonkeyPatch, version: dict[str, Any], failing: int
) -> None:
    monkeypatch.setattr(feeder, "TAKEN_SECONDS", 1.0)
    here = pack(**version)
    may_look = threading.Event()
    standing = here.manager.host.standing
    monkeypatch.setattr(here.manager.host, "standing", lambda: standing() if may_look.wait(10) else None)
    prompt = painting("1..3", "Fails", at=failing)
    prompt["30"] = {"class_type": "Save", "inputs": {"images": ["1", 0], "filename_prefix": "own"}}
    batch = here.batch(prompt)
    here.inside.wait_idle()
    may_look.set()
    here.ended(batch)
    assert (batch.state, batch.reason, batch.completed_count) == ("complete", "", 3 - failing)
    assert list(batch.failed) == [0][:failing]


def test_no_more_wait_than_may_and_the_rest_follows(
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


def test_one_that_is_deleted_makes_room_for_another(
    pack: Callable[..., Feeding], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feeder, "MOST_WAITING", 8)
    here = pack(held=True)
    batch = here.batch(painting("1..10"))
    until(lambda: batch.queued == 8, "there is room for eight")
    here.inside.queue.delete_queue_item(lambda item: item[1] == batch.prompt_ids[7])
    until(lambda: batch.queued == 9, "there is room again")
    here.inside.release()
    assert here.ended(batch).failed == {7: REMOVED}
    assert batch.completed_count == 9


def test_the_thread_ends_with_the_last_batch_and_comes_back(pack: Callable[..., Feeding]) -> None:
    here = pack()
    assert here.feeder is None
    for _ in range(3):
        batch = here.batch(painting("1..3"))
        here.ended(batch)
        until(lambda: here.feeder is None, "the thread ends")
        until(lambda: "e3-iterator" not in [thread.name for thread in threading.enumerate()], "no thread is left")


def test_a_batch_that_comes_while_the_thread_ends_is_not_forgotten(pack: Callable[..., Feeding]) -> None:
    here = pack()
    batches = []
    for _ in range(25):
        batches.append(here.batch(painting("1")))
        until(lambda: batches[-1].ended_as, "the batch ends")
    assert {batch.state for batch in batches} == {"complete"}


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
    here.inside.unblock()
    here.inside.wait_ended(batch.prompt_ids[0])
    until(lambda: batch.completed_count == 1, "the result is there")
    until(lambda: batch.running is None, "nothing runs")
    jump[0] += EXPIRY_SECONDS + 1
    looks, standing = [0], here.manager.host.standing

    def counted() -> Any:
        looks[0] += 1
        return standing()

    monkeypatch.setattr(here.manager.host, "standing", counted)
    until(lambda: looks[0] >= 3, "the thread looks again")
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


@pytest.mark.usefixtures("_grids")
def test_the_grid_is_shown_by_the_last_member_if_that_can(pack: Callable[..., Feeding]) -> None:
    here = pack()
    batch = here.ended(here.batch(painting("1..3", "Fails", grid=True, at=2)))
    last = here.inside.wait_ended(batch.prompt_ids[2])
    assert last["outputs"]["40"] == {"images": [GRID]}
    assert here.inside.history(batch.prompt_ids[0])["outputs"]["40"] == {"images": []}
    assert batch.state == "complete"


def test_pages_hear_how_the_batch_goes(pack: Callable[..., Feeding]) -> None:
    here = pack(held=True)
    batch = here.fed(painting("1..3"))
    for count in (1, 2, 3):
        here.inside.run_one()
        until(lambda: count in [each["completed_count"] for each in here.inside.sent("e3.batch")], "it is told")  # noqa: B023
    here.ended(batch)
    until(lambda: here.inside.sent("e3.batch")[-1]["state"] == "complete", "the end is told")


def test_a_queue_that_stumbles_once_is_tried_again(
    pack: Callable[..., Feeding], caplog: pytest.LogCaptureFixture
) -> None:
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


def test_a_queue_that_takes_nothing_ends_the_batch_with_a_reason(
    pack: Callable[..., Feeding], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feeder, "MOST_TROUBLES", 3)
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


@contextlib.contextmanager
def without(here: Feeding, piece: str) -> Iterator[None]:
    """A version that does not have this. Only the pack misses it."""
    with pytest.MonkeyPatch.context() as patch:
        if piece == "validate_prompt":
            execution = here.inside.modules["execution"]
            lacking = types.ModuleType("execution")
            vars(lacking).update({name: value for name, value in vars(execution).items() if name != piece})
            patch.setitem(sys.modules, "execution", lacking)
        else:
            patch.setattr(here.inside.queue, piece, None)
        yield


@pytest.mark.parametrize("piece", ["get_current_queue_volatile", "validate_prompt", "get_history"])
def test_without_a_piece_it_is_said_once_and_the_batch_comes_to_its_end(
    pack: Callable[..., Feeding], piece: str, caplog: pytest.LogCaptureFixture
) -> None:
    here = pack()
    with without(here, piece):
        batches = [here.batch(painting("1..5")) for _ in range(3)]
        for batch in batches:
            here.ended(batch)
        assert [(batch.state, batch.completed_count) for batch in batches] == [("complete", 5)] * 3
        until(lambda: here.feeder is None, "the thread ends")
    said = warnings_in(caplog)
    assert len(said) == 1 or (piece == "get_history" and not said), "it may be that nobody asked for it"
    assert all(piece in each for each in said)
    assert "Traceback" not in caplog.text


def test_without_a_history_a_first_that_takes_its_time_is_waited_for(
    pack: Callable[..., Feeding], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    here = pack()
    execution = here.inside.modules["execution"]
    validate, looks, may_pass = execution.validate_prompt, [0], threading.Event()
    standing = here.manager.host.standing

    async def slowly(prompt_id: str, prompt: Graph, targets: Any) -> Any:
        if asyncio.get_running_loop() is here.inside.server.loop:
            await asyncio.to_thread(may_pass.wait, 10)
        return await validate(prompt_id, prompt, targets)

    def counted() -> Any:
        looks[0] += 1
        return standing()

    monkeypatch.setattr(execution, "validate_prompt", slowly)
    monkeypatch.setattr(here.manager.host, "standing", counted)
    posted = threading.Thread(target=here.post, args=(painting("1..3"),))
    with without(here, "get_history"):
        posted.start()
        until(
            lambda: looks[0] >= 2 * feeder.MOST_TROUBLES or (here.manager.summaries()[:1] and here.feeder is None),
            "the thread looks for the first",
        )
        may_pass.set()
        posted.join(10)
        (summary,) = here.manager.summaries()
        batch = here.manager.find(summary["batch_id"])
        assert batch is not None
        assert here.ended(batch).completed_count == 3
    (said,) = warnings_in(caplog)
    assert "get_history" in said


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
    until(lambda: here.manager._feeder._feedings[0].known == 8, "they were seen to wait")
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


def test_an_id_that_was_used_before_does_not_stand_for_the_first(pack: Callable[..., Feeding]) -> None:
    here = pack()
    used = here.post(alone())
    here.inside.wait_ended(used)
    status, _ = here.inside.post({"prompt": painting("99999999,1,2"), "prompt_id": used})
    assert status == 400
    batch = here.manager.find(here.manager.summaries()[0]["batch_id"])
    assert batch is not None
    assert here.ended(batch).state == "cancelled"
    assert [item[1] for item in here.items] == [used]


@pytest.mark.usefixtures("_grids")
def test_a_grid_that_takes_long_keeps_no_other_batch_waiting(
    pack: Callable[..., Feeding], monkeypatch: pytest.MonkeyPatch
) -> None:
    may_end = threading.Event()
    save = sys.modules["comfyui_agent.nodes.core.grid_files"]
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
    monkeypatch.setattr("comfyui_agent.nodes.host.LATELY", 2)
    here = pack()
    see_first = here.manager._feeder._see_first
    may_look = threading.Event()
    monkeypatch.setattr(
        here.manager._feeder, "_see_first", lambda feeding: see_first(feeding) if may_look.is_set() else False
    )
    batch = here.batch(painting("1..3", "Fails", at=1))
    for _ in range(5):
        here.inside.wait_ended(here.post(alone()))
    may_look.set()
    assert (here.ended(batch).completed_count, list(batch.failed)) == (2, [0])


def test_a_grid_whose_iterator_passes_through_another_node_is_made(pack: Callable[..., Feeding]) -> None:
    here = pack()

    class Pass:
        CATEGORY, FUNCTION, RETURN_TYPES = "test", "run", ("WI_ITERATOR",)

        @classmethod
        def INPUT_TYPES(cls) -> dict[str, Any]:
            return {"required": {"iterator": ("WI_ITERATOR",)}}

        def run(self, iterator: Any) -> tuple[Any]:
            return (iterator,)

    here.inside.classes["Pass"] = Pass
    prompt = painting("1..3", grid=True)
    prompt["25"] = {"class_type": "Pass", "inputs": {"iterator": ["20", 0]}}
    for node_id in ("30", "40"):
        prompt[node_id]["inputs"]["iterator"] = ["25", 0]
    batch = here.ended(here.batch(prompt))
    assert (batch.completed_count, len(batch.grids["40"])) == (3, 1)
