"""Cancelling a batch stops what can be stopped, touches nobody else's prompt, and says what goes on."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from comfyui_agent.nodes.core import feeder, iteration_state, member_endings
from comfyui_agent.nodes.core.batch_state import BatchState
from comfyui_agent.nodes.core.member_endings import Cancellation
from support.comfyui_inside import ComfyUIInside, comfyui_inside
from support.comfyui_nodes import deaf
from support.node_pack import Graph
from support.packs import Pack, alone, painting, until


class Cancelling(Pack):
    """With a node that hears no interrupt."""

    def __init__(self, inside: ComfyUIInside) -> None:
        super().__init__(inside)
        self.paints = threading.Event()
        inside.classes["Deaf"] = deaf(self.paints, inside.unblocked)

    def newest(self) -> BatchState:
        until(self.manager.summaries, "there is a batch")
        batch = self.manager.find(self.manager.summaries()[0]["batch_id"])
        assert batch is not None
        return batch

    def fed(self, prompt: Graph) -> BatchState:
        """A batch all of whose members are in the queue."""
        self.post(prompt)
        batch = self.newest()
        until(lambda: batch.queued == batch.total, "all are queued")
        return batch

    def cancelled(self, batch: BatchState) -> Cancellation:
        done = self.manager.cancel_batch(batch.batch_id)
        assert done is not None
        assert done.state == batch.state == "cancelled"
        assert not self.manager.is_active(batch.batch_id)
        return done

    @contextlib.contextmanager
    def posting_slowly(self, prompt: Graph) -> Iterator[threading.Event]:
        """ComfyUI checks the first, and goes on when the event is set."""
        execution: Any = self.inside.modules["execution"]
        may_pass = threading.Event()
        validate = execution.validate_prompt

        async def slowly(prompt_id: str, prompt: Graph, targets: Any) -> Any:
            if asyncio.get_running_loop() is self.inside.server.loop:
                await asyncio.to_thread(may_pass.wait, 10)
            return await validate(prompt_id, prompt, targets)

        execution.validate_prompt = slowly
        posting = threading.Thread(target=self.inside.post, args=({"prompt": prompt},))
        posting.start()
        try:
            yield may_pass
        finally:
            may_pass.set()
            posting.join(10)
            execution.validate_prompt = validate


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cancelling]:
    monkeypatch.setattr(feeder, "TICK_SECONDS", 0.005)
    with comfyui_inside(tmp_path, held=True) as inside, contextlib.closing(Cancelling(inside)) as entered:
        monkeypatch.setattr(iteration_state, "_instance", entered.manager)
        yield entered


@pytest.fixture
def _briefly(monkeypatch: pytest.MonkeyPatch) -> None:
    """What does not stop is not waited for."""
    monkeypatch.setattr(member_endings, "STOP_SECONDS", 0.4)


def test_what_waits_is_deleted_and_what_runs_is_interrupted(here: Cancelling) -> None:
    other = here.post(alone(painter="Colour"))
    batch = here.fed(painting("1..6", "Blocks"))
    after = here.post(alone(painter="Colour"))
    here.inside.run_one()
    assert here.inside.start_one() == batch.prompt_ids[0]
    done = here.cancelled(batch)
    assert done.interrupted == batch.prompt_ids[:1]
    assert sorted(done.deleted) == sorted(batch.prompt_ids[1:])
    assert done.not_stopped == []
    assert done.message == "6 of 6 will not be made; 0 are there"
    assert here.inside.waiting() == [after]
    assert here.inside.wait_ended(batch.prompt_ids[0])["status"]["messages"][-1][0] == "execution_interrupted"
    here.inside.release()
    for own in (other, after):
        assert here.inside.wait_ended(own)["status"]["completed"]
    assert done.interrupted == batch.prompt_ids[:1]
    assert not here.manager.register_result(batch.batch_id, 3, [], {})
    until(lambda: here.manager._feeder._thread is None, "the thread ends")


def test_what_is_there_stays(here: Cancelling) -> None:
    batch = here.fed(painting("1..5", "Colour"))
    ran = [here.inside.run_one() for _ in range(2)]
    done = here.cancelled(batch)
    assert ran == batch.prompt_ids[:2]
    assert sorted(done.deleted) == sorted(batch.prompt_ids[2:])
    assert done.interrupted == []
    assert (batch.completed_count, batch.failed) == (2, {})
    assert done.message == "3 of 5 will not be made; 2 are there"
    states = [member["state"] for member in batch.as_json()["members"]]
    assert states == ["done", "done", "cancelled", "cancelled", "cancelled"]
    assert here.inside.waiting() == []


def test_many_who_cancel_at_once_all_get_an_answer(here: Cancelling) -> None:
    batch = here.fed(painting("1..30", "Blocks"))
    here.inside.start_one()
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(here.manager.cancel_batch, [batch.batch_id] * 8))
    assert all(done is not None and done.state == "cancelled" and done.not_stopped == [] for done in answers)
    assert sorted(each for done in answers if done for each in done.deleted) == sorted(batch.prompt_ids[1:])
    assert [each["state"] for each in here.manager.summaries()] == ["cancelled"]
    assert here.inside.waiting() == []


def test_the_running_prompt_of_somebody_else_is_never_interrupted(here: Cancelling) -> None:
    own = here.post(alone(painter="Blocks"))
    batch = here.fed(painting("1..3", "Blocks"))
    assert here.inside.start_one() == own
    done = here.cancelled(batch)
    assert (done.interrupted, sorted(done.deleted)) == ([], sorted(batch.prompt_ids))
    assert not here.inside.interrupted.is_set()
    assert here.inside.running() == [own]
    here.inside.unblocked.set()
    assert here.inside.wait_ended(own)["status"]["completed"]


@pytest.mark.usefixtures("_briefly")
def test_what_does_not_stop_is_reported_and_not_counted(here: Cancelling) -> None:
    batch = here.fed(painting("1..3", "Deaf"))
    here.inside.start_one()
    assert here.paints.wait(60)
    done = here.cancelled(batch)
    assert done.interrupted == []
    assert done.not_stopped == [{"prompt_id": batch.prompt_ids[0], "reason": member_endings.STILL_RUNS}]
    assert sorted(done.deleted) == sorted(batch.prompt_ids[1:])
    assert member_endings.STILL_RUNS in batch.reason
    here.inside.unblocked.set()
    here.inside.wait_ended(batch.prompt_ids[0])
    assert batch.results == {}


@pytest.mark.usefixtures("_briefly")
def test_what_cannot_be_taken_out_of_the_queue_is_reported(here: Cancelling, monkeypatch: pytest.MonkeyPatch) -> None:
    batch = here.fed(painting("1..3", "Colour"))
    stuck, delete = batch.prompt_ids[1], here.inside.queue.delete_queue_item
    stays = (0.0, stuck)
    monkeypatch.setattr(here.inside.queue, "delete_queue_item", lambda asks: not asks(stays) and delete(asks))
    done = here.cancelled(batch)
    assert done.not_stopped == [{"prompt_id": stuck, "reason": member_endings.STILL_WAITS}]
    assert sorted(done.deleted) == sorted({*batch.prompt_ids} - {stuck})


def test_an_interrupt_that_came_a_moment_too_early_is_said_again(
    here: Cancelling, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ComfyUI forgets an interrupt when it begins a prompt, which is in the list of what runs already."""
    nodes = here.inside.modules["nodes"]
    interrupt, said_so = nodes.interrupt_processing, [0]

    def forgets_the_first() -> None:
        said_so[0] += 1
        if said_so[0] > 1:
            interrupt()

    monkeypatch.setattr(nodes, "interrupt_processing", forgets_the_first)
    monkeypatch.setattr(member_endings, "STOP_SECONDS", 2.0)
    batch = here.fed(painting("1..2", "Blocks"))
    here.inside.start_one()
    done = here.cancelled(batch)
    assert (done.interrupted, done.not_stopped) == (batch.prompt_ids[:1], [])
    assert here.inside.running() == []


