"""Putting files into the server's folders."""

from __future__ import annotations

import io
import json
from typing import Any

import aiohttp
import pytest
from PIL import Image, PngImagePlugin

from support.graphs import fresh_prefix, node
from support.pictures import form, opened, png
from support.wire import Wire


def fresh_name(extension: str = "png") -> str:
    return f"{fresh_prefix('upload')}.{extension}"


async def stored(wire: Wire, answer_body: dict[str, str]) -> bytes:
    """The bytes behind the place an upload answered with."""
    query = {"filename": answer_body["name"], "subfolder": answer_body["subfolder"], "type": answer_body["type"]}
    answer = await wire.get("/view", params=query)
    assert answer.status == 200
    content: bytes = answer.body
    return content


async def test_an_upload_answers_where_it_lies(wire: Wire) -> None:
    name, content = fresh_name(), png()
    answer = await wire.post("/upload/image", data=form(content, name))
    assert (answer.status, answer.body) == (200, {"name": name, "subfolder": "", "type": "input"})
    assert await stored(wire, answer.body) == content


async def test_the_same_bytes_under_the_same_name_are_stored_once(wire: Wire) -> None:
    name, content = fresh_name(), png()
    answers = [await wire.post("/upload/image", data=form(content, name)) for _ in range(2)]
    assert [answer.body["name"] for answer in answers] == [name, name]


async def test_other_bytes_under_the_same_name_are_stored_beside_it(wire: Wire) -> None:
    name = fresh_name()
    contents = [png((shade, 0, 0)) for shade in (1, 2, 3)]
    answers = [await wire.post("/upload/image", data=form(content, name)) for content in contents]
    stem = name.removesuffix(".png")
    assert [answer.body["name"] for answer in answers] == [name, f"{stem} (1).png", f"{stem} (2).png"]
    assert [await stored(wire, answer.body) for answer in answers] == contents
    again = await wire.post("/upload/image", data=form(contents[1], name))
    assert again.body["name"] == f"{stem} (1).png"


@pytest.mark.parametrize(("overwrite", "replaces"), [("true", True), ("1", True), ("yes", False), ("True", False)])
async def test_overwriting_must_be_asked_for(wire: Wire, overwrite: str, replaces: bool) -> None:
    name, old, new = fresh_name(), png((1, 1, 1)), png((2, 2, 2))
    first = await wire.post("/upload/image", data=form(old, name))
    second = await wire.post("/upload/image", data=form(new, name, overwrite=overwrite))
    assert (second.body["name"] == name) is replaces
    assert await stored(wire, first.body) == (new if replaces else old)


@pytest.mark.parametrize("folder_type", ["input", "output", "temp"])
async def test_a_folder_and_subfolder_can_be_chosen(wire: Wire, folder_type: str) -> None:
    name, content = fresh_name(), png()
    answer = await wire.post("/upload/image", data=form(content, name, type=folder_type, subfolder="deep/er"))
    assert (answer.status, answer.body) == (200, {"name": name, "subfolder": "deep/er", "type": folder_type})
    assert await stored(wire, answer.body) == content


async def test_any_bytes_are_taken(wire: Wire) -> None:
    name = fresh_name("bin")
    answer = await wire.post("/upload/image", data=form(b"\x00\x01 not a picture", name))
    assert (answer.status, await stored(wire, answer.body)) == (200, b"\x00\x01 not a picture")


@pytest.mark.parametrize(
    ("filename", "fields", "status"),
    [
        ("../escape.png", {}, 400),
        ("x.png", {"subfolder": "../.."}, 400),
        ("x.png", {"subfolder": "/etc"}, 400),
        ("x.png", {"type": "elsewhere"}, 500),
        (None, {"subfolder": ""}, 400),
    ],
)
async def test_an_upload_that_leads_nowhere_is_refused(
    wire: Wire, filename: str | None, fields: dict[str, Any], status: int
) -> None:
    data = form(None, **fields) if filename is None else form(png(), filename, **fields)
    assert (await wire.post("/upload/image", data=data)).status == status


async def test_an_uploaded_picture_can_be_loaded_by_a_prompt(wire: Wire) -> None:
    name = (await wire.post("/upload/image", data=form(png((9, 99, 199)), fresh_name()))).body["name"]
    offered = (await wire.get("/object_info/LoadImage")).body["LoadImage"]["input"]["required"]["image"]
    assert name in offered[0]
    assert offered[1] == {"image_upload": True}
    graph = {
        "1": node("LoadImage", image=name),
        "2": node("SaveImage", images=["1", 0], filename_prefix=fresh_prefix()),
    }
    (listed,) = (await wire.run(graph))["outputs"]["2"]["images"]
    image = opened((await wire.get("/view", params=listed)).body)
    assert (image.size, image.getpixel((0, 0))) == ((12, 8), (9, 99, 199))


@pytest.mark.parametrize("place", ["deep/er/{name}", "deep/er/{name} [input]", "deep/er/{name} [output]"])
async def test_a_prompt_may_load_from_subfolders_and_other_folders(wire: Wire, place: str) -> None:
    """Such names are not among the choices the node offers, and are accepted all the same."""
    name = fresh_name()
    folder_type = "output" if "[output]" in place else "input"
    await wire.post("/upload/image", data=form(png(), name, type=folder_type, subfolder="deep/er"))
    graph = {
        "1": node("LoadImage", image=place.format(name=name)),
        "2": node("SaveImage", images=["1", 0], filename_prefix=fresh_prefix()),
    }
    assert len((await wire.run(graph))["outputs"]["2"]["images"]) == 1


def mask_form(name: str, mask: bytes, original: dict[str, str]) -> aiohttp.FormData:
    return form(mask, name, original_ref=json.dumps(original))


async def test_a_mask_becomes_the_alpha_of_its_original(wire: Wire) -> None:
    buffer, notes = io.BytesIO(), PngImagePlugin.PngInfo()
    notes.add_text("workflow", "kept")
    Image.new("RGB", (12, 8), (5, 6, 7)).save(buffer, "PNG", pnginfo=notes)
    original = (await wire.post("/upload/image", data=form(buffer.getvalue(), fresh_name()))).body
    reference = {"filename": original["name"], "subfolder": "", "type": "input"}
    name = fresh_name()
    answer = await wire.post("/upload/mask", data=mask_form(name, png((0, 0, 0, 40)), reference))
    assert (answer.status, answer.body) == (200, {"name": name, "subfolder": "", "type": "input"})
    image = opened(await stored(wire, answer.body))
    assert (image.mode, image.getpixel((0, 0))) == ("RGBA", (5, 6, 7, 40))
    assert image.info["workflow"] == "kept"


async def test_a_mask_without_its_original_is_accepted_and_not_written(wire: Wire) -> None:
    name = fresh_name()
    reference = {"filename": "no-such-file.png", "subfolder": "", "type": "input"}
    answer = await wire.post("/upload/mask", data=mask_form(name, png((0, 0, 0, 40)), reference))
    assert (answer.status, answer.body["name"]) == (200, name)
    assert (await wire.get(f"/view?filename={name}&type=input")).status == 404


async def test_a_mask_that_names_no_original_fails_the_request(wire: Wire) -> None:
    assert (await wire.post("/upload/mask", data=form(png(), fresh_name()))).status == 500
