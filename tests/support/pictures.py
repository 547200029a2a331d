"""Picture files to upload, and readers for the ones that come back."""

from __future__ import annotations

import io
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
