"""Picture files to upload, and readers for the ones that come back."""

from __future__ import annotations

import io
import zlib
from typing import Any

import aiohttp
from PIL import Image


def png(color: tuple[int, ...] = (200, 30, 60), size: tuple[int, int] = (12, 8)) -> bytes:
    """A one-coloured PNG; four channels make it RGBA."""
    buffer = io.BytesIO()
    Image.new("RGBA" if len(color) == 4 else "RGB", size, color).save(buffer, "PNG")
    return buffer.getvalue()


def opened(content: bytes) -> Image.Image:
    with Image.open(io.BytesIO(content)) as image:
        image.load()
        return image


def form(content: bytes | None, filename: str = "picture.png", **fields: Any) -> aiohttp.FormData:
    """A multipart body whose filename travels as it is given."""
    data = aiohttp.FormData(quote_fields=False)
    if content is not None:
        data.add_field("image", content, filename=filename, content_type="image/png")
    for name, value in fields.items():
        data.add_field(name, value)
    return data


def claiming(width: int, height: int) -> bytes:
    """A PNG of a few bytes that says it is so large."""
    head = width.to_bytes(4, "big") + height.to_bytes(4, "big") + bytes([8, 2, 0, 0, 0])
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(b"\0")) + chunk(b"IEND", b"")


def chunk(kind: bytes, data: bytes) -> bytes:
    """A part of a PNG."""
    return len(data).to_bytes(4, "big") + kind + data + zlib.crc32(kind + data).to_bytes(4, "big")


NO_PICTURES = {
    "nothing": (b"", "is no picture"),
    "a page": (b"<html><script>", "is no picture"),
    "a drawing with a script": (b"<svg xmlns='http://www.w3.org/2000/svg' onload='x'/>", "is no picture"),
    "an archive": (b"PK\x03\x04" + bytes(100), "is no picture"),
    "a script that begins as a picture": (b"GIF89a=1;alert(1)//", "cannot be read as a picture"),
    "half a picture": (png()[:40], "cannot be read as a picture"),
    "a bomb": (claiming(65_535, 65_535), "is too large: 65,535 x 65,535 pixels"),
}
"""What calls itself a picture, and the words that refuse it."""
