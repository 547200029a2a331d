"""`auto` is the first model that a server offers, by either way in which servers write down what they offer."""

from __future__ import annotations

import copy
import json
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from comfyui_agent.clock import SYSTEM_CLOCK, BootClock
from comfyui_agent.comfy.definitions import choices_of
from comfyui_agent.comfy.uploads import Uploaded
from comfyui_agent.config.settings import Settings
from comfyui_agent.config.workspace import Workspace
from comfyui_agent.domain.failures import FailureClass
from comfyui_agent.engine.server_inputs import FOLDER, REMEMBERED_SECONDS, ServerInputs, Unfit
from comfyui_agent.fleet.server import FleetServer

MODELS = ["a.safetensors", "b.ckpt"]


def definition(spec: Any, section: str = "required") -> dict[str, Any]:
    return {"input": {section: {"ckpt_name": spec}}, "output_node": False}


def graph_with(value: Any = "auto", kind: str = "CheckpointLoaderSimple") -> dict[str, Any]:
    return {"4": {"class_type": kind, "inputs": {"ckpt_name": value}}}


@dataclass
class FakeServer:
    """A server that offers what it is told to, and counts what it is asked for."""

    definitions: dict[str, Any]
    name: str = "gpu1:8188"
    asked: list[str] = field(default_factory=list)
    uploads: list[tuple[str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.client = SimpleNamespace(definitions=SimpleNamespace(of=self._of), upload=self._upload)

    async def _of(self, class_type: str) -> Any:
        self.asked.append(class_type)
        return self.definitions.get(class_type)

    async def _upload(self, source: Path, name: str, *, subfolder: str = "") -> Uploaded:
        self.uploads.append((source.read_text(), f"{subfolder}/{name}"))
        return Uploaded(name, subfolder)


def server_with(spec: Any, section: str = "required", **more: Any) -> FakeServer:
    return FakeServer({"CheckpointLoaderSimple": definition(spec, section)}, **more)


async def fitted(
    own: ServerInputs, server: FakeServer, graph: dict[str, Any] | None = None, pictures: str | None = None
) -> dict[str, Any]:
    before = copy.deepcopy(graph if graph is not None else graph_with())
    given = copy.deepcopy(before)
    found = await own.fit(given, pictures, cast("FleetServer", server))
    assert given == before
    return cast("dict[str, Any]", found)


@pytest.fixture
def own(tmp_path: Path) -> ServerInputs:
    return ServerInputs(Workspace(tmp_path, Settings()), SYSTEM_CLOCK)


# What a definition offers


@pytest.mark.parametrize("section", ["required", "optional"])
@pytest.mark.parametrize(
    "spec",
    [
        [MODELS],
        [MODELS, {"tooltip": "x"}],
        ["COMBO", {"options": MODELS}],
        ["COMBO", {"options": MODELS, "multiselect": False}],
        [[*MODELS, 5, None]],
    ],
)
def test_choices_are_read_from_both_spellings(spec: Any, section: str) -> None:
    assert choices_of(definition(spec, section), "ckpt_name") == MODELS


@pytest.mark.parametrize(
    "spec",
    [
        ["STRING", {"multiline": True}],
        ["INT", {"default": 1}],
        ["MODEL"],
        ["COMBO"],
        ["COMBO", {}],
        ["COMBO", {"options": None}],
        ["COMBO", {"options": {"a": 1}}],
        ["COMBO", {"remote": {"route": "/x"}}],
        ["COMBO", ["a"]],
        [],
        None,
        "COMBO",
        {"options": MODELS},
        [None],
    ],
)
def test_what_is_no_list_of_choices_offers_none(spec: Any) -> None:
    assert choices_of(definition(spec), "ckpt_name") is None


@pytest.mark.parametrize(
    "broken", [None, {}, {"input": None}, {"input": []}, {"input": {"required": None}}, {"input": {"required": {}}}]
)
def test_a_definition_of_any_shape_offers_nothing(broken: Any) -> None:
    assert choices_of(broken, "ckpt_name") is None


def test_an_empty_list_is_a_list_of_choices() -> None:
    assert choices_of(definition([[]]), "ckpt_name") == []
    assert choices_of(definition(["COMBO", {"options": []}]), "ckpt_name") == []


# What auto becomes


@pytest.mark.parametrize("spec", [[MODELS], ["COMBO", {"options": MODELS}]])
async def test_auto_is_the_first_model_that_the_server_offers(own: ServerInputs, spec: Any) -> None:
    assert await fitted(own, server_with(spec)) == graph_with("a.safetensors")


@pytest.mark.parametrize(
    "model",
    [
        "x.safetensors",
        "x.ckpt",
        "x.pt",
        "x.pth",
        "x.bin",
        "x.gguf",
        "x.sft",
        "x.onnx",
        "sub/X.SAFETENSORS",
        "a\\b.safetensors",
    ],
)
async def test_a_model_is_known_by_its_ending(own: ServerInputs, model: str) -> None:
    assert await fitted(own, server_with([["none", model]])) == graph_with(model)


@pytest.mark.parametrize(
    "spec",
    [
        [["auto", "a.safetensors"]],
        ["COMBO", {"options": ["fixed", "auto"]}],
        [["euler", "ddim"]],
        ["STRING", {}],
        ["COMBO", {}],
    ],
    ids=["a choice", "a choice as well", "no models", "a text", "unknown"],
)
async def test_auto_stays_where_it_is_a_choice_or_no_model_is_meant(own: ServerInputs, spec: Any) -> None:
    assert await fitted(own, server_with(spec)) == graph_with("auto")


async def test_a_prompt_that_says_auto_stays(own: ServerInputs) -> None:
    graph = {"6": {"class_type": "CLIPTextEncode", "inputs": {"text": "auto", "clip": ["4", 1]}}}
    text = {"CLIPTextEncode": {"input": {"required": {"text": ["STRING", {"multiline": True}]}}}}
    assert await fitted(own, FakeServer(text), graph) == graph


async def test_a_node_that_the_server_does_not_have_is_left_for_it_to_refuse(own: ServerInputs) -> None:
    assert await fitted(own, FakeServer({})) == graph_with("auto")


@pytest.mark.parametrize("spec", [[[]], ["COMBO", {"options": []}]])
async def test_a_server_without_a_model_lacks_one(own: ServerInputs, spec: Any) -> None:
    with pytest.raises(Unfit) as caught:
        await fitted(own, server_with(spec))
    assert caught.value.kind is FailureClass.MISSING
    assert caught.value.message == (
        "4.ckpt_name is auto, and gpu1:8188 has no model for CheckpointLoaderSimple.ckpt_name"
    )


@pytest.mark.parametrize(
    "value", ["Auto", "AUTO", " auto", "automatic", "a.safetensors", 5, None, True, ["auto"], ["auto", 0]]
)
async def test_nothing_but_the_word_itself_is_auto(own: ServerInputs, value: Any) -> None:
    server = server_with([MODELS])
    assert await fitted(own, server, graph_with(value)) == graph_with(value)
    assert server.asked == []


async def test_each_input_is_chosen_on_its_own_and_the_rest_stays(own: ServerInputs) -> None:
    definitions = {
        "CheckpointLoaderSimple": definition([MODELS]),
        "DualCLIPLoader": {
            "input": {"required": {"one": [["c.safetensors"]], "two": ["COMBO", {"options": ["d.gguf"]}]}}
        },
    }
    graph = {
        **graph_with(),
        "98:5": {"class_type": "DualCLIPLoader", "inputs": {"one": "auto", "two": "auto", "type": "flux"}},
        "9": {"class_type": "SaveImage", "inputs": {"images": ["4", 0]}, "_meta": {"title": "x"}},
    }
    assert await fitted(own, FakeServer(definitions), graph) == {
        **graph_with("a.safetensors"),
        "98:5": {"class_type": "DualCLIPLoader", "inputs": {"one": "c.safetensors", "two": "d.gguf", "type": "flux"}},
        "9": graph["9"],
    }


async def test_a_server_is_asked_once_for_many_jobs(own: ServerInputs) -> None:
    server = server_with([MODELS])
    for _ in range(100):
        await fitted(own, server)
    assert server.asked == ["CheckpointLoaderSimple"]


async def test_each_server_has_models_of_its_own(own: ServerInputs) -> None:
    await fitted(own, server_with([MODELS]))
    other = server_with([["other.safetensors"]], name="gpu2:8188")
    assert await fitted(own, other) == graph_with("other.safetensors")


async def test_what_a_server_offers_is_asked_again_after_a_while(
    own: ServerInputs, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [1000.0]
    monkeypatch.setattr(BootClock, "now", lambda _: clock[0])
    server = server_with([MODELS])
    await fitted(own, server)
    server.definitions["CheckpointLoaderSimple"] = definition([["new.safetensors"]])
    clock[0] += REMEMBERED_SECONDS - 1
    assert await fitted(own, server) == graph_with("a.safetensors")
    clock[0] += 2
    assert await fitted(own, server) == graph_with("new.safetensors")


async def test_a_model_that_came_meanwhile_is_found_once_the_server_is_forgotten(own: ServerInputs) -> None:
    server = server_with([[]])
    with pytest.raises(Unfit):
        await fitted(own, server)
    server.definitions["CheckpointLoaderSimple"] = definition([MODELS])
    own.forget("gpu2:8188")
    with pytest.raises(Unfit):
        await fitted(own, server)
    own.forget(server.name)
    assert await fitted(own, server) == graph_with("a.safetensors")


# Input pictures


LOADING = {"10": {"class_type": "LoadImage", "inputs": {"image": "pictures/castle.png"}}}


@pytest.fixture
def kept(tmp_path: Path) -> str:
    folder = tmp_path / "database/inputs"
    folder.mkdir(parents=True)
    (folder / "0123.png").write_text("the bytes")
    return json.dumps({"10.image": "0123.png"})


async def test_a_picture_is_brought_once_and_named_as_the_server_knows_it(own: ServerInputs, kept: str) -> None:
    server = FakeServer({})
    for _ in range(10):
        graph = await fitted(own, server, LOADING, kept)
        assert graph["10"]["inputs"]["image"] == f"{FOLDER}/0123.png"
    assert server.uploads == [("the bytes", f"{FOLDER}/0123.png")]


async def test_each_server_gets_it_and_one_that_forgot_gets_it_again(own: ServerInputs, kept: str) -> None:
    one, two = FakeServer({}), FakeServer({}, name="gpu2:8188")
    await fitted(own, one, LOADING, kept)
    await fitted(own, two, LOADING, kept)
    own.forget(one.name)
    await fitted(own, one, LOADING, kept)
    await fitted(own, two, LOADING, kept)
    assert (len(one.uploads), len(two.uploads)) == (2, 1)


async def test_a_picture_that_is_gone_is_said(own: ServerInputs, kept: str, tmp_path: Path) -> None:
    (tmp_path / "database/inputs/0123.png").unlink()
    with pytest.raises(Unfit, match="is gone: submit the job again") as caught:
        await fitted(own, FakeServer({}), LOADING, kept)
    assert caught.value.kind is FailureClass.INVALID


async def test_a_row_that_was_changed_by_hand_leads_to_no_other_file(
    own: ServerInputs, kept: str, tmp_path: Path
) -> None:
    (tmp_path / "secret.txt").write_text("secret")
    server = FakeServer({})
    for name in ("../../secret.txt", str(tmp_path / "secret.txt")):
        with pytest.raises(Unfit, match="is gone"):
            await fitted(own, server, LOADING, json.dumps({"10.image": name}))
    assert server.uploads == []


@pytest.mark.parametrize("text", [None, "", "{}", "[]", "5", "not json", '{"10.image": 5}', "[" * 100_000])
async def test_pictures_that_are_no_pictures_leave_the_graph_as_it_is(own: ServerInputs, text: str | None) -> None:
    assert await fitted(own, FakeServer({}), LOADING, text) == LOADING
