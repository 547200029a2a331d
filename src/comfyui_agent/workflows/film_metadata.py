"""The texts that ComfyUI writes into films and sound: tags of MP4, Matroska (WebM) and FLAC."""

from __future__ import annotations

import struct

from comfyui_agent.workflows.picture_metadata import MOST_PARTS, Texts, parts

MP4_FOLDERS = (b"moov", b"udta", b"meta")
SEGMENT, TAGS, TAG, SIMPLE_TAG, TAG_NAME, TAG_STRING = 0x18538067, 0x1254C367, 0x7373, 0x67C8, 0x45A3, 0x4487
MATROSKA_FOLDERS = (SEGMENT, TAGS, TAG)
VORBIS_COMMENT = 4
DEEPEST = 8


def mp4_texts(data: bytes) -> Texts:
    """The tags of an MP4: those with keys, and the free ones of iTunes."""
    yield from _boxes_below(memoryview(data), 0)


def _boxes(data: memoryview, at: int = 0) -> list[tuple[bytes, memoryview]]:
    found = list[tuple[bytes, memoryview]]()
    while at + 8 <= len(data) and len(found) < MOST_PARTS:
        size, kind = struct.unpack_from(">I4s", data, at)
        head = 8
        if size == 1 and at + 16 <= len(data):
            size, head = struct.unpack_from(">Q", data, at + 8)[0], 16
        size = size or len(data) - at
        if size < head:
            break
        found.append((kind, data[at + head : at + size]))
        at += size
    return found


def _boxes_below(data: memoryview, depth: int) -> Texts:
    keys: list[str] = []
    for kind, body in _boxes(data):
        if kind == b"keys":
            keys = [bytes(name).decode("utf-8", "replace") for _, name in _boxes(body, 8)]
        elif kind == b"ilst":
            yield from _items(body, keys)
        elif kind in MP4_FOLDERS and depth < DEEPEST:
            has_version = kind == b"meta" and bytes(body[:4]) == b"\0\0\0\0"
            yield from _boxes_below(body[4:] if has_version else body, depth + 1)


def _items(data: memoryview, keys: list[str]) -> Texts:
    for kind, body in _boxes(data):
        parts = dict(_boxes(body))
        number = int.from_bytes(kind, "big")
        name = (
            keys[number - 1]
            if 0 < number <= len(keys)
            else bytes(parts.get(b"name", b"")[4:]).decode("utf-8", "replace")
        )
        if b"data" in parts:
            yield name or kind.decode("latin-1"), bytes(parts[b"data"][8:])


def matroska_texts(data: bytes) -> Texts:
    """The simple tags of a Matroska or WebM file."""
    yield from _elements_below(memoryview(data), 0)


def _elements_below(data: memoryview, depth: int) -> Texts:
    for kind, body in _elements(data):
        if kind == SIMPLE_TAG:
            parts = dict(_elements(body))
            if TAG_NAME in parts and TAG_STRING in parts:
                yield bytes(parts[TAG_NAME]).decode("utf-8", "replace"), bytes(parts[TAG_STRING])
        elif kind in MATROSKA_FOLDERS and depth < DEEPEST:
            yield from _elements_below(body, depth + 1)


def _elements(data: memoryview) -> list[tuple[int, memoryview]]:
    found, at = list[tuple[int, memoryview]](), 0
    while at < len(data) and len(found) < MOST_PARTS:
        width = 9 - data[at].bit_length()
        kind = int.from_bytes(data[at : at + width], "big")
        at += width
        if width > 4 or at >= len(data):
            break
        width = 9 - data[at].bit_length()
        if width > 8:
            break
        size = int.from_bytes(data[at : at + width], "big") & ((1 << 7 * width) - 1)
        at += width
        if size == (1 << 7 * width) - 1:  # unknown: up to the end
            size = len(data) - at
        found.append((kind, data[at : at + size]))
        at += size
    return found


def flac_texts(data: bytes) -> Texts:
    """The comments of a FLAC file."""
    for kind, body in parts(data, 4, ">I", lambda head: (head >> 24, head & 0xFFFFFF, 0)):
        if kind & 0x7F == VORBIS_COMMENT:
            yield from _comments(body)
        if kind & 0x80:
            return


def _comments(data: bytes) -> Texts:
    begin = 4 + int.from_bytes(data[:4], "little") + 4  # the writer's name, then the count
    for _, comment in parts(data, begin, "<I", lambda size: (None, size, 0)):
        name, equals, text = comment.partition(b"=")
        if equals:
            yield name.decode("utf-8", "replace"), text
