"""The imitation of ComfyUI's insides does what the real one does, where the node pack relies on it."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from PIL import Image

from support.comfyui_inside import ComfyUIInside, comfyui_inside

NAMES = ("server", "execution", "nodes", "folder_paths", "comfy", "comfy.model_management", "comfy_execution.utils")


def graph(colour: Any = 0xFF0000, painter: str = "Colour", prefix: str = "picture", **inputs: Any) -> dict[str, Any]:
    """One picture, saved."""
    return {
        "1": {"class_type": painter, "inputs": {"colour": colour, "width": 4, "height": 3, **inputs}},
        "2": {"class_type": "Save", "inputs": {"images": ["1", 0], "filename_prefix": prefix}},
    }


def posted(inside: ComfyUIInside, prompt: dict[str, Any], **body: Any) -> str:
    status, answer = inside.post({"prompt": prompt, **body})
    assert status == 200, answer
    prompt_id: str = answer["prompt_id"]
    return prompt_id


def messages(entry: dict[str, Any]) -> list[str]:
    return [event for event, _ in entry["status"]["messages"]]


def test_the_modules_are_there_inside_and_gone_afterwards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "nodes", importlib.import_module("json"))
    with comfyui_inside(tmp_path) as inside:
        assert importlib.import_module("server").PromptServer.instance is inside.server
        assert importlib.import_module("nodes").NODE_CLASS_MAPPINGS is inside.classes
        assert all(name in sys.modules for name in NAMES)
        server_class = importlib.import_module("server").PromptServer
    assert sys.modules["nodes"] is importlib.import_module("json")
    assert not any(name in sys.modules for name in NAMES if name != "nodes")
    assert not hasattr(server_class, "instance")


def test_no_thread_is_left_behind_even_while_a_node_blocks(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    with comfyui_inside(tmp_path, held=True) as inside:
        posted(inside, graph(painter="Blocks"))
        posted(inside, graph())
        inside.start_one()
        assert len(set(threading.enumerate()) - before) == 2
    assert set(threading.enumerate()) == before


def test_the_lowest_number_runs_first(tmp_path: Path) -> None:
    with comfyui_inside(tmp_path, held=True) as inside:
        posted(inside, graph(), prompt_id="zero")
        posted(inside, graph(), prompt_id="one")
        posted(inside, graph(), prompt_id="two")
        posted(inside, graph(), prompt_id="front", front=True)
        posted(inside, graph(), prompt_id="between", number=0.5)
        assert inside.waiting() == ["front", "zero", "between", "one", "two"]
        assert [inside.run_one() for _ in range(5)] == ["front", "zero", "between", "one", "two"]
        assert inside.server.number == 4
        assert inside.waiting() == inside.running() == []


def test_equal_numbers_go_by_prompt_id(tmp_path: Path) -> None:
    with comfyui_inside(tmp_path, held=True) as inside:
        posted(inside, graph(), prompt_id="b", number=1)
        posted(inside, graph(), prompt_id="a", number=1)
        assert [inside.run_one(), inside.run_one()] == ["a", "b"]


@pytest.mark.parametrize(("version", "fields"), [("five", 5), ("six", 6)])
def test_an_item_has_five_or_six_fields_and_the_history_five(tmp_path: Path, version: Any, fields: int) -> None:
    with comfyui_inside(tmp_path, version=version, held=True) as inside:
        secret = {"api_key_comfy_org": "secret"}
        prompt_id = posted(inside, graph(), client_id="page", extra_data={**secret, "extra_pnginfo": {"workflow": 1}})
        item = inside.queue.get_current_queue_volatile()[1][0]
        assert len(item) == fields
        assert item[:2] == (0, prompt_id)
        assert item[4] == ["2"]
        assert item[3]["client_id"] == "page"
        assert item[-1] == (secret if version == "six" else ["2"])
        assert hasattr(importlib.import_module("execution"), "SENSITIVE_EXTRA_DATA_KEYS") == (version == "six")
        inside.run_one()
        assert len(inside.history(prompt_id)["prompt"]) == 5


def test_an_item_of_the_wrong_shape_breaks_the_worker_and_the_test_hears_of_it(tmp_path: Path) -> None:
    def run_it() -> None:
        with comfyui_inside(tmp_path, version="six") as inside:
            inside.queue.put((0, "short", graph(), {}, ["2"]))
            inside.wait_ended("short")

    with pytest.raises(AssertionError, match="the worker broke") as told:
        run_it()
    assert "5 fields" in str(told.value.__cause__)


def test_deleting_takes_one_item_and_says_whether_there_was_one(tmp_path: Path) -> None:
    with comfyui_inside(tmp_path, held=True) as inside:
        for number in (0, 5, 1, 6, 7, 2):
            posted(inside, graph(), prompt_id=f"id-{number}", number=number)
        assert inside.queue.delete_queue_item(lambda item: item[1] == "id-6") is True
        assert inside.queue.delete_queue_item(lambda item: item[1] == "id-6") is False
        assert inside.queue.delete_queue_item(lambda item: bool(item)) is True
        assert inside.queue.get_history() == {}
        assert [inside.run_one() for _ in range(4)] == ["id-1", "id-2", "id-5", "id-7"]


def test_wiping_leaves_the_running_one(tmp_path: Path) -> None:
    with comfyui_inside(tmp_path, held=True) as inside:
        posted(inside, graph(painter="Blocks"), prompt_id="runs")
        posted(inside, graph(), prompt_id="waits")
        assert inside.start_one() == "runs"
        inside.queue.wipe_queue()
        assert (inside.running(), inside.waiting()) == (["runs"], [])
        inside.unblock()
        assert inside.wait_ended("runs")["status"]["status_str"] == "success"


def test_a_deleted_item_never_runs(tmp_path: Path) -> None:
    with comfyui_inside(tmp_path, held=True) as inside:
        posted(inside, graph(), prompt_id="a")
        posted(inside, graph(), prompt_id="b")
        inside.queue.delete_queue_item(lambda item: item[1] == "a")
        inside.release()
        inside.wait_ended("b")
        inside.wait_idle()
        assert list(inside.queue.get_history()) == ["b"]


def test_a_success_in_the_history(tmp_path: Path) -> None:
    with comfyui_inside(tmp_path) as inside:
        entry = inside.wait_ended(posted(inside, graph(0x102030), client_id="page"))
        picture = {"filename": "picture_00001_.png", "subfolder": "", "type": "output"}
        assert entry["outputs"] == {"2": {"images": [picture]}}
        assert entry["meta"]["2"]["node_id"] == "2"
        assert (entry["status"]["status_str"], entry["status"]["completed"]) == ("success", True)
        assert messages(entry) == ["execution_start", "execution_cached", "execution_success"]
        assert inside.sent("executed")[0]["output"] == {"images": [picture]}
        assert [said["node"] for said in inside.sent("executing")] == ["1", "2", None]
        with Image.open(inside.folders["output"] / "picture_00001_.png") as image:
            assert (image.size, image.getpixel((0, 0))) == ((4, 3), (0x10, 0x20, 0x30))
            assert '"colour": 1056816' in image.info["prompt"]


def test_a_failure_in_the_history(tmp_path: Path) -> None:
    with comfyui_inside(tmp_path) as inside:
        entry = inside.wait_ended(posted(inside, graph(7, painter="Fails", at=7)))
        assert (entry["status"]["status_str"], entry["status"]["completed"]) == ("error", False)
        assert messages(entry) == ["execution_start", "execution_cached", "execution_error"]
        said = entry["status"]["messages"][-1][1]
        assert (said["node_id"], said["node_type"], said["executed"]) == ("1", "Fails", [])
        assert (said["exception_type"], said["exception_message"]) == ("ValueError", "the colour is 7\n")
        assert said["current_inputs"]["colour"] == [7]
        assert entry["outputs"] == {}
        assert inside.sent("execution_error") == []
        assert inside.wait_ended(posted(inside, graph(8, painter="Fails", at=7)))["status"]["completed"] is True


def test_an_interrupt_ends_the_running_prompt_and_is_told_to_all(tmp_path: Path) -> None:
    with comfyui_inside(tmp_path, held=True) as inside:
        prompt_id = posted(inside, graph(painter="Blocks"))
        inside.start_one()
        inside.wait_blocked()
        importlib.import_module("nodes").interrupt_processing()
        entry = inside.wait_ended(prompt_id)
        assert not inside.blocked.is_set()
        assert (entry["status"]["status_str"], entry["status"]["completed"]) == ("error", False)
        assert messages(entry) == ["execution_start", "execution_cached", "execution_interrupted"]
        assert [said["prompt_id"] for said in inside.sent("execution_interrupted")] == [prompt_id]


def test_an_interrupt_while_a_node_runs_stops_the_next_one(tmp_path: Path) -> None:
    class Impatient:
        RETURN_TYPES = ("IMAGE",)
        FUNCTION = "interrupt"
        INPUT_TYPES = staticmethod(dict)

        def interrupt(self) -> tuple[list[Image.Image]]:
            importlib.import_module("nodes").interrupt_processing()
            return ([Image.new("RGB", (1, 1))],)

    with comfyui_inside(tmp_path) as inside:
        inside.classes["Impatient"] = Impatient
        entry = inside.wait_ended(posted(inside, {**graph(), "1": {"class_type": "Impatient", "inputs": {}}}))
        assert messages(entry)[-1] == "execution_interrupted"
        assert entry["status"]["messages"][-1][1]["node_id"] == "2"
        assert list(inside.folders["output"].iterdir()) == []


def test_an_interrupt_that_came_too_early_is_forgotten_when_the_next_prompt_starts(tmp_path: Path) -> None:
    with comfyui_inside(tmp_path) as inside:
        importlib.import_module("nodes").interrupt_processing()
        assert inside.wait_ended(posted(inside, graph()))["status"]["completed"] is True
        assert importlib.import_module("comfy.model_management").processing_interrupted() is False


def test_whoever_sees_an_interrupt_takes_it_down(tmp_path: Path) -> None:
    with comfyui_inside(tmp_path):
        management = importlib.import_module("comfy.model_management")
        management.interrupt_current_processing()
        with pytest.raises(management.InterruptProcessingException):
            management.throw_exception_if_processing_interrupted()
        management.throw_exception_if_processing_interrupted()


def test_the_history_of_one_prompt_is_a_copy_and_takes_a_function(tmp_path: Path) -> None:
    with comfyui_inside(tmp_path) as inside:
        prompt_id = posted(inside, graph())
        inside.wait_ended(prompt_id)["outputs"].clear()
        assert inside.history(prompt_id)["outputs"]
        status = inside.queue.get_history(prompt_id, map_function=lambda entry: entry["status"]["status_str"])
        assert status == {prompt_id: "success"}
        assert inside.queue.get_history("unknown", map_function=len) == {}
        last = posted(inside, graph())
        inside.wait_ended(last)
        assert list(inside.queue.get_history(max_items=1)) == [last]
        assert list(inside.queue.get_history(max_items=1, offset=0)) == [prompt_id]


@pytest.mark.parametrize("validate", ["async3", "async2", "sync"])
def test_validation_has_three_forms_and_converts_in_place(tmp_path: Path, validate: Any) -> None:
    with comfyui_inside(tmp_path, version="five", validate=validate, held=True) as inside:
        function = importlib.import_module("execution").validate_prompt
        assert len(inspect.signature(function).parameters) == {"async3": 3, "async2": 2, "sync": 1}[validate]
        assert inspect.iscoroutinefunction(function) == (validate != "sync")
        posted(inside, graph("17", strength=1, note=5, mirrored=1), number=1)
        sent = inside.queue.get_current_queue_volatile()[1][0][2]["1"]["inputs"]
        assert (sent["colour"], sent["strength"], sent["note"], sent["mirrored"]) == (17, 1.0, "5", True)
        assert type(sent["strength"]) is float
        inside.run_one()


def test_what_came_with_asynchronous_validation_is_missing_before(tmp_path: Path) -> None:
    with comfyui_inside(tmp_path, version="five", validate="sync") as inside:
        prompt_id = posted(inside, graph(), prompt_id="mine")
        assert prompt_id != "mine"
        inside.wait_ended(prompt_id)
        with pytest.raises(TypeError):
            inside.queue.get_history(prompt_id, map_function=len)
        with pytest.raises(ImportError):
            importlib.import_module("comfy_execution.utils")


@pytest.mark.parametrize(
    ("prompt", "kind"),
    [
        (graph(0x1000000), "value_bigger_than_max"),
        (graph(-1), "value_smaller_than_min"),
        (graph("red"), "invalid_input_type"),
        (graph(pattern="striped"), "value_not_in_list"),
        ({**graph(), "1": {"class_type": "Colour", "inputs": {"colour": 1, "width": 1}}}, "required_input_missing"),
        (graph(colour=["2", 0]), "exception_during_inner_validation"),
    ],
)
def test_a_prompt_that_cannot_run_is_refused_and_not_queued(tmp_path: Path, prompt: dict[str, Any], kind: str) -> None:
    with comfyui_inside(tmp_path, held=True) as inside:
        status, answer = inside.post({"prompt": prompt})
        assert status == 400
        assert answer["error"]["type"] == "prompt_outputs_failed_validation"
        assert kind in {fault["type"] for node in answer["node_errors"].values() for fault in node["errors"]}
        assert inside.waiting() == []
        assert inside.server.number == 1


@pytest.mark.parametrize(
    ("prompt", "kind"),
    [
        ({"1": {"class_type": "Unknown", "inputs": {}}}, "invalid_prompt"),
        ({"1": {"inputs": {}}}, "invalid_prompt"),
        ({"1": graph()["1"]}, "prompt_no_outputs"),
    ],
)
def test_a_prompt_without_sense_is_refused_as_a_whole(tmp_path: Path, prompt: dict[str, Any], kind: str) -> None:
    with comfyui_inside(tmp_path) as inside:
        status, answer = inside.post({"prompt": prompt})
        assert (status, answer["error"]["type"], answer["node_errors"]) == (400, kind, {})


def test_good_outputs_run_beside_refused_ones(tmp_path: Path) -> None:
    other = {f"1{name}": node for name, node in graph(-5).items()}
    other["12"]["inputs"]["images"] = ["11", 0]
    with comfyui_inside(tmp_path) as inside:
        status, answer = inside.post({"prompt": {**graph(), **other}})
        assert (status, list(answer["node_errors"])) == (200, ["11"])
        assert answer["node_errors"]["11"]["dependent_outputs"] == ["12"]
        assert list(inside.wait_ended(answer["prompt_id"])["outputs"]) == ["2"]


def test_handlers_see_the_prompt_first_and_one_that_raises_is_passed_over(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def repaint(body: dict[str, Any]) -> dict[str, Any]:
        assert asyncio.get_running_loop() is sys.modules["server"].PromptServer.instance.loop
        body["prompt"]["1"]["inputs"]["colour"] = 5
        return body

    def stumble(body: dict[str, Any]) -> dict[str, Any]:
        raise RuntimeError("on purpose")

    with comfyui_inside(tmp_path, held=True) as inside:
        inside.server.add_on_prompt_handler(stumble)
        inside.server.add_on_prompt_handler(repaint)
        prompt = graph(0x1000000)
        posted(inside, prompt)
        assert inside.queue.get_current_queue_volatile()[1][0][2]["1"]["inputs"]["colour"] == 5
        assert prompt == graph(0x1000000)
        assert "on purpose" in caplog.text
        inside.server.add_on_prompt_handler(lambda body: body.clear())
        assert inside.post({"prompt": prompt})[0] == 500


class Curious:
    """Says what it is given."""

    RETURN_TYPES = ("IMAGE",)
    FUNCTION = "look"
    OUTPUT_NODE = True
    seen: list[Any]

    @classmethod
    def INPUT_TYPES(cls) -> dict[str, Any]:
        hidden = {"prompt": "PROMPT", "extra": "EXTRA_PNGINFO", "unique_id": "UNIQUE_ID"}
        return {"required": {"declared": ("INT",)}, "hidden": hidden}

    def __init__(self) -> None:
        self.times = 0

    def look(self, **given: Any) -> tuple[Any]:
        self.times += 1
        self.seen.append((given, sys.modules["comfy_execution.utils"].get_executing_context(), self.times))
        assert asyncio.get_running_loop() is not sys.modules["server"].PromptServer.instance.loop
        return (given,)


def test_a_node_is_given_hidden_inputs_and_undeclared_links_but_no_undeclared_values(tmp_path: Path) -> None:
    Curious.seen = []
    with comfyui_inside(tmp_path) as inside:
        inside.classes["Curious"] = Curious
        inputs = {"declared": 1, "linked": ["1", 0], "unknown": {"a": 1}}
        prompt = {**graph(), "3": {"class_type": "Curious", "inputs": inputs}}
        for number in range(2):
            inside.wait_ended(posted(inside, prompt, prompt_id=f"id-{number}", extra_data={"extra_pnginfo": {"w": 1}}))
        assert all(inside.history(f"id-{number}")["status"]["completed"] for number in range(2))
        given, context, _ = Curious.seen[0]
        assert set(given) == {"declared", "linked", "prompt", "extra", "unique_id"}
        assert (given["unique_id"], given["extra"], given["prompt"]["3"]["inputs"]) == ("3", {"w": 1}, inputs)
        assert given["linked"][0].size == (4, 3)
        assert context == ("id-0", "3", 0)
        assert [times for _, _, times in Curious.seen] == [1, 2], "a node's object stays from prompt to prompt"
        assert inside.server.last_prompt_id == "id-1"


def test_files_are_numbered_on_and_stay_below_the_folder(tmp_path: Path) -> None:
    with comfyui_inside(tmp_path) as inside:
        paths = importlib.import_module("folder_paths")
        output = paths.get_output_directory()
        assert output == str(inside.folders["output"])
        folder, name, number, subfolder, prefix = paths.get_save_image_path("a/%width%x%height%", output, 4, 3)
        assert (folder, name, number, subfolder, prefix) == (f"{output}/a", "4x3", 1, "a", "a/4x3")
        Path(folder, "4x3_00041_.png").touch()
        Path(folder, "4x3-00099_.png").touch()
        Path(folder, "4x3_final_.png").touch()
        assert paths.get_save_image_path("a/4x3", output)[2] == 42
        assert paths.get_save_image_path("plain", output) == (f"{output}/", "plain", 1, "", "plain")
        with pytest.raises(Exception, match="outside the output folder"):
            paths.get_save_image_path("../elsewhere/x", output)


def test_routes_answer_also_under_api(tmp_path: Path) -> None:
    with comfyui_inside(tmp_path) as inside:

        @inside.server.routes.post("/echo/{name}")
        async def echo(request: web.Request) -> web.Response:
            return web.json_response({"name": request.match_info["name"], "body": await request.json()})

        assert inside.request("POST", "/echo/x", {"a": 1}) == (200, {"name": "x", "body": {"a": 1}})
        assert inside.request("POST", "/api/echo/y", [])[1]["name"] == "y"
        assert inside.request("GET", "/other")[0] == 404


def test_a_folder_is_loaded_under_an_odd_name_and_gone_afterwards(tmp_path: Path) -> None:
    folder = tmp_path / "custom.nodes" / "pack"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text(
        "from server import PromptServer\nfrom .part import NODE_CLASS_MAPPINGS\n"
        "PromptServer.instance.add_on_prompt_handler(lambda body: body)\n"
    )
    (folder / "part.py").write_text("NODE_CLASS_MAPPINGS = {'Loaded': object}\n")
    before = set(sys.modules)
    with comfyui_inside(tmp_path) as inside:
        module = inside.load(folder)
        assert "." not in module.__name__
        assert inside.classes["Loaded"] is object
        assert len(inside.server.on_prompt_handlers) == 1
    assert not [name for name in set(sys.modules) - before if "pack" in name]


def test_a_held_loop_is_seen(tmp_path: Path) -> None:
    async def hold() -> None:
        end = time.perf_counter() + 0.1
        while time.perf_counter() < end:
            pass

    with comfyui_inside(tmp_path) as inside, inside.watching_loop() as longest:
        inside.run(asyncio.sleep(0.01))
        inside.run(hold())
        inside.run(asyncio.sleep(0.01))
        assert longest() >= 0.099


def test_what_is_sent_is_recorded_as_it_was_and_must_be_json(tmp_path: Path) -> None:
    with comfyui_inside(tmp_path) as inside:
        data = {"n": [1]}
        inside.server.send_sync("e3.batch", data)
        data["n"].append(2)
        assert inside.sent("e3.batch") == [{"n": [1]}]
        with pytest.raises(TypeError):
            inside.server.send_sync("e3.batch", {"image": Image.new("L", (1, 1))})
