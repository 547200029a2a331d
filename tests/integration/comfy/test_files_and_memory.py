"""Results come home whole, inputs go out under the name that comes back, memory is seen to come free."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image, ImageChops

from comfyui_agent.comfy.answers import Freed
from comfyui_agent.comfy.client import ComfyClient
from comfyui_agent.comfy.limits import Limits
from comfyui_agent.domain.failures import FailureClass
from comfyui_agent.domain.prompts import mint_prompt_id
from comfyui_agent.sim.process import ServerProcess
from support.graphs import empty_image, fresh_prefix, node, picture, saved_with, text_to_image
from support.promises import failed, succeeded
from support.sampled_graphs import film as film_graph_of
from support.wire import Graph, Wire


def film(class_type: str) -> Graph:
    video = {"SaveVideo": {"format": "auto", "codec": "auto"}, "SaveWEBM": {"codec": "vp9", "fps": 8.0, "crf": 32.0}}
    if class_type == "SaveVideo":
        return {
            "1": empty_image(width=64, height=64, batch_size=8),
            "3": node("CreateVideo", images=["1", 0], fps=8.0),
            "2": node("SaveVideo", video=["3", 0], filename_prefix=fresh_prefix(), **video["SaveVideo"]),
        }
    return saved_with(class_type, batch_size=8, **video[class_type])


def latent() -> Graph:
    return {
        "1": node("EmptyLatentImage", width=64, height=64, batch_size=1, fresh=fresh_prefix()),
        "2": node("SaveLatent", samples=["1", 0], filename_prefix=fresh_prefix()),
    }


@pytest.mark.parametrize(
    ("graph", "extension", "media"),
    [
        pytest.param(lambda: picture(), "png", "image", id="picture"),
        pytest.param(
            lambda: saved_with("SaveAnimatedPNG", batch_size=3, fps=6.0, compress_level=4), "png", "image", id="apng"
        ),
        pytest.param(
            lambda: saved_with("SaveAnimatedWEBP", batch_size=3, fps=6.0, lossless=True, quality=80, method="default"),
            "webp",
            "image",
            id="webp",
        ),
        pytest.param(lambda: film("SaveVideo"), "mp4", "video", id="mp4"),
        pytest.param(lambda: film("SaveWEBM"), "webm", "video", id="webm"),
        pytest.param(latent, "latent", "latent", id="latent"),
    ],
)
async def test_every_kind_of_result_comes_home_whole(
    comfy: ComfyClient, tmp_path: Path, graph: Callable[[], Graph], extension: str, media: str
) -> None:
    watch = await comfy.submit(graph(), mint_prompt_id())
    outcome = succeeded(await watch.outcome(timeout=20))
    staged = await comfy.download(outcome.results.kept[0], tmp_path)
    assert (staged.kind.extension, staged.kind.media) == (extension, media)
    home = staged.publish(tmp_path / f"result.{extension}")
    assert home.stat().st_size == staged.size > 0
    assert list(tmp_path.iterdir()) == [home]


async def test_sound_comes_home_too(comfyui_simulator: Callable[..., ServerProcess], tmp_path: Path) -> None:
    graph = {
        "1": node("EmptyAudio", duration=0.5, sample_rate=8000, channels=1),
        "2": node("SaveAudio", audio=["1", 0], filename_prefix="sound"),
    }
    async with ComfyClient(comfyui_simulator().url) as comfy:
        watch = await comfy.submit(graph, mint_prompt_id())
        staged = await comfy.download(succeeded(await watch.outcome(timeout=20)).results.kept[0], tmp_path)
    assert (staged.kind.extension, staged.kind.media) == ("flac", "audio")


async def test_an_uploaded_picture_is_used_under_the_name_that_comes_back(comfy: ComfyClient) -> None:
    name = f"{fresh_prefix()}.png"
    red = await comfy.upload(_png("red"), name)
    same = await comfy.upload(_png("red"), name)
    blue = await comfy.upload(_png("blue"), name)
    nested = await comfy.upload(_png("green"), name, subfolder="e3/inputs")
    assert red.reference == name == same.reference
    assert blue.reference == name.replace(".png", " (1).png")
    assert nested.reference == f"e3/inputs/{name}"
    for uploaded in (red, blue, nested):
        graph = {
            "1": node("LoadImage", image=uploaded.reference),
            "2": node("SaveImage", images=["1", 0], filename_prefix=fresh_prefix()),
        }
        watch = await comfy.submit(graph, mint_prompt_id())
        succeeded(await watch.outcome(timeout=20))


async def test_a_file_is_uploaded_by_its_path_too(comfy: ComfyClient, tmp_path: Path) -> None:
    file = tmp_path / "here.png"
    file.write_bytes(_png("red"))
    name = f"{fresh_prefix()}.png"
    assert (await comfy.upload(file, name)).reference == name
    assert (await comfy.upload(str(file), name)).reference == name


async def test_the_pictures_of_a_film_follow_each_other(
    comfyui_simulator: Callable[..., ServerProcess], tmp_path: Path
) -> None:
    graph = {**film_graph(), "7": node("SaveImage", images=["6", 0], filename_prefix="frame")}
    async with ComfyClient(comfyui_simulator().url) as comfy:
        outcome = succeeded(await (await comfy.submit(graph, mint_prompt_id())).outcome(timeout=20))
        frames = [
            Image.open((await comfy.download(file, tmp_path)).path).convert("RGB") for file in outcome.results.files
        ]
    assert len(frames) == 25
    same = [sum(ImageChops.difference(frames[0], frame).histogram()[::256]) for frame in frames[1:]]
    assert 0.8 * len(frames[0].tobytes()) < min(same) < len(frames[0].tobytes())


async def test_out_of_memory_is_a_class_of_its_own_and_freed_memory_is_seen(
    comfyui_simulator: Callable[..., ServerProcess],
) -> None:
    server = comfyui_simulator("--vram-gb", "6", "--models", "big.safetensors")
    async with ComfyClient(server.url) as comfy:
        watch = await comfy.submit(_sampled("big.safetensors", 512), mint_prompt_id())
        succeeded(await watch.outcome(timeout=20))
        held = (await comfy.system_stats()).free_memory
        watch = await comfy.submit(_sampled("big.safetensors", 4096), mint_prompt_id())
        failed(await watch.outcome(timeout=20), FailureClass.OOM)
        watch = await comfy.submit(_sampled("big.safetensors", 256), mint_prompt_id())
        succeeded(await watch.outcome(timeout=20))
        freed = await comfy.free(timeout=5)
        assert freed.came_free
        assert freed.after > held


async def test_memory_that_does_not_come_free_is_not_called_free(comfy: ComfyClient) -> None:
    total = (await comfy.system_stats()).devices[0].vram_total
    freed = await comfy.free(wanted=total * 2, timeout=0.6)
    assert not freed.came_free
    assert isinstance(freed, Freed)


async def test_the_server_says_what_it_is_and_has(comfy: ComfyClient) -> None:
    stats = await comfy.system_stats()
    assert stats.version.count(".") == 2
    assert stats.devices[0].vram_total >= stats.devices[0].vram_free > 0
    assert await comfy.models("checkpoints")
    assert await comfy.models("no such folder") == []
    definition = await comfy.definitions.of("SaveImage")
    assert definition is not None
    assert definition["output_node"] is True
    assert await comfy.definitions.of("No/Such Node?") is None
    assert "KSampler" in await comfy.definitions.all()


async def test_without_a_websocket_the_end_is_known_within_the_poll_interval(wire: Wire) -> None:
    limits = Limits(poll_seconds=0.2)
    async with ComfyClient(wire.url, limits=limits, listen=False) as comfy:
        watch = await comfy.submit(await text_to_image(wire), mint_prompt_id())
        outcome = succeeded(await watch.outcome(timeout=30))
    assert outcome.results.files


def film_graph() -> Graph:
    return film_graph_of("a sunrise", seed=3)


def _png(colour: str) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (8, 8), colour).save(buffer, "PNG")
    return buffer.getvalue()


def _sampled(checkpoint: str, edge: int) -> Graph:
    seed = int.from_bytes(os.urandom(4), "big")
    return {
        "1": node("CheckpointLoaderSimple", ckpt_name=checkpoint),
        "2": node("CLIPTextEncode", text="a knight", clip=["1", 1]),
        "4": node("EmptyLatentImage", width=edge, height=edge, batch_size=1),
        "5": node(
            "KSampler",
            model=["1", 0],
            positive=["2", 0],
            negative=["2", 0],
            latent_image=["4", 0],
            seed=seed,
            steps=2,
            cfg=7.0,
            sampler_name="euler",
            scheduler="normal",
            denoise=1.0,
        ),
        "7": node("SaveLatent", samples=["5", 0], filename_prefix=fresh_prefix()),
    }