def test_a_first_that_is_still_on_its_way_is_waited_for_and_stopped(here: Cancelling) -> None:
    with here.posting_slowly(painting("1..3", "Blocks")) as may_pass, ThreadPoolExecutor(1) as pool:
        batch = here.newest()
        answer = pool.submit(here.cancelled, batch)
        until(lambda: batch.cancelled, "it is being cancelled")
        may_pass.set()
        done = answer.result(10)
    assert done.deleted == [batch.prompt_ids[0]]
    assert done.not_stopped == []
    assert here.inside.waiting() == []


def test_a_first_that_begins_to_run_while_it_is_cancelled_is_interrupted(here: Cancelling) -> None:
    here.inside.release()
    with here.posting_slowly(painting("1..3", "Blocks")) as may_pass, ThreadPoolExecutor(1) as pool:
        batch = here.newest()
        answer = pool.submit(here.cancelled, batch)
        until(lambda: batch.cancelled, "it is being cancelled")
        may_pass.set()
        done = answer.result(10)
    assert sorted([*done.deleted, *done.interrupted]) == [batch.prompt_ids[0]]
    assert done.not_stopped == []
    here.inside.wait_idle()
    assert batch.results == {}
    assert len(here.inside.queue.history) <= 1, "no other member was ever queued"


