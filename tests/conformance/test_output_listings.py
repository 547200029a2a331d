"""What output nodes list, and what is written inside the files."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from support.graphs import empty_image, fresh_prefix, node, picture, saved_with
from support.pictures import form, opened, png
from support.wire import Wire

PRESETS: dict[str, dict[str, Any]] = {
    "SaveAnimatedPNG": {"fps": 6.0, "compress_level": 4},
    "SaveAnimatedWEBP": {"fps": 6.0, "lossless": True, "quality": 80, "method": "default"},
    "SaveWEBM": {"codec": "vp9", "fps": 24.0, "crf": 32.0},
}
TEMPORARY = re.compile(r"ComfyUI_temp_[a-z]{5}_0000\d_\.png")


@pytest.mark.parametrize(
    ("class_type", "extension"), [("SaveAnimatedPNG", "png"), ("SaveAnimatedWEBP", "webp"), ("SaveWEBM", "webm")]
)
async def test_an_animation_is_one_file_listed_as_an_image(wire: Wire, class_type: str, extension: str) -> None:
    prefix = fresh_prefix()
    entry = await wire.run(saved_with(class_type, prefix, batch_size=3, **PRESETS[class_type]))
    expected = {"filename": f"{prefix}_00001_.{extension}", "subfolder": "", "type": "output"}
    assert entry["outputs"] == {"2": {"images": [expected], "animated": [True]}}
    assert (await wire.get("/view", params=expected)).status == 200


@pytest.mark.parametrize("class_type", ["SaveAnimatedPNG", "SaveAnimatedWEBP"])
async def test_an_animation_holds_every_picture(wire: Wire, class_type: str) -> None:
    graph = saved_with(class_type, **PRESETS[class_type])
    graph["1"] = node("ImageBatch", image1=["3", 0], image2=["4", 0])
    graph["3"], graph["4"] = empty_image(32, 24, color=0xFF0000), empty_image(32, 24, color=0x0000FF)
    (listed,) = (await wire.run(graph))["outputs"]["2"]["images"]
    image = opened((await wire.get("/view", params=listed)).body)
    assert (image.n_frames, image.size) == (2, (32, 24))


async def test_a_video_is_listed_as_an_image(wire: Wire) -> None:
    prefix = fresh_prefix()
    graph = {
        "1": empty_image(32, 24, batch_size=2),
        "2": node("CreateVideo", images=["1", 0], fps=10.0),
        "3": node("SaveVideo", video=["2", 0], filename_prefix=prefix, format="auto", codec="auto"),
    }
    expected = {"filename": f"{prefix}_00001_.mp4", "subfolder": "", "type": "output"}
    assert (await wire.run(graph))["outputs"] == {"3": {"images": [expected], "animated": [True]}}
    assert (await wire.get("/view", params=expected)).headers["Content-Type"] == "video/mp4"


async def test_a_latent_is_listed_as_a_latent(wire: Wire) -> None:
    prefix = fresh_prefix()
    graph = {
        "1": node("EmptyLatentImage", width=64, height=64, batch_size=1),
        "2": node("SaveLatent", samples=["1", 0], filename_prefix=prefix),
    }
    expected = {"filename": f"{prefix}_00001_.latent", "subfolder": "", "type": "output"}
    assert (await wire.run(graph))["outputs"] == {"2": {"latents": [expected]}}


@pytest.mark.parametrize(
    ("class_type", "value", "text"),
    [("PrimitiveInt", 5, "5"), ("PrimitiveString", "words", "words"), ("PrimitiveBoolean", True, "True")],
)
async def test_a_value_is_listed_as_text(wire: Wire, class_type: str, value: Any, text: str) -> None:
    graph = {"1": node(class_type, value=value), "2": node("PreviewAny", source=["1", 0], fresh=fresh_prefix())}
    assert (await wire.run(graph))["outputs"] == {"2": {"text": [text]}}


async def test_previewed_pictures_lie_in_the_temporary_folder(wire: Wire) -> None:
    entry = await wire.run(saved_with("PreviewImage", batch_size=2))
    assert entry["outputs"]["2"].keys() == {"images"}
    images = entry["outputs"]["2"]["images"]
    assert [(image["subfolder"], image["type"]) for image in images] == [("", "temp"), ("", "temp")]
    assert all(TEMPORARY.fullmatch(image["filename"]) for image in images)
    assert [image["filename"][-11:] for image in images] == ["_00001_.png", "_00002_.png"]


async def test_a_previewed_mask_says_that_it_is_still(wire: Wire) -> None:
    graph = {"1": node("SolidMask", value=0.5, width=16, height=8), "2": node("MaskPreview", mask=["1", 0])}
    graph["1"]["inputs"]["fresh"] = fresh_prefix()
    listing = (await wire.run(graph))["outputs"]["2"]
    assert listing["animated"] == [False]
    (image,) = listing["images"]
    assert image["type"] == "temp"
    assert TEMPORARY.fullmatch(image["filename"])
    shown = opened((await wire.get("/view", params=image)).body)
    assert (shown.size, shown.getpixel((0, 0))) == ((16, 8), (127, 127, 127))


async def test_what_is_between_two_shades_becomes_the_darker_one(wire: Wire) -> None:
    """Pixels are numbers from 0 to 1; a saved one is cut off, not rounded, and so 1 - 65/255 is 189 of 255."""
    name = (await wire.post("/upload/image", data=form(png((64, 65, 255)), f"{fresh_prefix()}.png"))).body["name"]
    graph = {
        "1": node("LoadImage", image=name),
        "2": node("ImageInvert", image=["1", 0]),
        "3": node("SaveImage", images=["2", 0], filename_prefix=fresh_prefix()),
    }
    (listed,) = (await wire.run(graph))["outputs"]["3"]["images"]
    assert opened((await wire.get("/view", params=listed)).body).getpixel((0, 0)) == (191, 189, 0)


@pytest.mark.since("0.28")
async def test_what_is_saved_or_shown_is_passed_on(wire: Wire) -> None:
    graph = picture(color=0x000000)
    graph["3"] = node("PreviewImage", images=["2", 0])
    graph["4"] = node("ImageInvert", image=["3", 0])
    graph["5"] = node("SaveImage", images=["4", 0], filename_prefix=fresh_prefix())
    graph["6"] = node("PrimitiveInt", value=5)
    graph["7"] = node("PreviewAny", source=["6", 0])
    graph["8"] = node("PreviewAny", source=["7", 0], fresh=fresh_prefix())
    outputs = (await wire.run(graph))["outputs"]
    assert outputs.keys() == {"2", "3", "5", "7", "8"}
    (listed,) = outputs["5"]["images"]
    assert opened((await wire.get("/view", params=listed)).body).getpixel((0, 0)) == (255, 255, 255)
    assert outputs["8"] == {"text": ["5"]}


@pytest.mark.until("0.26")
async def test_nothing_follows_after_a_node_that_saves(wire: Wire) -> None:
    graph = picture() | {"3": node("PreviewImage", images=["2", 0])}
    answer = await wire.offer(graph)
    (error,) = answer.body["node_errors"]["3"]["errors"]
    assert error["extra_info"]["exception_type"] == "IndexError"


@pytest.mark.not_at_gateway("a PNG has E3's own prefix")
async def test_a_png_carries_its_prompt_and_the_extra_information(wire: Wire) -> None:
    graph = picture()
    workflow = {"id": "w", "nodes": [{"note": "ünïcode"}]}
    entry = await wire.run(graph, extra_data={"extra_pnginfo": {"workflow": workflow, "take": 3}})
    (listed,) = entry["outputs"]["2"]["images"]
    text = opened((await wire.get("/view", params=listed)).body).info
    assert text.keys() == {"prompt", "workflow", "take"}
    assert json.loads(text["prompt"]) == graph
    assert (json.loads(text["workflow"]), text["take"]) == (workflow, "3")


async def test_a_png_without_extra_information_carries_the_prompt_alone(wire: Wire) -> None:
    (listed,) = (await wire.run(picture()))["outputs"]["2"]["images"]
    assert opened((await wire.get("/view", params=listed)).body).info.keys() == {"prompt"}


@pytest.mark.not_at_gateway("a PNG has E3's own prefix")
async def test_the_prompt_in_a_png_holds_the_fingerprint_of_loaded_files_and_the_history_does_not(wire: Wire) -> None:
    name = (await wire.post("/upload/image", data=form(png(), f"{fresh_prefix()}.png"))).body["name"]
    graph = {
        "1": node("LoadImage", image=name),
        "2": node("SaveImage", images=["1", 0], filename_prefix=fresh_prefix()),
    }
    entry = await wire.run(graph)
    assert entry["prompt"][2] == graph
    (listed,) = entry["outputs"]["2"]["images"]
    text = opened((await wire.get("/view", params=listed)).body).info
    written = json.loads(text["prompt"])
    (fingerprint,) = written["1"].pop("is_changed")
    assert re.fullmatch(r"[0-9a-f]{64}", fingerprint)
    assert written == graph
