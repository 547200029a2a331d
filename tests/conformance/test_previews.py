"""Pictures of a sampling in progress, sent as binary frames."""

from __future__ import annotations

import io
import json
import struct

import pytest
from PIL import Image

from support.graphs import text_to_image
from support.wire import Recorder, Wire

PREVIEWS = {"preview_method": "latent2rgb"}


async def sampled(wire: Wire, recorder: Recorder, method: str = "latent2rgb") -> str:
    prompt_id = await wire.submit(await text_to_image(wire), extra_data={"preview_method": method})
    await recorder.last_frame_of(prompt_id)
    return prompt_id


def around_previews(recorder: Recorder) -> list[str]:
    """The kinds from the first progress report of the sampler to its last."""
    kinds = recorder.types()
    start = kinds.index("progress") - 1 if "binary-1" in kinds else kinds.index("binary-4") - 1
    return kinds[start : start + 3]


async def test_a_client_without_flags_receives_the_bare_picture(wire: Wire) -> None:
    async with wire.socket() as recorder:
        await sampled(wire, recorder)
        frames = recorder.binaries()
        assert len(frames) == 2
        assert {struct.unpack(">II", frame[:8]) for frame in frames} == {(1, 1)}
        with Image.open(io.BytesIO(frames[0][8:])) as preview:
            assert (preview.format, max(preview.size)) == ("JPEG", 512)
        assert around_previews(recorder) == ["progress_state", "progress", "binary-1"]


async def test_a_client_that_asked_for_it_receives_the_picture_with_its_origin(wire: Wire) -> None:
    async with wire.socket(flags={"supports_preview_metadata": True}) as recorder:
        prompt_id = await sampled(wire, recorder)
        frames = recorder.binaries()
        assert len(frames) == 2
        event, length = struct.unpack(">II", frames[0][:8])
        assert event == 4
        assert json.loads(frames[0][8 : 8 + length]) == {
            "node_id": "5",
            "prompt_id": prompt_id,
            "display_node_id": "5",
            "parent_node_id": None,
            "real_node_id": "5",
            "image_type": "image/jpeg",
        }
        with Image.open(io.BytesIO(frames[0][8 + length :])) as preview:
            assert (preview.format, max(preview.size)) == ("JPEG", 512)
        assert around_previews(recorder) == ["progress_state", "binary-4", "progress"]


async def test_only_true_counts_as_asking(wire: Wire) -> None:
    async with wire.socket(flags={"supports_preview_metadata": 1}) as recorder:
        await sampled(wire, recorder)
        assert {kind for kind in recorder.types() if kind.startswith("binary")} == {"binary-1"}


async def test_flags_are_forgotten_when_the_client_reconnects(wire: Wire) -> None:
    async with wire.socket(flags={"supports_preview_metadata": True}):
        pass
    async with wire.socket() as recorder:
        await sampled(wire, recorder)
        assert {kind for kind in recorder.types() if kind.startswith("binary")} == {"binary-1"}


async def test_a_prompt_may_switch_previews_off(wire: Wire) -> None:
    async with wire.socket() as recorder:
        await sampled(wire, recorder, method="none")
        assert recorder.binaries() == []
        assert len(recorder.events("progress")) == 2


@pytest.mark.not_at_gateway("progress without a client id is told to nobody")
async def test_an_anonymous_prompt_shows_its_bare_previews_to_everybody(wire: Wire) -> None:
    async with wire.socket(flags={"supports_preview_metadata": True}) as recorder:
        await wire.submit(await text_to_image(wire), client_id=None, extra_data=PREVIEWS)
        await recorder.idle_after("progress")
        assert {kind for kind in recorder.types() if kind.startswith("binary")} == {"binary-1"}