@pytest.mark.usefixtures("_briefly")
def test_a_first_that_never_comes_is_not_waited_for_for_ever(here: Cancelling) -> None:
    here.manager.handle_prompt({"prompt": painting("1..3", "Blocks")})
    batch = here.newest()
    done = here.cancelled(batch)
    assert (done.deleted, done.interrupted) == ([], [])
    assert done.not_stopped == [{"prompt_id": batch.prompt_ids[0], "reason": member_endings.STILL_CHECKED}]
    assert here.inside.waiting() == []


def test_a_first_that_runs_under_an_id_of_comfyuis_own_is_stopped_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feeder, "TICK_SECONDS", 0.005)
    monkeypatch.setattr(member_endings, "STOP_SECONDS", 1.0)
    version = comfyui_inside(tmp_path, is_old=True, held=True)
    with version as inside, contextlib.closing(Cancelling(inside)) as here:
        body = {"prompt": painting("1..3", "Colour")}
        here.manager.handle_prompt(body)
        batch = here.newest()
        with ThreadPoolExecutor(1) as pool:
            answer = pool.submit(here.cancelled, batch)
            until(lambda: batch.cancelled, "it is being cancelled")
            inside.queue.put((0, "an id of its own", body["prompt"], {}, ["30"]))
            done = answer.result(10)
        assert (done.deleted, done.not_stopped) == (["an id of its own"], [])
        assert inside.waiting() == []


def test_members_that_are_not_queued_yet_never_are(here: Cancelling, monkeypatch: pytest.MonkeyPatch) -> None:
    queue, reached, may_go = here.inside.queue, threading.Event(), threading.Event()
    put, queued = queue.put, []

    def slow_put(item: tuple[Any, ...]) -> None:
        queued.append(item[1])
        put(item)
        if item[2]["20"]["inputs"]["e3_index"] == 3:
            reached.set()
            may_go.wait(60)

    monkeypatch.setattr(queue, "put", slow_put)
    here.post(painting("1..8", "Colour"))
    batch = here.newest()
    assert reached.wait(60)
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(here.cancelled, batch)
        may_go.set()
        done = answer.result(10)
    until(lambda: here.manager._feeder._thread is None, "the thread ends")
    assert queued == batch.prompt_ids[: len(queued)]
    assert 4 <= len(queued) < 8 or sorted(done.deleted) == sorted(batch.prompt_ids)
    assert sorted(done.deleted) == sorted(queued)
    assert done.not_stopped == []
    assert here.inside.waiting() == []
