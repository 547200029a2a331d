"""--object-info: a dry run of workflows whose nodes only someone else's server has."""

from __future__ import annotations

import json
import struct
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from support.graphs import node
from support.pictures import form, opened, png
from support.servers import ServerProcess, simulator
from support.wire import Graph, Wire

from .conftest import connected


def definition(output: list[str], output_node: bool = False, **required: Any) -> dict[str, Any]:
    return {"input": {"required": required}, "output": output, "output_node": output_node}


SIZE = ["INT", {"default": 512, "min": 16, "max": 4096}]
OPTION = [{"key": "exact", "inputs": {"required": {"width": SIZE}}}]
NODES = {
    "MyLoader": definition(["MODEL", "CLIP", "VAE"], name=[["a.gguf", "b.gguf"]]),
    "MyText": definition(["CONDITIONING"], clip=["CLIP"], text=["STRING", {}]),
    "MyLatent": definition(["LATENT"], width=SIZE, height=SIZE),
    "MySampler": definition(
        ["LATENT"], model=["MODEL"], positive=["CONDITIONING"], latent=["LATENT"], seed=["INT", {}], steps=["INT", {}]
    ),
    "MyDecoder": definition(["IMAGE", "MASK", "INT"], samples=["LATENT"], vae=["VAE"]),
    "MyUpscaler": definition(["IMAGE"], image=["IMAGE"]),
    "MyGenerator": definition(["IMAGE"], prompt=["STRING", {}], width=SIZE, height=SIZE, seed=["INT", {}]),
    "MyFilm": definition(["VIDEO", "AUDIO"], images=["IMAGE"]),
    "MySave": definition([], True, anything=["*"], filename_prefix=["STRING", {}]),
    "MyShow": definition(["IMAGE", "STRING"], True, images=["IMAGE"]),
    "SaveImage": definition(["IMAGE"], True, images=["IMAGE"], filename_prefix=["STRING", {}]),
    "MySwitch": definition(["COMFY_MATCHTYPE_V3"], a=["COMFY_MATCHTYPE_V3", {}]),
    "MyBatch": definition(
        ["IMAGE"], images=["COMFY_AUTOGROW_V3", {"template": {"input": {"required": {"image": ["IMAGE"]}}}}]
    ),
    "MyResize": definition(["IMAGE"], image=["IMAGE"], mode=["COMFY_DYNAMICCOMBO_V3", {"options": OPTION}]),
    "MyThing": definition(["UNHEARD_OF"], seed=["INT", {}]),
    "LoadImage": definition(["IMAGE", "MASK"], image=[["there.png"], {"image_upload": True}]),
    "SamplerCustomAdvanced": definition(
        ["LATENT", "LATENT"],
        noise=["NOISE"],
        guider=["GUIDER"],
        sampler=["SAMPLER"],
        sigmas=["SIGMAS"],
        latent_image=["LATENT"],
    ),
    "MyNoise": definition(["NOISE"], noise_seed=["INT", {}]),
    "MyGuider": definition(["GUIDER"], model=["MODEL"], positive=["CONDITIONING"], cfg=["FLOAT", {}]),
    "MySolver": definition(["SAMPLER"], eta=["FLOAT", {}]),
    "MySchedule": definition(["SIGMAS"], steps=["INT", {}]),
    "MyHalf": definition(["SIGMAS"], sigmas=["SIGMAS"]),
}
GENERATE: Graph = {"1": node("MyGenerator", prompt="a small boat", width=64, height=32, seed=1)}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder: Path = tmp_path_factory.mktemp("own")
    (folder / "nodes.json").write_text(json.dumps(NODES))
    process: ServerProcess = simulator(folder, "--object-info", str(folder / "nodes.json")).start()
    yield process
    process.kill()


@pytest.fixture
async def wire(server: ServerProcess) -> AsyncIterator[Wire]:
    async with connected(server) as ready:
        yield ready


