"""A batch says of itself how far it is, and nothing that JSON cannot say."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from comfyui_agent.domain.combinations import Axis, Combinations, Mode
from comfyui_agent.nodes.core.batch_state import BatchState, GridWish

IMAGE = {"filename": "a_00001_.png", "subfolder": "E3", "type": "output"}
INDEX = st.integers(0, 5)


def batch_of(total: int = 3) -> BatchState:
    axis = Axis("steps", ("3.steps",), tuple(range(10, 10 + total)))
    batch = BatchState("run_0123abcd", total, Combinations([axis], Mode.MATRIX), "run", "matrix")
    batch.prompt_ids = [f"prompt-{index}" for index in range(total)]
    return batch


def done(batch: BatchState, index: int) -> None:
    batch.results[index] = {"images": [IMAGE], "metadata": {}}
    batch.completed_count += 1


def test_it_begins_with_what_it_was_given_and_nothing_else() -> None:
    before = time.time()
    batch = BatchState("run_0123abcd", 2, [(1,), (2,)], "run", "linear")
    assert (batch.batch_id, batch.total, batch.combinations) == ("run_0123abcd", 2, [(1,), (2,)])
    assert (batch.batch_name, batch.mode) == ("run", "linear")
    assert (batch.results, batch.completed_count, batch.cancelled, batch.prompt_ids) == ({}, 0, False, [])
    assert before <= batch.created_at <= time.time()
    assert batch.values_at(1) == {}, "plain combinations have no names"


def test_no_two_batches_share_what_they_collect() -> None:
    one, other = batch_of(), batch_of()
    done(one, 0)
    one.failed[1] = "no"
    one.wishes["40"] = GridWish()
    one.grids["40"] = [IMAGE]
    one.claimed.add("40")
    assert (other.results, other.failed, other.wishes, other.grids, other.claimed) == ({}, {}, {}, {}, set())


def test_the_state_follows_what_has_happened() -> None:
    batch = batch_of(2)
    seen = [batch.state]
    batch.queued = 1
    seen.append(batch.state)
    done(batch, 0)
    seen.append(batch.state)
    batch.failed[1] = "no"
    seen.append(batch.state)
    batch.ended_as = "complete"
    seen.append(batch.state)
    assert seen == ["pending", "active", "collecting", "collecting", "complete"]


def test_a_failure_alone_is_collecting_too() -> None:
    batch = batch_of()
    batch.queued = 3
    batch.failed[0] = "no"
    assert batch.state == "collecting"


@pytest.mark.parametrize("ended_as", ["", "complete", "expired"])
def test_cancelled_stays_cancelled_however_it_ends(ended_as: str) -> None:
    batch = batch_of()
    done(batch, 0)
    batch.cancelled = True
    batch.ended_as = ended_as
    assert batch.state == "cancelled"
    assert batch.summary()["cancelled"] is True


@given(st.sets(INDEX), st.sets(INDEX), st.integers(0, 6))
def test_every_member_is_open_or_ended_and_never_both(results: set[int], failed: set[int], queued: int) -> None:
    batch = batch_of(6)
    failed -= results
    for index in results:
        done(batch, index)
    batch.failed.update(dict.fromkeys(failed, "no"))
    batch.queued = queued
    assert set(batch.open_indices) == set(range(queued)) - results - failed
    assert batch.is_whole == (len(results) + len(failed) == 6)


def test_members_are_told_apart() -> None:
    batch = batch_of(4)
    batch.queued = 4
    done(batch, 0)
    batch.failed[1] = "KSampler (node 3): out of memory"
    batch.running = 2
    assert [batch.member_state(index) for index in range(4)] == ["done", "failed", "running", "pending"]
    batch.cancelled = True
    assert [batch.member_state(index) for index in range(4)] == ["done", "failed", "cancelled", "cancelled"]


def test_members_that_are_missing_when_it_expires_are_not_pending() -> None:
    batch = batch_of(2)
    done(batch, 0)
    batch.ended_as = "expired"
    assert [batch.member_state(index) for index in range(2)] == ["done", "cancelled"]


def test_the_summary_names_what_pages_show() -> None:
    batch = batch_of(3)
    batch.wishes = {"40": GridWish(), "41": GridWish(rows="steps")}
    batch.queued, batch.running, batch.reason = 3, 1, "why"
    done(batch, 0)
    batch.failed[2] = "no"
    batch.grids = {"40": (), "41": [IMAGE, {**IMAGE, "filename": "b.png"}]}
    assert batch.summary() == {
        "batch_id": "run_0123abcd",
        "batch_name": "run",
        "mode": "matrix",
        "state": "collecting",
        "total": 3,
        "completed_count": 1,
        "failed": 1,
        "cancelled": False,
        "created_at": batch.created_at,
        "reason": "why",
        "running": 1,
        "grid": IMAGE,
        "grids": [IMAGE, {**IMAGE, "filename": "b.png"}],
        "compositor": "40",
    }


def test_without_a_grid_there_is_none() -> None:
    summary = batch_of().summary()
    assert (summary["grid"], summary["grids"], summary["compositor"]) == (None, [], None)


def test_all_that_is_known_is_json_with_members_in_order() -> None:
    batch = batch_of(11)
    batch.queued = 11
    for index in (10, 2, 0):
        done(batch, index)
    batch.failed[1] = "interrupted"
    said: dict[str, Any] = json.loads(json.dumps(batch.as_json()))
    assert list(said["results"]) == ["0", "2", "10"]
    assert said["results"]["2"] == {"images": [IMAGE], "metadata": {}}
    assert said["prompt_ids"] == [f"prompt-{index}" for index in range(11)]
    assert [member["index"] for member in said["members"]] == list(range(11))
    assert said["members"][1] == {
        "index": 1,
        "prompt_id": "prompt-1",
        "state": "failed",
        "values": {"steps": 11},
        "reason": "interrupted",
    }
    assert {key: said[key] for key in batch.summary()} == batch.summary()
