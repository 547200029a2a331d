"""What --models offers is listed everywhere a client looks, and can be used."""

from __future__ import annotations

from pathlib import Path

from support.graphs import text_to_image
from support.pictures import opened, png
from support.wire import Wire

from .conftest import Connect, Start

SWITCHES = (
    "--models",
    "ink.safetensors",
    "--models",
    "loras/thin.safetensors",
    "--models",
    "embeddings/bad_hands.pt",
    "--models",
    "vae/sharp.safetensors",
)


async def test_a_name_is_a_checkpoint_and_a_folder_before_it_is_obeyed(start: Start, connect: Connect) -> None:
    async with connect(start(*SWITCHES)) as wire:
        assert (await wire.get("/models/checkpoints")).body == ["ink.safetensors"]
        assert (await wire.get("/models/loras")).body == ["thin.safetensors"]
        assert (await wire.get("/embeddings")).body == ["bad_hands"]
        vae = (await wire.get("/object_info/VAELoader")).body["VAELoader"]["input"]["required"]["vae_name"]
        assert vae[0] == ["sharp.safetensors", "pixel_space"]
        lora = (await wire.get("/object_info/LoraLoader")).body["LoraLoader"]["input"]["required"]["lora_name"]
        assert lora[0] == ["thin.safetensors"]

        graph = await text_to_image(wire)
        assert graph["1"]["inputs"]["ckpt_name"] == "ink.safetensors"
        await wire.run(graph)
        graph["1"]["inputs"]["ckpt_name"] = "other.safetensors"
        refused = await wire.offer(graph)
        assert refused.body["node_errors"]["1"]["errors"][0]["type"] == "value_not_in_list"


async def test_without_the_switch_there_are_three_checkpoints(plain: Wire) -> None:
    assert len((await plain.get("/models/checkpoints")).body) == 3
    assert (await plain.get("/models/loras")).body == []


async def test_a_picture_beside_a_model_is_its_preview(start: Start, connect: Connect, tmp_path: Path) -> None:
    async with connect(start("--models", "loras/ink/thin.safetensors")) as wire:
        [folder] = (await wire.get("/internal/folder_paths")).body["loras"]
        beside = Path(folder, "ink")
        beside.mkdir(parents=True)
        address = "/experiment/models/preview/loras/0/ink/thin.safetensors"
        assert (await wire.get(address)).status == 404
        (beside / "thin.preview.png").write_bytes(png(size=(30, 20)))
        (beside / "thinner.png").write_bytes(png())
        shown = await wire.get(address)
        assert (opened(shown.body).size, shown.headers["Content-Type"]) == ((30, 20), "image/webp")
        (beside / "thin.preview.png").write_bytes(b"GIF8 no picture")
        assert (await wire.get(address)).status == 404
        assert (await wire.get("/experiment/models/preview/loras/0/..%2F..%2F..%2Fetc%2Fpasswd")).status == 403