def saving(graph: Graph, source: str, prefix: str = "dry") -> Graph:
    return {**graph, "save": node("MySave", anything=[source, 0], filename_prefix=prefix)}


async def only_file(wire: Wire, graph: Graph, key: str = "images") -> bytes:
    """The bytes of the one file that a prompt made."""
    (listed,) = (await wire.run(graph))["outputs"]["save"][key]
    content: bytes = (await wire.get("/view", params=listed)).body
    return content


def text_to_image(seed: int = 1, text: str = "a boat at sea") -> Graph:
    graph = {
        "1": node("MyLoader", name="b.gguf"),
        "2": node("MyText", clip=["1", 1], text=text),
        "3": node("MyLatent", width=96, height=64),
        "4": node("MySampler", model=["1", 0], positive=["2", 0], latent=["3", 0], seed=seed, steps=3),
        "5": node("MyDecoder", samples=["4", 0], vae=["1", 2]),
        "6": node("MyUpscaler", image=["5", 0]),
    }
    return saving(graph, "6")


async def test_the_definitions_are_given_back_as_they_were_and_can_be_waited_in(wire: Wire) -> None:
    answer = (await wire.get("/object_info")).body
    assert {name: answer[name] for name in NODES} == NODES
    assert set(answer) - set(NODES) == {"Sleep"}


async def test_text_becomes_a_picture_through_nodes_that_nobody_knows(wire: Wire) -> None:
    assert opened(await only_file(wire, text_to_image())).size == (96, 64)


async def test_a_node_known_by_its_definition_paints_its_inputs(wire: Wire) -> None:
    pictures = []
    for change in ({}, {"seed": 2}, {"prompt": "a large boat"}):
        inputs = {**GENERATE["1"]["inputs"], **change}
        pictures.append(await only_file(wire, saving({"1": node("MyGenerator", **inputs)}, "1")))
    assert opened(pictures[0]).size == (64, 32)
    assert len({opened(picture).tobytes() for picture in pictures}) == 3


@pytest.mark.parametrize(
    "inputs",
    [{"name": "c.gguf"}, {}, {"name": 5}],
    ids=["not in the list", "missing", "of another type"],
)
async def test_a_wrong_value_is_refused_as_the_definition_says(wire: Wire, inputs: dict[str, Any]) -> None:
    graph = {**text_to_image(), "1": node("MyLoader", **inputs)}
    answer = await wire.offer(graph)
    assert answer.status == 400
    kind = answer.body["node_errors"]["1"]["errors"][0]["type"]
    assert kind == ("value_not_in_list" if inputs else "required_input_missing")


async def test_a_class_that_is_not_in_the_file_does_not_exist(wire: Wire) -> None:
    answer = await wire.offer({"1": node("KSampler"), "2": node("MySave", anything=["1", 0], filename_prefix="x")})
    assert answer.body["error"]["message"] == "Node 'KSampler' not found. The custom node may not be installed."


@pytest.mark.parametrize("show", [node("MyShow"), node("SaveImage", filename_prefix="shown")])
async def test_what_an_output_node_saves_is_passed_on_if_it_has_outputs(wire: Wire, show: dict[str, Any]) -> None:
    plain = await only_file(wire, saving(GENERATE, "1"))
    show = node(show["class_type"], **show["inputs"], images=["1", 0])
    passed_on = await only_file(wire, saving({**GENERATE, "2": show}, "2", prefix="passed on"))
    assert opened(passed_on).tobytes() == opened(plain).tobytes()


async def test_a_node_takes_whatever_is_linked_to_it_unless_it_is_known_not_to(wire: Wire) -> None:
    graph = {**GENERATE, "2": node("MyUpscaler", image=["1", 0], another=["1", 0])}
    assert opened(await only_file(wire, saving(graph, "2"))).size == (64, 32)
    graph["3"] = node("SaveImage", images=["1", 0], filename_prefix="x", another=["1", 0])
    entry = await wire.finished(await wire.submit(graph))
    assert entry["status"]["messages"][-1][1]["exception_type"] == "TypeError"


