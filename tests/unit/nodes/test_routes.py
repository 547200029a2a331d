"""Batches over HTTP, through aiohttp's own server: what pages and scripts rely on."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from comfyui_agent.nodes.core import iteration_state, member_endings
from comfyui_agent.nodes.core.iteration_state import IterationStateManager
from support.comfyui_inside import ComfyUIInside
from support.comfyui_nodes import deaf
from support.packs import joined, owner_of, until

PATIENCE_SECONDS = 15.0
SUMMARY = {
    "batch_id": str,
    "batch_name": str,
    "mode": str,
    "state": str,
    "total": int,
    "completed_count": int,
    "failed": int,
    "cancelled": bool,
    "created_at": float,
    "reason": str,
    "grid": (dict, type(None)),
    "compositor": (str, type(None)),
    "running": (int, type(None)),
}
WHOLE = {**SUMMARY, "prompt_ids": list, "results": dict, "members": list}
CANCELLATION = {
    "batch_id": str,
    "state": str,
    "deleted": list,
    "interrupted": list,
    "not_stopped": list,
    "message": str,
}


@pytest.fixture
def inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ComfyUIInside]:
    """A ComfyUI with the nodes in it, whose queue is held."""
    with joined(tmp_path, monkeypatch) as comfyui:
        yield comfyui


def graph(painter: str = "Colour", name: str = "cats", grid: bool = True) -> dict[str, Any]:
    parameter = {"name": "colour", "type": "INT", "values": "1,2,3", "node_id": "1", "input_name": "colour"}
    iterator = {"enabled": True, "mode": "matrix", "batch_name": name, "param_1": ["5", 0]}
    prompt: dict[str, Any] = {
        "1": {"class_type": painter, "inputs": {"colour": 0, "width": 6, "height": 4}},
        "5": {"class_type": "WIParameter", "inputs": parameter},
        "20": {"class_type": "WIIterator", "inputs": iterator},
        "30": {
            "class_type": "WISaveImage",
            "inputs": {"images": ["1", 0], "filename_prefix": "a", "iterator": ["20", 0]},
        },
    }
    if grid:
        prompt["40"] = {"class_type": "WIGridCompositor", "inputs": {"images": ["30", 0], "iterator": ["20", 0]}}
    return prompt


def begun(inside: ComfyUIInside, prompt: dict[str, Any]) -> str:
    """Queue a prompt: its batch, as soon as all members stand in the queue."""
    before = len(inside.waiting())
    status, answer = inside.post({"prompt": prompt})
    assert status == 200, answer
    found = owner_of(IterationStateManager.instance(), answer["prompt_id"])
    assert found is not None
    until(lambda: len(inside.waiting()) == before + 3)
    return found[0]


def asked(inside: ComfyUIInside, path: str, method: str = "GET") -> Any:
    status, answer = inside.request(method, path)
    assert status == 200, answer
    return answer


def has_shape(answer: dict[str, Any], shape: dict[str, Any]) -> bool:
    wrong = {
        key: answer.get(key) for key, kind in shape.items() if key not in answer or not isinstance(answer[key], kind)
    }
    assert wrong == {}
    return True


def test_batches_are_listed_newest_first(inside: ComfyUIInside) -> None:
    ids = [begun(inside, graph(name=name)) for name in ("first", "second", "third")]
    listed = asked(inside, "/wi/batches")["batches"]
    assert [each["batch_id"] for each in listed] == ids[::-1]
    assert [each["batch_name"] for each in listed] == ["third", "second", "first"]
    assert all(has_shape(each, SUMMARY) for each in listed)
    assert not any({"members", "prompt_ids", "results"} & set(each) for each in listed)
    asked(inside, f"/wi/cancel_batch/{ids[1]}", "POST")
    assert [each["batch_id"] for each in asked(inside, "/wi/batches")["batches"]] == ids[::-1]


def test_a_batch_is_shown_with_its_members(inside: ComfyUIInside) -> None:
    batch_id = begun(inside, graph())
    batch = asked(inside, f"/wi/batch/{batch_id}")
    assert has_shape(batch, WHOLE)
    assert (batch["batch_id"], batch["batch_name"], batch["mode"]) == (batch_id, "cats", "matrix")
    assert (batch["state"], batch["total"], batch["completed_count"], batch["failed"]) == ("active", 3, 0, 0)
    assert (batch["grid"], batch["compositor"], batch["results"], batch["cancelled"]) == (None, "40", {}, False)
    assert batch["prompt_ids"] == inside.waiting()
    assert batch["members"] == [
        {"index": index, "prompt_id": prompt_id, "state": "pending", "values": {"colour": index + 1}, "reason": ""}
        for index, prompt_id in enumerate(batch["prompt_ids"])
    ]


def test_a_batch_shows_how_far_it_is(inside: ComfyUIInside) -> None:
    batch_id = begun(inside, graph("Blocks"))
    inside.start_one()
    until(lambda: asked(inside, f"/wi/batch/{batch_id}")["running"] == 0)
    assert asked(inside, f"/wi/batch/{batch_id}")["members"][0]["state"] == "running"
    inside.unblocked.set()
    until(lambda: asked(inside, f"/wi/batch/{batch_id}")["completed_count"] == 1)
    batch = asked(inside, f"/wi/batch/{batch_id}")
    assert batch["state"] == "collecting"
    assert [member["state"] for member in batch["members"]] == ["done", "pending", "pending"]
    assert list(batch["results"]) == ["0"]
    assert batch["results"]["0"]["metadata"] == {"values": {"colour": 1}}
    inside.release()
    until(lambda: asked(inside, f"/wi/batch/{batch_id}")["state"] == "complete")
    batch = asked(inside, f"/wi/batch/{batch_id}")
    assert list(batch["results"]) == ["0", "1", "2"]
    assert {key: type(value) for key, value in batch["grid"].items()} == {
        "filename": str,
        "subfolder": str,
        "type": str,
    }
    assert (inside.folders["output"] / batch["grid"]["subfolder"] / batch["grid"]["filename"]).is_file()
    assert batch["running"] is None


HOSTILE = [
    "unknown",
    "..",
    "%00",
    "%2e%2e%2fetc",
    "a b",
    "'; DROP TABLE batches",
    "x" * 5000,
    "<script>",
    "ü",
    "\U0001f600",
]


def test_an_unknown_batch_is_404(inside: ComfyUIInside) -> None:
    for (method, path), batch_id in product([("GET", "/wi/batch/"), ("POST", "/wi/cancel_batch/")], HOSTILE):
        status, answer = inside.request(method, path + (batch_id if "%" in batch_id else quote(batch_id, safe="")))
        assert status == 404, (method, batch_id)
        if batch_id != "..":  # what is asked for then is another path
            assert answer["error"].startswith("There is no batch "), (method, batch_id)
            assert len(answer["error"]) < 250, (method, batch_id)
    assert asked(inside, "/wi/batches") == {"batches": []}


def test_routes_take_the_method_that_is_theirs(inside: ComfyUIInside) -> None:
    batch_id = begun(inside, graph())
    assert inside.request("GET", f"/wi/cancel_batch/{batch_id}")[0] == 405
    assert inside.request("POST", f"/wi/batch/{batch_id}")[0] == 405
    assert inside.request("POST", "/wi/batches")[0] == 405
    assert inside.request("GET", "/wi/batch/")[0] == 404
    assert len(inside.waiting()) == 3


def test_cancelling_deletes_what_waits_and_interrupts_what_runs(inside: ComfyUIInside) -> None:
    own = begun(inside, graph("Blocks"))
    other = begun(inside, graph(name="dogs"))
    mine = asked(inside, f"/wi/batch/{own}")["prompt_ids"]
    assert inside.start_one() == mine[0]
    done = asked(inside, f"/wi/cancel_batch/{own}", "POST")
    assert has_shape(done, CANCELLATION)
    assert (done["batch_id"], done["state"], done["not_stopped"]) == (own, "cancelled", [])
    assert sorted(done["deleted"]) == sorted(mine[1:])
    assert done["interrupted"] == [mine[0]]
    assert done["message"]
    assert inside.waiting() == asked(inside, f"/wi/batch/{other}")["prompt_ids"]
    batch = asked(inside, f"/wi/batch/{own}")
    assert (batch["state"], batch["cancelled"], batch["running"]) == ("cancelled", True, None)
    assert {member["state"] for member in batch["members"]} <= {"cancelled", "failed"}
    inside.release()
    until(lambda: asked(inside, f"/wi/batch/{other}")["state"] == "complete")


def test_what_does_not_stop_is_reported(inside: ComfyUIInside, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(member_endings, "STOP_SECONDS", 0.05)
    has_begun, let_go = threading.Event(), threading.Event()
    inside.classes["Deaf"] = deaf(has_begun, let_go)
    batch_id = begun(inside, graph("Deaf"))
    running = inside.start_one()
    assert has_begun.wait(PATIENCE_SECONDS)
    try:
        done = asked(inside, f"/wi/cancel_batch/{batch_id}", "POST")
        assert [each["prompt_id"] for each in done["not_stopped"]] == [running]
        assert "still runs" in done["not_stopped"][0]["reason"]
        assert (done["interrupted"], len(done["deleted"])) == ([], 2)
    finally:
        let_go.set()
    inside.wait_ended(running)
    batch = asked(inside, f"/wi/batch/{batch_id}")
    assert (batch["state"], batch["completed_count"], batch["results"]) == ("cancelled", 0, {})


@pytest.mark.parametrize("state", ["cancelled", "complete"])
def test_cancelling_a_batch_that_has_ended_changes_nothing(inside: ComfyUIInside, state: str) -> None:
    batch_id = begun(inside, graph(name='Katzen äöü "quoted" <b>'))
    if state == "complete":
        inside.release()
        until(lambda: asked(inside, f"/wi/batch/{batch_id}")["state"] == "complete")
    else:
        asked(inside, f"/wi/cancel_batch/{batch_id}", "POST")
    before = asked(inside, f"/wi/batch/{batch_id}")
    again = asked(inside, f"/api/wi/cancel_batch/{batch_id}", "POST")
    assert has_shape(again, CANCELLATION)
    assert (again["state"], again["deleted"], again["interrupted"]) == (state, [], [])
    assert again["message"] == f"the batch is {state} already"
    assert asked(inside, f"/api/wi/batch/{batch_id}") == before
    assert before["batch_name"] == 'Katzen äöü "quoted" <b>'
    assert before["cancelled"] is (state == "cancelled")


def test_comfyui_goes_on_while_a_batch_is_cancelled(inside: ComfyUIInside, monkeypatch: pytest.MonkeyPatch) -> None:
    has_begun, may_end = threading.Event(), threading.Event()

    def slow(batch: Any, host: Any) -> Any:
        has_begun.set()
        may_end.wait(PATIENCE_SECONDS)
        return member_endings.cancel(batch, host)

    monkeypatch.setattr(iteration_state, "cancel", slow)
    batch_id = begun(inside, graph())
    done: list[Any] = []
    thread = threading.Thread(target=lambda: done.append(asked(inside, f"/wi/cancel_batch/{batch_id}", "POST")))
    thread.start()
    try:
        assert has_begun.wait(PATIENCE_SECONDS)
        assert asked(inside, f"/wi/batch/{batch_id}")["state"] == "active"
        assert done == []
    finally:
        may_end.set()
        thread.join()
    assert done[0]["state"] == "cancelled"
