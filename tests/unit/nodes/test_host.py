"""ComfyUI as the pack uses it, in every version that there is an imitation of; what is missing is said once."""

from __future__ import annotations

import importlib
import json
import logging
import sys
import threading
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from comfyui_agent.nodes.host import LONGEST_REASON, ComfyUI, Ending, MissingPiece, Standing, one_line, pictures_of
from support.comfyui_inside import ComfyUIInside, comfyui_inside

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


def picture(size: tuple[int, int] = (4, 3), colour: str = "red") -> Image.Image:
    return Image.new("RGB", size, colour)


def files_in(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


# Outside, and where something is missing.


def test_outside_of_comfyui_nothing_can_be_queued(host: ComfyUI) -> None:
    with pytest.raises(MissingPiece, match="this ComfyUI has no server"):
        host.check()
    with pytest.raises(MissingPiece):
        host.next_number()
    assert host.standing() is None
    assert host.input_folder() is None
    assert host.declares("KSampler", "seed") is False
    assert host.file_of({"filename": "a.png", "subfolder": "", "type": "output"}) is None
    host.send("e3.batch", {})


def test_a_piece_that_is_missing_is_said_once(
    inside: ComfyUIInside, host: ComfyUI, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(inside.queue), "get_current_queue_volatile", None)
    monkeypatch.delattr(sys.modules["nodes"], "interrupt_processing")
    for _ in range(3):
        assert host.standing() is None
        with pytest.raises(MissingPiece):
            host.interrupt(["a"])
    said = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(said) == 2
    assert "This ComfyUI has no server.PromptServer.instance.prompt_queue.get_current_queue_volatile" in said[0]
    assert "nodes.interrupt_processing" in said[1]
    host.check()


def test_a_queue_that_takes_nothing_is_a_missing_piece(
    inside: ComfyUIInside, host: ComfyUI, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.check()
    monkeypatch.setattr(inside.server, "prompt_queue", object())
    with pytest.raises(MissingPiece, match=r"prompt_queue\.put"):
        host.check()


# The queue.


def test_the_next_number_is_the_one_that_comfyui_gives(inside: ComfyUIInside, host: ComfyUI) -> None:
    assert host.next_number() == 0
    posted(inside, graph())
    assert host.next_number() == 1
    assert inside.server.number == 1


def test_what_runs_and_what_waits_is_seen_with_its_graphs(inside: ComfyUIInside, host: ComfyUI) -> None:
    assert host.standing() == Standing({}, {})
    running, waiting = posted(inside, graph(1, "Blocks")), posted(inside, graph(2))
    inside.start_one()
    standing = host.standing()
    assert standing is not None
    assert (list(standing.running), list(standing.queued)) == ([running], [waiting])
    assert standing.queued[waiting]["1"]["inputs"]["colour"] == 2


@pytest.mark.parametrize(
    ("version", "validate", "sensitive_keys"),
    [("six", "async3", True), ("five", "async3", True), ("five", "async2", False), ("five", "sync", False)],
)
def test_a_prompt_is_queued_in_the_shape_of_the_version(
    tmp_path: Path, host: ComfyUI, version: Any, validate: Any, sensitive_keys: bool
) -> None:
    with comfyui_inside(
        tmp_path, version=version, validate=validate, sensitive_keys=sensitive_keys, held=True
    ) as inside:
        first = posted(inside, graph(), extra_data={**SECRETS, "own": 1}, client_id="page")
        document = {"prompt": graph(7), "extra_data": {**SECRETS, "own": 1}, "client_id": "page"}
        assert host.standing() is not None
        host.put(0.5, "second", document, ["2"])
        assert document["extra_data"] == {**SECRETS, "own": 1}
        given, own = sorted(inside.queue.get_current_queue_volatile()[1], key=lambda item: item[0])
        assert (given[1], own[1]) == (first, "second")
        assert len(own) == len(given)
        assert (own[0], own[2], own[4]) == (0.5, graph(7), ["2"])
        assert {key: own[3].get(key) for key in given[3] if key != "create_time"} == {
            key: given[3][key] for key in given[3] if key != "create_time"
        }
        assert own[5:] == given[5:]
        assert isinstance(own[3]["create_time"], int)
        inside.release()
        assert inside.wait_ended("second")["status"]["completed"] is True
        assert own[3]["client_id"] == "page"


def test_the_shape_is_known_before_a_prompt_was_seen(
    inside: ComfyUIInside, host: ComfyUI, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the sixth field came a way to take it out of what is kept."""

    def task_done(item_id: int, history_result: Any, status: Any) -> None:
        raise AssertionError("nothing runs here")

    document = {"prompt": graph(), "extra_data": {**SECRETS}}
    host.put(0, "six", document, ["2"])
    monkeypatch.setattr(inside.queue, "task_done", task_done)
    ComfyUI().put(1, "five", document, ["2"])
    six, five = sorted(inside.queue.get_current_queue_volatile()[1], key=lambda item: item[0])
    assert (len(six), len(five)) == (6, 5)
    assert five[3].items() >= SECRETS.items()


def test_no_secret_stays_where_the_queue_is_shown(inside: ComfyUIInside, host: ComfyUI) -> None:
    host.put(1, "a", {"prompt": graph(), "extra_data": {**SECRETS}}, ["2"])
    (item,) = inside.queue.get_current_queue_volatile()[1]
    assert not set(SECRETS) & set(item[3])
    assert item[5] == SECRETS


def test_a_request_without_more_is_queued(inside: ComfyUIInside, host: ComfyUI) -> None:
    extras: list[dict[str, Any]] = [{}, {"extra_data": None}, {"extra_data": {}}]
    for number, extra in enumerate(extras):
        host.put(number, f"id-{number}", {"prompt": graph(), **extra}, ["2"])
    for number in range(3):
        assert inside.run_one() == f"id-{number}"


def test_deleting_says_whether_it_was_there(inside: ComfyUIInside, host: ComfyUI) -> None:
    one, other = posted(inside, graph()), posted(inside, graph())
    assert host.delete(one) is True
    assert host.delete(one) is False
    assert host.delete("unknown") is False
    assert inside.waiting() == [other]


def test_only_a_member_that_runs_is_interrupted(inside: ComfyUIInside, host: ComfyUI) -> None:
    running, waiting = posted(inside, graph(1, "Blocks")), posted(inside, graph(2))
    assert host.interrupt([running, waiting]) == []
    inside.start_one()
    assert host.interrupt([waiting, "other"]) == []
    assert host.interrupt([]) == []
    assert inside.interrupts.wanted() is False
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


@pytest.mark.parametrize("validate", ["async3", "sync"])
def test_a_prompt_that_ended_has_its_pictures(tmp_path: Path, host: ComfyUI, validate: Any) -> None:
    with comfyui_inside(tmp_path, version="five", validate=validate) as inside:
        prompt_id = posted(inside, graph())
        assert host.ending("unknown") is None
        inside.wait_ended(prompt_id)
        shown = {"filename": "picture_00001_.png", "subfolder": "", "type": "output"}
        assert host.ending(prompt_id) == Ending([shown])


@pytest.mark.parametrize("validate", ["async3", "sync"])
def test_a_prompt_that_failed_says_where_and_why(tmp_path: Path, host: ComfyUI, validate: Any) -> None:
    with comfyui_inside(tmp_path, version="five", validate=validate) as inside:
        prompt_id = posted(inside, graph(7, "Fails", at=7))
        inside.wait_ended(prompt_id)
        assert host.ending(prompt_id) == Ending(problem="Fails (node 1): the colour is 7")


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


# What ComfyUI says of a prompt.


@pytest.mark.parametrize(("version", "validate"), [("six", "async3"), ("five", "async2"), ("five", "sync")])
def test_comfyuis_own_check_is_asked_in_every_form(tmp_path: Path, host: ComfyUI, version: Any, validate: Any) -> None:
    with comfyui_inside(tmp_path, version=version, validate=validate, held=True):
        good = graph("17")
        verdict = host.validate("id", good, None)
        assert (verdict.outputs, verdict.problem) == (["2"], "")
        assert good["1"]["inputs"]["colour"] == 17
        verdict = host.validate("id", graph("red"), None)
        assert not verdict.outputs
        assert verdict.problem.startswith(
            "Colour (node 1): Failed to convert an input value to a INT value: colour, red"
        )
        assert (
            "Unknown does not exist"
            in host.validate("id", {"1": {"class_type": "Unknown", "inputs": {}}}, None).problem
        )


def test_only_what_is_to_run_is_checked(inside: ComfyUIInside, host: ComfyUI) -> None:
    prompt = {**graph(), "3": graph()["2"]}
    assert host.validate("id", prompt, ["3"]).outputs == ["3"]
    assert host.validate("id", prompt, ["1"]).problem == "Prompt has no outputs"


def test_without_that_check_the_nodes_that_give_something_out_run(
    inside: ComfyUIInside, host: ComfyUI, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(sys.modules["execution"], "validate_prompt")
    assert host.validate("id", {**graph(), "3": {"class_type": "Unknown"}, "4": {}}, None).outputs == ["2"]


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


def test_pages_are_told_and_nobody_need_hear_it(
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


# Files.


def test_the_input_folder_is_comfyuis(inside: ComfyUIInside, host: ComfyUI) -> None:
    assert host.input_folder() == inside.folders["input"]


def test_a_reference_is_a_file_of_its_folder(inside: ComfyUIInside, host: ComfyUI) -> None:
    output, temp = inside.folders["output"].resolve(), inside.folders["temp"].resolve()
    assert host.file_of({"filename": "a.png", "subfolder": "x/y", "type": "output"}) == output / "x/y/a.png"
    assert host.file_of({"filename": "a.png", "subfolder": "", "type": "temp"}) == temp / "a.png"


@pytest.mark.parametrize(
    "image",
    [
        {"filename": "../input/a.png", "subfolder": "", "type": "output"},
        {"filename": "a.png", "subfolder": "../../..", "type": "output"},
        {"filename": "a.png", "subfolder": "../output2", "type": "output"},
        {"filename": "/etc/passwd", "subfolder": "", "type": "output"},
        {"filename": "passwd", "subfolder": "/etc", "type": "temp"},
        {"filename": "", "subfolder": "", "type": "output"},
        {"filename": ".", "subfolder": ".", "type": "output"},
        {"filename": "a\0b", "subfolder": "", "type": "output"},
        {"filename": "link/passwd", "subfolder": "", "type": "output"},
        {"filename": "a.png", "subfolder": "", "type": "input"},
        {"filename": "a.png", "subfolder": ""},
        {"filename": 5, "subfolder": "", "type": "output"},
        {},
    ],
)
def test_a_reference_that_leads_elsewhere_means_no_file(
    inside: ComfyUIInside, host: ComfyUI, image: dict[str, Any]
) -> None:
    (inside.folders["output"] / "link").symlink_to("/etc")
    assert host.file_of(image) is None


def test_a_picture_is_saved_as_comfyui_does_it(inside: ComfyUIInside, host: ComfyUI) -> None:
    texts = {"prompt": {"1": {"a": "ü"}}, "workflow": {"nodes": []}}
    first = host.save(picture(), "E3/%width%x%height%", "output", texts)
    second = host.save(picture(), "E3/%width%x%height%", "output", {})
    assert first == {"filename": "4x3_00001_.png", "subfolder": "E3", "type": "output"}
    assert second == {"filename": "4x3_00002_.png", "subfolder": "E3", "type": "output"}
    assert files_in(inside.folders["output"]) == ["E3/4x3_00001_.png", "E3/4x3_00002_.png"]
    file = host.file_of(first)
    assert file is not None
    with Image.open(file) as saved:
        assert (saved.format, saved.mode, saved.size, saved.getpixel((0, 0))) == ("PNG", "RGB", (4, 3), (255, 0, 0))
        assert {key: json.loads(text) for key, text in saved.info.items()} == texts
    with Image.open(inside.folders["output"] / "E3/4x3_00002_.png") as saved:
        assert saved.info == {}


def test_a_picture_for_the_moment_goes_to_the_temporary_folder(inside: ComfyUIInside, host: ComfyUI) -> None:
    shown = host.save(picture(), "a", "temp", {})
    assert shown == {"filename": "a_00001_.png", "subfolder": "", "type": "temp"}
    assert files_in(inside.folders["temp"]) == ["a_00001_.png"]
    assert files_in(inside.folders["output"]) == []


def test_no_texts_are_written_where_people_want_none(
    inside: ComfyUIInside, host: ComfyUI, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules["comfy.cli_args"], "args", types.SimpleNamespace(disable_metadata=True))
    host.save(picture(), "a", "output", {"prompt": {"1": {}}})
    with Image.open(inside.folders["output"] / "a_00001_.png") as saved:
        assert saved.info == {}


def test_a_picture_that_cannot_be_written_leaves_nothing(inside: ComfyUIInside, host: ComfyUI) -> None:
    class Full(Image.Image):
        size = (4, 3)

        def save(self, fp: Any, *_: Any, **__: Any) -> None:
            Path(fp).write_bytes(b"\x89PNG")
            raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        host.save(Full(), "E3/a", "output", {})
    assert files_in(inside.folders["output"]) == []


@pytest.mark.parametrize("prefix", ["../a", "E3/../../a", "/etc/a"])
def test_nothing_is_written_outside_of_the_folder(inside: ComfyUIInside, host: ComfyUI, prefix: str) -> None:
    with pytest.raises(Exception, match="outside the output folder"):
        host.save(picture(), prefix, "output", {})
    assert files_in(inside.folders["output"].parent) == []


# Pictures.


def test_pictures_of_pillow_are_taken_as_they_are() -> None:
    given = [picture(), picture(colour="blue")]
    assert list(pictures_of(given)) == given


@pytest.mark.parametrize(("shape", "mode"), [((3, 4, 3), "RGB"), ((3, 4, 4), "RGBA"), ((3, 4, 1), "L"), ((3, 4), "L")])
def test_comfyuis_pictures_become_those_of_pillow(shape: tuple[int, ...], mode: str) -> None:
    numpy = pytest.importorskip("numpy")

    class Tensor:
        """As much of a tensor as counts."""

        def __init__(self, value: float) -> None:
            self._value = value

        def cpu(self) -> Tensor:
            return self

        def numpy(self) -> Any:
            return numpy.full(shape, self._value, dtype=numpy.float32)

    bright, dark, half = pictures_of([Tensor(1.5), Tensor(-0.5), Tensor(0.5)])
    assert (bright.mode, bright.size) == (mode, (4, 3))
    bands = len(bright.getbands())
    pixels = [each.getpixel((0, 0)) for each in (bright, dark, half)]
    assert pixels == [value if bands == 1 else (value,) * bands for value in (255, 0, 127)]


def test_the_imitation_is_gone_afterwards(host: ComfyUI) -> None:
    with pytest.raises(ImportError):
        importlib.import_module("folder_paths")
    assert host.input_folder() is None
