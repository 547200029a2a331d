"""The texts that ComfyUI writes into pictures: chunks of PNG, EXIF of WebP and JPEG."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator

from comfyui_agent.workflows.errors import NoWorkflowFound

LARGEST_TEXT = 32 * 1024 * 1024
MOST_PARTS = 100_000
ASCII_TEXT = 2
Texts = Iterator[tuple[str, bytes]]


def png_texts(data: bytes) -> Texts:
    """The texts of a PNG, compressed ones too."""
    at = 8
    for _ in range(MOST_PARTS):
        if at + 8 > len(data):
            return
        size, kind = struct.unpack_from(">I4s", data, at)
        body = data[at + 8 : at + 8 + size]
        at += 12 + size
        name, _, rest = body.partition(b"\0") if kind in (b"tEXt", b"zTXt", b"iTXt") else (b"", b"", b"")
        if kind == b"tEXt":
            yield name.decode("latin-1"), rest.decode("latin-1").encode() if not _is_utf8(rest) else rest
        elif kind == b"zTXt":
            yield name.decode("latin-1"), inflated(rest[1:])
        elif kind == b"iTXt" and len(rest) >= 2:
            text = rest[2:].split(b"\0", 2)[-1]
            yield name.decode("latin-1"), inflated(text) if rest[0] == 1 else text


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


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
    at = 12
    for _ in range(MOST_PARTS):
        if at + 8 > len(data):
            return
        kind, size = struct.unpack_from("<4sI", data, at)
        if kind == b"EXIF":
            yield from exif_texts(data[at + 8 : at + 8 + size])
        at += 8 + size + size % 2


def jpeg_texts(data: bytes) -> Texts:
    """The EXIF texts of a JPEG."""
    at = 2
    for _ in range(MOST_PARTS):
        if at + 4 > len(data) or data[at] != 0xFF or data[at + 1] in (0xD9, 0xDA):
            return
        size = struct.unpack_from(">H", data, at + 2)[0]
        if data[at + 1] == 0xE1:
            yield from exif_texts(data[at + 4 : at + 2 + size])
        at += 2 + max(size, 2)


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
