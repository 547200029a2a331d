"""WebM from pictures. A lossy WebP picture is a VP8 key frame, so a film of key frames needs a container only."""

from __future__ import annotations

import io
import struct
from collections.abc import Sequence
from pathlib import Path

from PIL import Image


def write_webm(path: Path, frames: Sequence[Image.Image], fps: float, quality: int = 70) -> None:
    """Write a VP8 film; every player that knows WebM shows it."""
    width, height = frames[0].size
    step = 1000 / fps
    header = _element(
        0x1A45DFA3,
        _uint(0x4286, 1)
        + _uint(0x42F7, 1)
        + _uint(0x42F2, 4)
        + _uint(0x42F3, 8)
        + _element(0x4282, b"webm")
        + _uint(0x4287, 2)
        + _uint(0x4285, 2),
    )
    information = _element(
        0x1549A966,
        _uint(0x2AD7B1, 1_000_000)
        + _element(0x4489, struct.pack(">d", step * len(frames)))
        + _element(0x4D80, b"E3 simulator")
        + _element(0x5741, b"E3 simulator"),
    )
    picture = _element(0xE0, _uint(0xB0, width) + _uint(0xBA, height))
    track = _element(0xAE, _uint(0xD7, 1) + _uint(0x73C5, 1) + _uint(0x83, 1) + _element(0x86, b"V_VP8") + picture)
    clusters = b"".join(_cluster(round(n * step), _vp8(frame, quality)) for n, frame in enumerate(frames))
    segment = _element(0x18538067, information + _element(0x1654AE6B, track) + clusters)
    path.write_bytes(header + segment)


def _cluster(milliseconds: int, frame: bytes) -> bytes:
    block = b"\x81" + struct.pack(">hB", 0, 0x80) + frame
    return _element(0x1F43B675, _uint(0xE7, milliseconds) + _element(0xA3, block))


def _vp8(frame: Image.Image, quality: int) -> bytes:
    buffer = io.BytesIO()
    frame.convert("RGB").save(buffer, "WEBP", quality=quality, method=0)
    data = buffer.getvalue()
    position = 12
    while position + 8 <= len(data):
        name, size = data[position : position + 4], struct.unpack_from("<I", data, position + 4)[0]
        if name == b"VP8 ":
            return data[position + 8 : position + 8 + size]
        position += 8 + size + size % 2
    raise ValueError("Pillow wrote a WebP picture without a VP8 frame")


def _element(identifier: int, payload: bytes) -> bytes:
    name = identifier.to_bytes((identifier.bit_length() + 7) // 8, "big")
    return name + (len(payload) | 1 << 56).to_bytes(8, "big") + payload


def _uint(identifier: int, value: int) -> bytes:
    return _element(identifier, value.to_bytes(max(1, (value.bit_length() + 7) // 8), "big"))
