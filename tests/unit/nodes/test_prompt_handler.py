"""A prompt with an iterator becomes a batch; any other prompt comes back as it is."""

from __future__ import annotations

import json
import logging
import threading
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from comfyui_agent.nodes.core.iteration_state import IterationStateManager
from comfyui_agent.nodes.host import ComfyUI, MissingPiece
from support.idle_manager import Quiet, Unfed, request
from support.node_pack import iterating, parameter
from support.packs import owner_of


@pytest.fixture
def manager() -> Unfed:
    return Unfed()


def test_the_first_combination_is_in_the_prompt_itself_and_all_are_registered(manager: Unfed) -> None:
    body = request("5,6,7")
    assert manager.handle_prompt(body) is body
    batch_id, index = manager.of(body["prompt_id"])
    assert index == 0
    assert body["prompt"]["1"]["inputs"]["colour"] == 5
    marks = body["prompt"]["20"]["inputs"]
    assert marks["e3_batch"] == batch_id
    assert (marks["e3_index"], marks["e3_total"], marks["e3_values"]) == (0, 3, {"colour": 5})
    batch = manager.find(batch_id)
    assert batch is not None
    assert len(set(batch.prompt_ids)) == 3
    assert [manager.of(prompt_id) for prompt_id in batch.prompt_ids] == [(batch_id, i) for i in range(3)]
    name, _, letters = batch_id.rpartition("_")
    assert name == "test"
    assert len(letters) == 8
    assert set(letters) <= set("0123456789abcdef")


def test_every_member_is_a_whole_copy_of_its_own(manager: Unfed) -> None:
    body = {**request("5,6,7"), "extra_data": {"extra_pnginfo": {"workflow": {"nodes": []}}}}
    untouched = json.dumps(body)
    manager.handle_prompt(body)
    (feeding,) = manager.feedings
    members = [feeding.member(index) for index in range(3)]
    assert [member["prompt"]["1"]["inputs"]["colour"] for member in members] == [5, 6, 7]
    assert members[0]["prompt"] == body["prompt"]
    before = [json.dumps(member) for member in (*members[1:], body)]
    spoiled = members[0]
    spoiled["prompt"]["1"]["inputs"]["colour"] = 99
    spoiled["prompt"]["101"]["inputs"].clear()
    spoiled["prompt"]["20"]["inputs"]["e3_values"]["colour"] = 99
    spoiled["extra_data"]["extra_pnginfo"]["workflow"]["nodes"].append(1)
    assert [json.dumps(member) for member in (*members[1:], body)] == before
    body["prompt"].clear()
    assert feeding.member(1) == members[1]
    assert json.dumps(feeding.request) == untouched, "the copies are made from what came"


@pytest.mark.parametrize(
    ("body", "number"), [({}, 7.0), ({"front": True}, -7.0), ({"front": False}, 7.0), ({"number": 2.5}, 2.5)]
)
def test_the_members_get_the_number_of_the_first(manager: Unfed, body: dict[str, Any], number: float) -> None:
    asked = {**request(), **body, "prompt_id": "mine"}
    manager.handle_prompt(asked)
    assert (asked["prompt_id"], manager.of("mine")[1]) == ("mine", 0), "an id that was given is kept"
    assert [feeding.number for feeding in manager.feedings] == [number]


def test_a_batch_that_cannot_be_made_gives_a_notice_and_leaves_the_prompt_unchanged(
    manager: Unfed, caplog: pytest.LogCaptureFixture
) -> None:
    painter = {"class_type": "Colour", "inputs": {"colour": 0, "width": 4, "height": 4}}
    axes = parameter("1..3", "1.colour", "colour"), parameter("1..4", "1.width", "width")
    body = {"prompt": iterating(*axes, mode="linear", grid=False, n1=painter)}
    before = json.dumps(body)
    assert manager.handle_prompt(body) is body
    assert json.dumps(body) == before
    assert manager.is_clean
    (record,) = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert "colour has 3 values and width 4" in record.getMessage()
    assert manager.quiet.sent == [("e3.notice", {"message": record.getMessage()})]