async def test_films_and_sounds_come_out_of_nodes_that_make_them(wire: Wire) -> None:
    graph = {**GENERATE, "2": node("MyFilm", images=["1", 0])}
    assert (await only_file(wire, saving(graph, "2")))[4:8] == b"ftyp"
    graph["save"] = node("MySave", anything=["2", 1], filename_prefix="dry")
    assert (await only_file(wire, graph, "audio"))[:4] == b"fLaC"


async def test_a_latent_is_saved_as_one(wire: Wire) -> None:
    graph = saving({"1": node("MyLatent", width=96, height=64)}, "1")
    content = await only_file(wire, graph, "latents")
    header = json.loads(content[8 : 8 + struct.unpack_from("<Q", content)[0]])
    assert header["latent_tensor"]["shape"] == [1, 4, 8, 12]


async def test_sampler_settings_of_unknown_nodes_reach_the_sampler(wire: Wire) -> None:
    graph = text_to_image()
    graph |= {
        "n": node("MyNoise", noise_seed=4),
        "g": node("MyGuider", model=["1", 0], positive=["2", 0], cfg=3.0),
        "k": node("MySolver", eta=1.0),
        "s": node("MySchedule", steps=4),
        "h": node("MyHalf", sigmas=["s", 0]),
        "4": node(
            "SamplerCustomAdvanced",
            noise=["n", 0],
            guider=["g", 0],
            sampler=["k", 0],
            sigmas=["h", 0],
            latent_image=["3", 0],
        ),
    }
    first = await only_file(wire, graph)
    graph["n"] = node("MyNoise", noise_seed=5)
    assert opened(first).tobytes() != opened(await only_file(wire, graph)).tobytes()


async def test_a_node_whose_output_is_of_its_inputs_type_passes_it_on(wire: Wire) -> None:
    graph = saving({**GENERATE, "2": node("MySwitch", a=["1", 0])}, "2")
    assert opened(await only_file(wire, graph)).size == (64, 32)


async def test_inputs_that_grow_and_choices_with_inputs_are_understood(wire: Wire) -> None:
    batch = node("MyBatch", **{"images.image0": ["1", 0], "images.image1": ["1", 0]})
    resize = node("MyResize", image=["2", 0], mode="exact", **{"mode.width": 32})
    await wire.run(saving({**GENERATE, "2": batch, "3": resize}, "3"))
    resize["inputs"]["mode.width"] = 1
    answer = await wire.offer(saving({**GENERATE, "2": batch, "3": resize}, "3"))
    assert answer.body["node_errors"]["3"]["errors"][0]["details"] == "mode.width"
    del resize["inputs"]["mode.width"]
    answer = await wire.offer(saving({**GENERATE, "2": batch, "3": resize}, "3"))
    assert answer.body["node_errors"]["3"]["errors"][0]["extra_info"] == {"input_name": "mode.width"}


async def test_an_unheard_of_type_travels(wire: Wire) -> None:
    entry = await wire.run(saving({"1": node("MyThing", seed=1)}, "1"))
    assert entry["outputs"] == {}


async def test_an_uploaded_picture_can_be_loaded(wire: Wire) -> None:
    await wire.post("/upload/image", data=form(png(size=(20, 10)), "mine.png"))
    assert opened(await only_file(wire, saving({"1": node("LoadImage", image="mine.png")}, "1"))).size == (20, 10)


async def test_a_picture_that_only_the_users_server_has_is_stood_in_for(wire: Wire) -> None:
    graph = saving({"1": node("LoadImage", image="there.png")}, "1")
    assert opened(await only_file(wire, graph)).size == (512, 512)
    refused = await wire.offer(saving({"1": node("LoadImage", image="nowhere.png")}, "1"))
    assert refused.body["node_errors"]["1"]["errors"][0]["type"] == "custom_validation_failed"
