"""The texts that ComfyUI writes into pictures: chunks of PNG, EXIF of WebP and JPEG."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator
from typing import Any

from comfyui_agent.workflows.errors import NoWorkflowFound

LARGEST_TEXT = 32 * 1024 * 1024
MOST_PARTS = 100_000
ASCII_TEXT = 2
Texts = Iterator[tuple[str, bytes]]


def parts(data: bytes, at: int, head: str, measure: Callable[..., tuple[Any, int, int]]) -> Iterator[tuple[Any, bytes]]:
    """The parts of a container, with their kinds. `measure` tells the kind, the size, and the padding behind it."""
    reader = struct.Struct(head)
    for _ in range(MOST_PARTS):
        if at + reader.size > len(data):
            return
        kind, size, padding = measure(*reader.unpack_from(data, at))
        at += reader.size
        yield kind, data[at : at + size]
        at += size + padding


def png_texts(data: bytes) -> Texts:
    """The texts of a PNG, compressed ones too."""
    for kind, body in parts(data, 8, ">I4s", lambda size, kind: (kind, size, 4)):
        name, _, rest = body.partition(b"\0") if kind in (b"tEXt", b"zTXt", b"iTXt") else (b"", b"", b"")
        if kind == b"tEXt":
            yield name.decode("latin-1"), _as_utf8(rest)
        elif kind == b"zTXt":
            yield name.decode("latin-1"), inflated(rest[1:])
        elif kind == b"iTXt" and len(rest) >= 2:
            text = rest[2:].split(b"\0", 2)[-1]
            yield name.decode("latin-1"), inflated(text) if rest[0] == 1 else text


def _as_utf8(text: bytes) -> bytes:
    try:
        text.decode()
    except UnicodeDecodeError:
        return text.decode("latin-1").encode()
    return text


def inflated(data: bytes) -> bytes:
    """Decompressed data. NoWorkflowFound if it is damaged or larger than the limit."""
    engine = zlib.decompressobj()
    try:
        text = engine.decompress(data, LARGEST_TEXT)
    except zlib.error as error:
        raise NoWorkflowFound(f"its compressed text is damaged: {error}") from None
    if engine.unconsumed_tail:
        raise NoWorkflowFound(f"its compressed text has more than {LARGEST_TEXT:,} bytes")
    return text


def webp_texts(data: bytes) -> Texts:
    """The EXIF texts of a WebP."""
    for kind, body in parts(data, 12, "<4sI", lambda kind, size: (kind, size, size % 2)):
        if kind == b"EXIF":
            yield from exif_texts(body)


def jpeg_texts(data: bytes) -> Texts:
    """The EXIF texts of a JPEG."""
    for kind, body in parts(data, 2, ">HH", lambda kind, size: (kind, max(size - 2, 0), 0)):
        if kind < 0xFF00 or kind in (0xFFD9, 0xFFDA):
            return
        if kind == 0xFFE1:
            yield from exif_texts(body)


def exif_texts(data: bytes) -> Texts:
    """The texts of the first directory. ComfyUI writes `name:text`, mostly under Make and Model."""
    data = data.removeprefix(b"Exif\0\0")
    order = {b"II*\0": "<", b"MM\0*": ">"}.get(data[:4])
    if order is None or len(data) < 8:
        return
    begin = struct.unpack_from(order + "I", data, 4)[0]
    if begin + 2 > len(data):
        return
    for index in range(struct.unpack_from(order + "H", data, begin)[0]):
        entry = begin + 2 + 12 * index
        if entry + 12 > len(data):
            return
        _, kind, size, where = struct.unpack_from(order + "HHII", data, entry)
        if kind == ASCII_TEXT:
            text = data[where : where + size] if size > 4 else data[entry + 8 : entry + 8 + size]
            name, colon, rest = text.rstrip(b"\0").partition(b":")
            if colon:
                yield name.decode("latin-1"), rest
