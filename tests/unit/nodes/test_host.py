"""The pack uses ComfyUI's internals in the forms that its versions have."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from comfyui_agent.nodes.host import (
    LONGEST_REASON,
    ComfyUI,
    Ending,
    MissingPiece,
    PromptCheck,
    QueueSnapshot,
    one_line,
)
from support.comfyui_inside import ComfyUIInside, comfyui_inside

VERSIONS = pytest.mark.parametrize("is_old", [False, True], ids=["0.7.0", "0.3.44"])
SECRETS = {"auth_token_comfy_org": "token", "api_key_comfy_org": "key"}


@pytest.fixture
def host() -> ComfyUI:
    return ComfyUI()


@pytest.fixture
def inside(tmp_path: Path) -> Iterator[ComfyUIInside]:
    with comfyui_inside(tmp_path, held=True) as comfyui:
        yield comfyui


def graph(colour: Any = 0xFF0000, painter: str = "Colour", **inputs: Any) -> dict[str, Any]:
    """One picture, saved."""
    return {
        "1": {"class_type": painter, "inputs": {"colour": colour, "width": 4, "height": 3, **inputs}},
        "2": {"class_type": "Save", "inputs": {"images": ["1", 0], "filename_prefix": "picture"}},
    }


def posted(inside: ComfyUIInside, prompt: dict[str, Any], **body: Any) -> str:
    status, answer = inside.post({"prompt": prompt, **body})
    assert status == 200, answer
    return str(answer["prompt_id"])


def test_outside_of_comfyui_everything_is_missing(host: ComfyUI) -> None:
    for use in (host.check, host.next_number, host.queue):
        with pytest.raises(MissingPiece, match="this ComfyUI has no server"):
            use()
    assert host.input_folder() is None
    assert host.declares("KSampler", "seed") is False
    assert host.file_of({"filename": "a.png", "subfolder": "", "type": "output"}) is None
    host.send("e3.batch", {})


PIECES = ["put", "get_current_queue", "get_history", "delete_queue_item", "validate_prompt", "interrupt_processing"]


@pytest.mark.parametrize("piece", PIECES)
def test_a_missing_piece_is_logged_once(
    inside: ComfyUIInside,
    host: ComfyUI,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    piece: str,
) -> None:
    host.check()
    for owner in (inside.queue, sys.modules["execution"], sys.modules["nodes"]):
        if hasattr(owner, piece):
            monkeypatch.setattr(owner, piece, None)
    for _ in range(3):
        with pytest.raises(MissingPiece, match=piece):
            host.check()
    (message,) = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert piece in message


# The queue.


@VERSIONS
def test_the_queue_is_read_with_its_graphs(tmp_path: Path, host: ComfyUI, is_old: bool) -> None:
    with comfyui_inside(tmp_path, is_old=is_old, held=True) as inside:
        assert (host.queue(), host.next_number()) == (QueueSnapshot({}, {}), 0)
        running, waiting = posted(inside, graph(1, "Blocks")), posted(inside, graph(2))
        inside.start_one()
        snapshot = host.queue()
        assert (list(snapshot.running), list(snapshot.queued)) == ([running], [waiting])
        assert snapshot.queued[waiting]["1"]["inputs"]["colour"] == 2
        assert host.next_number() == 2
        assert [host.delete(waiting), host.delete(waiting), host.delete("unknown")] == [True, False, False]


@VERSIONS
@pytest.mark.parametrize("is_seen", [False, True], ids=["first", "after ComfyUI's own"])
def test_a_prompt_is_queued_in_the_form_of_the_version(
    tmp_path: Path, host: ComfyUI, is_old: bool, is_seen: bool
) -> None:
    with comfyui_inside(tmp_path, is_old=is_old, held=True) as inside:
        posted(inside, graph(), extra_data={**SECRETS, "own": 1}, client_id="page")
        if is_seen:
            host.queue()
        document = {"prompt": graph(7), "extra_data": {**SECRETS, "own": 1}, "client_id": "page"}
        host.put(0.5, "second", document, ["2"])
        host.put(0.7, "third", {"prompt": graph(8), "extra_data": None}, ["2"])
        assert document["extra_data"] == {**SECRETS, "own": 1}
        given, own, _ = inside.queue.queue
        assert len(own) == len(given) == (5 if is_old else 6)
        assert (own[0], own[1], own[2], own[4]) == (0.5, "second", graph(7), ["2"])
        assert {**own[3], "create_time": 0} == {**given[3], "create_time": 0}
        assert own[5:] == given[5:]
        assert bool(set(SECRETS) & set(own[3])) is is_old
        inside.release()
        assert inside.wait_ended("third")["status"]["completed"] is True


def test_only_a_member_that_runs_is_interrupted(inside: ComfyUIInside, host: ComfyUI) -> None:
    running, waiting = posted(inside, graph(1, "Blocks")), posted(inside, graph(2))
    assert host.interrupt([running, waiting]) == []
    inside.start_one()
    assert host.interrupt([waiting, "other"]) == []
    assert host.interrupt([]) == []
    assert inside.interrupted.is_set() is False
    assert host.interrupt({running, waiting}) == [running]
    assert host.ending(running) is None or host.ending(running) == Ending(problem="interrupted")
    inside.wait_ended(running)
    assert host.ending(running) == Ending(problem="interrupted")
    assert inside.run_one() == waiting
    assert host.ending(waiting).problem == ""  # type: ignore[union-attr]


def test_nothing_can_begin_or_end_between_looking_and_interrupting(
    inside: ComfyUIInside, host: ComfyUI, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_free: list[bool] = []

    def ask() -> None:
        free = inside.queue.mutex.acquire(blocking=False)
        is_free.append(free)
        if free:
            inside.queue.mutex.release()

    def interrupt() -> None:
        other = threading.Thread(target=ask)
        other.start()
        other.join()

    prompt_id = posted(inside, graph(1, "Blocks"))
    inside.start_one()
    monkeypatch.setattr(sys.modules["nodes"], "interrupt_processing", interrupt)
    assert host.interrupt([prompt_id]) == [prompt_id]
    assert is_free == [False]
    ask()
    assert is_free == [False, True]


# How prompts end.


@VERSIONS
def test_a_prompt_that_ended_has_its_pictures_or_its_problem(tmp_path: Path, host: ComfyUI, is_old: bool) -> None:
    with comfyui_inside(tmp_path, is_old=is_old) as inside:
        good, bad = posted(inside, graph()), posted(inside, graph(7, "Fails", at=7))
        inside.wait_ended(bad)
        assert host.ending("unknown") is None
        assert host.ending(good) == Ending([{"filename": "picture_00001_.png", "subfolder": "", "type": "output"}])
        assert host.ending(bad) == Ending(problem="Fails (node 1): the colour is 7")
        assert host.find_ended(lambda prompt: prompt["1"]["class_type"] == "Fails", "unknown") == bad
        assert host.find_ended(lambda _: False, good) is None


def ending_of(inside: ComfyUIInside, host: ComfyUI, entry: dict[str, Any]) -> Ending:
    inside.queue.history["x"] = entry
    found = host.ending("x")
    assert found is not None
    return found


def test_pictures_of_the_output_folder_come_before_all_others(inside: ComfyUIInside, host: ComfyUI) -> None:
    def image(name: str, type_: str, **more: Any) -> dict[str, Any]:
        return {"filename": name, "subfolder": "s", "type": type_, **more}

    outputs = {
        "10": {"images": [image("ten.png", "output")]},
        "9": {"images": [image("nine.png", "output", more=1), {"subfolder": "nameless"}, "text"], "text": ["a"]},
        "1": {"images": [image("preview.png", "temp")]},
        "2": {"text": ["no pictures"]},
        "3": {"images": None},
    }
    entry = {"outputs": outputs, "status": {"status_str": "success", "completed": True, "messages": []}}
    assert [each["filename"] for each in ending_of(inside, host, entry).images] == ["nine.png", "ten.png"]
    assert ending_of(inside, host, entry).images[0] == image("nine.png", "output")
    del outputs["9"], outputs["10"]
    assert ending_of(inside, host, entry).images == [image("preview.png", "temp")]


@pytest.mark.parametrize(
    ("status", "ending"),
    [
        (None, Ending([])),
        ({}, Ending([])),
        ({"status_str": "error"}, Ending(problem="failed, and ComfyUI does not say why")),
        ({"status_str": "success", "completed": False}, Ending(problem="failed, and ComfyUI does not say why")),
        (
            {"status_str": "error", "messages": [("execution_start", {}), ("execution_interrupted", {})]},
            Ending(problem="interrupted"),
        ),
        (
            {"status_str": "error", "messages": [("execution_error", {})]},
            Ending(problem="a node (node ?): failed"),
        ),
    ],
)
def test_what_the_history_does_not_tell_is_made_up_for(
    inside: ComfyUIInside, host: ComfyUI, status: Any, ending: Ending
) -> None:
    assert ending_of(inside, host, {"outputs": {}, "status": status}) == ending


def test_a_reason_is_one_short_line(inside: ComfyUIInside, host: ComfyUI) -> None:
    data = {"node_id": "3", "node_type": "KSampler", "exception_message": "out of\n\n memory " + "x" * 5000}
    problem = ending_of(
        inside, host, {"status": {"status_str": "error", "messages": [("execution_error", data)]}}
    ).problem
    assert problem.startswith("KSampler (node 3): out of memory xxx")
    assert problem.endswith("…")
    assert len(problem) == LONGEST_REASON
    assert one_line("a\tb\r\n c") == "a b c"


# Validation.


async def validate_with_two(prompt_id: str, prompt: Any) -> Any:
    return await validate_with_three(prompt_id, prompt, None)


async def validate_with_three(prompt_id: str, prompt: Any, partial_execution_list: Any) -> Any:
    return validate_with_one(prompt)


def validate_with_one(prompt: Any) -> Any:
    errors = {"1": {"class_type": "Colour", "errors": [{"message": "Too large", "details": "colour"}]}}
    if prompt["1"]["inputs"]["colour"] > 100:
        return False, {"message": "failed", "details": ""}, [], errors
    return True, None, ["2"], errors if prompt["1"]["inputs"]["colour"] > 50 else {}


@pytest.mark.parametrize("form", [validate_with_one, validate_with_two, validate_with_three])
def test_the_validation_is_called_in_every_form(
    inside: ComfyUIInside, host: ComfyUI, monkeypatch: pytest.MonkeyPatch, form: Any
) -> None:
    monkeypatch.setattr(sys.modules["execution"], "validate_prompt", form)
    problem = "Colour (node 1): Too large: colour"
    assert host.validate("id", graph(1), None) == PromptCheck(["2"])
    assert host.validate("id", graph(60), None) == PromptCheck(["2"], remark=problem)
    assert host.validate("id", graph(200), None) == PromptCheck(problem=problem)


def test_a_validation_that_needs_comfyuis_loop_gets_it(
    inside: ComfyUIInside, host: ComfyUI, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def on_the_loop(prompt_id: str, prompt: Any, targets: Any) -> Any:
        if asyncio.get_running_loop() is not inside.server.loop:
            raise RuntimeError("attached to a different loop")
        return True, None, ["2"], {}

    monkeypatch.setattr(sys.modules["execution"], "validate_prompt", on_the_loop)
    assert host.validate("id", graph(), None) == PromptCheck(["2"])


def test_only_what_is_to_run_is_checked(inside: ComfyUIInside, host: ComfyUI) -> None:
    prompt = {**graph(), "3": graph()["2"]}
    assert host.validate("id", prompt, ["3"]).outputs == ["3"]
    assert host.validate("id", prompt, ["1"]).problem == "Prompt has no outputs"


def test_a_node_class_says_which_inputs_it_has(inside: ComfyUIInside, host: ComfyUI) -> None:
    class Broken:
        @classmethod
        def INPUT_TYPES(cls) -> Any:
            raise RuntimeError("on purpose")

    inside.classes["Broken"] = Broken
    assert host.declares("Colour", "colour") is True
    assert host.declares("Colour", "strength") is True
    assert host.declares("Colour", "hue") is False
    assert host.declares("Save", "prompt") is False
    assert host.declares("Unknown", "colour") is False
    assert host.declares("Broken", "colour") is False


def test_pages_are_reported_even_without_listeners(
    inside: ComfyUIInside, host: ComfyUI, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.send("e3.batch", {"a": 1}, "page")
    host.send("e3.batch", {"a": 2})
    assert [tuple(message) for message in inside.server.sent] == [
        ("e3.batch", {"a": 1}, "page"),
        ("e3.batch", {"a": 2}, None),
    ]
    host.send("e3.batch", {"a": object()})
    monkeypatch.setattr(type(inside.server), "send_sync", None)
    host.send("e3.batch", {})
