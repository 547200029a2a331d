"""A batch says how far it is, in JSON."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from comfyui_agent.domain.combinations import Axis, Combinations, Mode
from comfyui_agent.nodes.core.batch_state import BatchState, GridOptions

IMAGE = {"filename": "a_00001_.png", "subfolder": "E3", "type": "output"}
INDEX = st.integers(0, 5)


def batch_of(total: int = 3, results: set[int] | None = None, **state: Any) -> BatchState:
    axis = Axis("steps", ("3.steps",), tuple(range(10, 10 + total)))
    batch = BatchState("run_0123abcd", total, Combinations([axis], Mode.MATRIX), "run", "matrix")
    batch.prompt_ids = [f"prompt-{index}" for index in range(total)]
    batch.results = {index: {"images": [IMAGE], "metadata": {}} for index in results or ()}
    batch.completed_count = len(batch.results)
    vars(batch).update(state)
    return batch


def test_a_new_batch_has_what_it_was_given() -> None:
    before = time.time()
    batch = BatchState("run_0123abcd", 2, [(1,), (2,)], "run", "linear")
    assert (batch.batch_id, batch.total, batch.combinations) == ("run_0123abcd", 2, [(1,), (2,)])
    assert (batch.batch_name, batch.mode) == ("run", "linear")
    assert (batch.results, batch.completed_count, batch.cancelled, batch.prompt_ids) == ({}, 0, False, [])
    assert before <= batch.created_at <= time.time()
    assert batch.values_at(1) == {}, "plain combinations have no names"


@pytest.mark.parametrize(
    ("batch", "state", "members"),
    [
        (batch_of(2), "pending", ["pending", "pending"]),
        (batch_of(2, queued=1, running=0), "active", ["running", "pending"]),
        (batch_of(2, {0}, queued=2), "collecting", ["done", "pending"]),
        (batch_of(2, queued=2, failed={0: "no"}), "collecting", ["failed", "pending"]),
        (batch_of(2, {0}, failed={1: "no"}, ended_as="complete"), "complete", ["done", "failed"]),
        (batch_of(2, {0}, ended_as="expired"), "expired", ["done", "cancelled"]),
        (batch_of(2, {0}, cancelled=True, ended_as="expired"), "cancelled", ["done", "cancelled"]),
    ],
)
def test_states_follow_what_has_happened(batch: BatchState, state: str, members: list[str]) -> None:
    assert batch.state == batch.summary()["state"] == state
    assert [batch.member_state(index) for index in range(2)] == members


@given(st.sets(INDEX), st.sets(INDEX))
def test_a_batch_is_whole_when_every_member_has_ended(results: set[int], failed: set[int]) -> None:
    failed -= results
    batch = batch_of(6, results, failed=dict.fromkeys(failed, "no"))
    assert batch.is_whole == (len(results) + len(failed) == 6)


def test_the_summary_has_what_pages_show() -> None:
    batch = batch_of(3, {0}, queued=3, running=1, reason="why", failed={2: "no"})
    batch.grid_options = {"40": GridOptions(), "41": GridOptions(rows="steps")}
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
    summary = batch_of().summary()
    assert (summary["grid"], summary["grids"], summary["compositor"]) == (None, [], None)


def test_the_whole_batch_is_json_with_members_in_order() -> None:
    batch = batch_of(11, {10, 2, 0}, queued=11, failed={1: "interrupted"})
    document: dict[str, Any] = json.loads(json.dumps(batch.as_json()))
    assert list(document["results"]) == ["0", "2", "10"]
    assert document["results"]["2"] == {"images": [IMAGE], "metadata": {}}
    assert document["prompt_ids"] == [f"prompt-{index}" for index in range(11)]
    assert [member["index"] for member in document["members"]] == list(range(11))
    assert document["members"][1] == {
        "index": 1,
        "prompt_id": "prompt-1",
        "state": "failed",
        "values": {"steps": 11},
        "reason": "interrupted",
    }
    assert {key: document[key] for key in batch.summary()} == batch.summary()
