"""The pack joins the ComfyUI that imports it, once; and is there for imports elsewhere."""

from __future__ import annotations

import logging
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from comfyui_agent.nodes.core import iteration_state
from comfyui_agent.nodes.core.iteration_state import IterationStateManager
from comfyui_agent.nodes.pack_builder import build
from comfyui_agent.nodes.registration import join
from support.comfyui_inside import ComfyUIInside, comfyui_inside

ROUTES = {("GET", "/wi/batches"), ("GET", "/wi/batch/{batch_id}"), ("POST", "/wi/cancel_batch/{batch_id}")}
NODES = {"WIIterator", "WIParameter", "WISaveImage", "WIGridCompositor"}


@pytest.fixture(autouse=True)
def own_manager(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(iteration_state, "_instance", None)


@pytest.fixture
def inside(tmp_path: Path) -> Iterator[ComfyUIInside]:
    with comfyui_inside(tmp_path / "comfyui") as comfyui:
        yield comfyui


@pytest.fixture(scope="module")
def files() -> dict[str, bytes]:
    return {path: text for path, text in build().items() if path.endswith((".py", "declarations.json"))}


def copied(folder: Path, files: dict[str, bytes]) -> Path:
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(text)
    return folder


def routes(inside: ComfyUIInside) -> list[tuple[str, str]]:
    return [(route.method, route.path) for route in inside.server.routes if isinstance(route, web.RouteDef)]


def errors(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]


def test_outside_of_comfyui_there_is_nothing_to_join(caplog: pytest.LogCaptureFixture) -> None:
    assert join() is True
    assert errors(caplog) == []


def test_a_module_of_that_name_that_is_not_comfyuis_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "server", types.ModuleType("server"))
    assert join() is True


def test_inside_it_hears_of_prompts_and_answers(inside: ComfyUIInside, caplog: pytest.LogCaptureFixture) -> None:
    assert join() is True
    assert inside.server.on_prompt_handlers == [IterationStateManager.instance().handle_prompt]
    assert set(routes(inside)) == ROUTES
    assert inside.request("GET", "/wi/batches") == (200, {"batches": []})
    assert errors(caplog) == []


def test_a_second_time_it_says_so_and_does_nothing(inside: ComfyUIInside, caplog: pytest.LogCaptureFixture) -> None:
    assert (join(), join()) == (True, False)
    assert len(inside.server.on_prompt_handlers) == 1
    assert len(routes(inside)) == 3
    assert errors(caplog) == [
        "E3's nodes are installed twice: delete one of the folders in custom_nodes. The second is not used."
    ]


@pytest.mark.parametrize("missing", ["add_on_prompt_handler", "routes"])
def test_a_comfyui_that_does_not_let_it_starts_all_the_same(
    inside: ComfyUIInside, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    monkeypatch.setattr(inside.server, missing, None)
    assert join() is True
    assert errors(caplog) == ["This ComfyUI does not let E3's nodes hear of prompts: an E3 Iterator will do nothing"]


def test_the_installed_folder_brings_the_nodes(inside: ComfyUIInside, tmp_path: Path, files: dict[str, bytes]) -> None:
    module = inside.load(copied(tmp_path / "custom_nodes" / "e3_iterator", files))
    assert set(module.NODE_CLASS_MAPPINGS) == set(module.NODE_DISPLAY_NAME_MAPPINGS) == NODES
    assert module.WEB_DIRECTORY == "./web"
    assert set(routes(inside)) == ROUTES
    assert all("comfyui_agent" not in node.__module__ for node in module.NODE_CLASS_MAPPINGS.values())


def test_a_second_folder_brings_no_nodes_and_no_page(
    inside: ComfyUIInside, tmp_path: Path, files: dict[str, bytes], caplog: pytest.LogCaptureFixture
) -> None:
    first = inside.load(copied(tmp_path / "custom_nodes" / "e3_iterator", files))
    second = inside.load(copied(tmp_path / "custom_nodes" / "e3_iterator_old", files))
    assert second.NODE_CLASS_MAPPINGS == {}
    assert getattr(second, "WEB_DIRECTORY", None) is None
    assert set(inside.classes) >= NODES
    assert all(inside.classes[name] is first.NODE_CLASS_MAPPINGS[name] for name in NODES)
    assert len(inside.server.on_prompt_handlers) == 1
    assert any("installed twice" in each for each in errors(caplog))


def test_an_ordinary_prompt_goes_through_a_comfyui_that_was_joined_as_it_came(inside: ComfyUIInside) -> None:
    assert join()
    inputs: dict[str, Any] = {"colour": 1, "width": 2, "height": 2}
    prompt = {
        "1": {"class_type": "Colour", "inputs": inputs},
        "2": {"class_type": "Save", "inputs": {"images": ["1", 0], "filename_prefix": "x"}},
    }
    status, answer = inside.post({"prompt": prompt, "prompt_id": "own"})
    assert (status, answer["prompt_id"]) == (200, "own")
    assert inside.wait_ended("own")["prompt"][2] == prompt
    assert inside.request("GET", "/wi/batches")[1] == {"batches": []}
