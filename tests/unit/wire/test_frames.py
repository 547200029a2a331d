"""Frames as the real server sends them."""

from __future__ import annotations

import json

import pytest

from comfyui_agent.wire.frames import Preview, preview_frame


@pytest.mark.parametrize(("image_type", "number"), [("image/jpeg", 1), ("image/png", 2)])
def test_a_plain_preview_tells_only_its_format(image_type: str, number: int) -> None:
    frame = preview_frame(Preview(b"picture", {"node_id": "3"}, image_type), described=False)
    assert frame == bytes([0, 0, 0, 1, 0, 0, 0, number]) + b"picture"


def test_a_described_preview_names_its_node_and_its_type() -> None:
    frame = preview_frame(Preview(b"picture", {"node_id": "3"}, "image/png"), described=True)
    length = int.from_bytes(frame[4:8], "big")
    assert frame[:4] == bytes([0, 0, 0, 4])
    assert json.loads(frame[8 : 8 + length]) == {"node_id": "3", "image_type": "image/png"}
    assert frame[8 + length :] == b"picture"
