"""Frames of the websocket as types. Frames that are not understood are None, because nothing depends on them."""

from __future__ import annotations

import contextlib
import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from comfyui_agent.comfy import shapes

PREVIEW = 1
PREVIEW_WITH_METADATA = 4
MIMETYPES = {1: "image/jpeg", 2: "image/png"}
LARGEST_METADATA = 1024 * 1024
LARGEST_PREVIEW = 8 * 1024 * 1024
NOT_NEEDED = ('{"type": "progress_state"', '{"type": "status"')
"""The starts of more than half of the frames: the states of all nodes, and how many prompts wait."""
LONGEST_TEXT = 1024 * 1024


@dataclass(frozen=True)
class Event:
    """A text frame about a prompt, or about the server if `prompt_id` is empty."""

    kind: str
    prompt_id: str
    data: Mapping[str, Any]


@dataclass(frozen=True)
class Preview:
    """A preview picture. Older servers do not name its node."""

    image: bytes
    mimetype: str
    node_id: str = ""
    prompt_id: str = ""


SIGN_OF_LIFE = Event("", "", {})


def read_text(frame: str) -> Event | None:
    if len(frame) > LONGEST_TEXT:
        return None
    if frame.startswith(NOT_NEEDED):
        return SIGN_OF_LIFE
    message = _read_object(frame)
    if message is None or not isinstance(message.get("type"), str):
        return None
    data = shapes.optional_object(message.get("data"))
    return Event(message["type"], shapes.optional_text(data.get("prompt_id")), data)


def read_binary(frame: bytes) -> Preview | None:
    if not 8 <= len(frame) <= LARGEST_PREVIEW:
        return None
    kind, second = struct.unpack_from(">II", frame)
    if kind == PREVIEW and second in MIMETYPES:
        return Preview(frame[8:], MIMETYPES[second])
    if kind != PREVIEW_WITH_METADATA or second > min(LARGEST_METADATA, len(frame) - 8):
        return None
    metadata = _read_object(frame[8 : 8 + second])
    if metadata is None:
        return None
    mimetype, node_id, prompt_id = (
        shapes.optional_text(metadata.get(key)) for key in ("image_type", "node_id", "prompt_id")
    )
    return Preview(frame[8 + second :], mimetype, node_id, prompt_id)


def _read_object(text: str | bytes) -> dict[str, Any] | None:
    with contextlib.suppress(ValueError, RecursionError):
        found = json.loads(text)
        return found if isinstance(found, dict) else None
    return None
