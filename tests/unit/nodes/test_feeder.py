"""Members are queued behind the first, each as a prompt of its own, and the batch follows all of them to their end."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable
from typing import Any

import pytest

from comfyui_agent.nodes.core import feeder
from support.packs import alone, owner_of, painting, until
from support.queued_members import SECRET, VERSIONS, Feeding, warnings_in


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
        is_known = owner_of(here.manager, item[1]) is not None
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


def test_the_thread_ends_with_the_last_batch_and_comes_back(pack: Callable[..., Feeding]) -> None:
    here = pack()
    assert here.feeder is None
    for _ in range(3):
        batch = here.batch(painting("1..3"))
        here.ended(batch)
        until(lambda: here.feeder is None, "the thread ends")
        until(lambda: "e3-iterator" not in [thread.name for thread in threading.enumerate()], "no thread is left")


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
        if owner_of(here.manager, item[1]) and item[2]["20"]["inputs"]["e3_index"]:
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


def test_what_is_wrong_is_reported_to_the_page_that_asked(pack: Callable[..., Feeding]) -> None:
    here = pack()
    prompt = painting("1,2")
    prompt["101"]["inputs"]["node_id"] = "77"
    here.post(prompt, client_id="mine")
    assert [sid for event, _, sid in here.inside.server.sent if event == "e3.notice"] == ["mine", "mine"]


def test_only_the_targets_that_were_asked_for_run(pack: Callable[..., Feeding]) -> None:
    here = pack(held=True)
    prompt = painting("1..3")
    prompt["31"] = {"class_type": "Save", "inputs": {"images": ["1", 0], "filename_prefix": "other"}}
    here.fed(prompt, partial_execution_targets=["31"], extra_data={"auth_token_comfy_org": SECRET})
    assert [item[4] for item in here.items] == [["31"]] * 3
    (feeding,) = here.manager._feeder._feedings
    until(lambda: SECRET not in repr(feeding), "the request is forgotten once all are queued")


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
