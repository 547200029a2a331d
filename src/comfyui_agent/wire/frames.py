"""Frames of the websocket, encoded."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass

from comfyui_agent.wire.prompts import Json

PREVIEW = 1
PREVIEW_WITH_METADATA = 4
FORMATS = {"image/jpeg": 1, "image/png": 2}


@dataclass(frozen=True)
class Preview:
    """A picture of unfinished work. `metadata` has its node and prompt."""

    image: bytes
    metadata: Json
    image_type: str = "image/jpeg"


def event_frame(event: str, data: Json) -> str:
    return json.dumps({"type": event, "data": data})


def preview_frame(preview: Preview, described: bool) -> bytes:
    """With metadata if `described`, as clients with the feature `supports_preview_metadata` want it."""
    if not described:
        return struct.pack(">II", PREVIEW, FORMATS[preview.image_type]) + preview.image
    metadata = json.dumps({**preview.metadata, "image_type": preview.image_type}).encode()
    return struct.pack(">II", PREVIEW_WITH_METADATA, len(metadata)) + metadata + preview.image