@pytest.mark.parametrize("what", ["number", "nothing can be queued", "request"])
def test_what_cannot_be_begun_leaves_nothing_behind(
    manager: Unfed, monkeypatch: pytest.MonkeyPatch, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    def missing() -> None:
        raise MissingPiece("this ComfyUI has no queue")

    body = request()
    if what == "number":
        body["number"] = "no number"
    elif what == "request":
        body["extra_data"] = {"lock": threading.Lock()}  # what another handler may have left, and nobody can copy
    else:
        monkeypatch.setattr(manager.quiet, "check", missing)
    before = repr(body)
    assert manager.handle_prompt(body) is body
    assert repr(body) == before
    assert manager.is_clean
    assert any("runs once, as it is" in record.getMessage() for record in caplog.records)


def test_a_thread_that_cannot_start_costs_one_batch_and_not_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[threading.Thread] = []

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    manager = IterationStateManager(Quiet())
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        body = request()
        assert manager.handle_prompt(body) is body
    monkeypatch.setattr(threading.Thread, "start", lambda thread: started.append(thread))
    manager.handle_prompt(request())
    assert [thread.name for thread in started] == ["e3-iterator"]
    assert len(manager._active_batches) == 1, "a batch that nobody feeds is not under way"


WORDS = st.sampled_from(
    [
        "",
        "1",
        "20",
        "101",
        "param_1",
        "iterator",
        "WIIterator",
        "WIParameter",
        "WIGridCompositor",
        "Colour",
        "a,b",
        "1..3",
    ]
) | st.text(max_size=5)
SCALARS = st.none() | st.booleans() | st.integers(-5, 5) | st.floats() | WORDS
ANYTHING = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3), max_leaves=8
)


@st.composite
def spoiled_requests(draw: st.DrawFn) -> Any:
    """A request with an iterator in which anything may stand anywhere."""
    painter = {"class_type": "Colour", "inputs": {"colour": 0, "width": 4, "height": 4}}
    axes = parameter("1..3", "1.colour", "colour"), parameter("7,8", "1.width")
    body: dict[str, Any] = {"prompt": iterating(*axes, mode=draw(st.sampled_from(["matrix", "linear"])), n1=painter)}
    body |= draw(st.dictionaries(st.sampled_from(["number", "front", "prompt_id", "extra_data"]), ANYTHING, max_size=2))
    for _ in range(draw(st.integers(0, 3))):
        place: Any = body
        while isinstance(place, dict) and place:
            key = draw(st.sampled_from(list(place)))
            if not isinstance(place[key], dict) or draw(st.booleans()):
                place[key] = draw(ANYTHING)
                break
            place = place[key]
    return body


def is_on(node: Any) -> bool:
    if not isinstance(node, dict) or node.get("class_type") != "WIIterator":
        return False
    inputs = node.get("inputs")
    return not isinstance(inputs, dict) or inputs.get("enabled", True) in (True, "true", "True")


@settings(max_examples=80, deadline=None)
@given(st.one_of(ANYTHING, st.fixed_dictionaries({"prompt": ANYTHING}), spoiled_requests()))
def test_any_request_becomes_a_batch_or_is_returned_unchanged(body: Any) -> None:
    logging.getLogger("e3_iterator").setLevel(logging.CRITICAL)
    try:
        before = json.dumps(body)
        for manager in (IterationStateManager(ComfyUI()), Unfed()):
            assert manager.handle_prompt(body) is body
            prompt = body.get("prompt") if isinstance(body, dict) else None
            is_asked = isinstance(prompt, dict) and any(is_on(node) for node in prompt.values())
            if not is_asked or not manager.summaries():
                assert json.dumps(body) == before
            else:
                assert owner_of(manager, body["prompt_id"]) is not None
    finally:
        logging.getLogger("e3_iterator").setLevel(logging.NOTSET)


def test_a_prompt_nested_deeper_than_python_goes_comes_back(manager: Unfed) -> None:
    deep: Any = {}
    for _ in range(100_000):
        deep = [deep]
    for place in (["prompt", "1", "inputs", "colour"], ["extra_data"], ["prompt", "20", "inputs", "param_1"]):
        body = request()
        inner: Any = body
        for key in place[:-1]:
            inner = inner[key]
        inner[place[-1]] = deep
        assert manager.handle_prompt(body) is body
        assert "e3_batch" not in body["prompt"]["20"]["inputs"]
        assert "prompt_id" not in body
    assert manager.is_clean
