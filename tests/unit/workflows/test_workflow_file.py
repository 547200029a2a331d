"""A workflow is found in each kind of file as ComfyUI writes it, within bounds of memory and time."""

from __future__ import annotations

import contextlib
import io
import json
import struct
import time
import zlib
from collections.abc import Callable
from typing import Any

import pytest
from PIL import Image, PngImagePlugin

from comfyui_agent.workflows.errors import NoWorkflowFound
from comfyui_agent.workflows.picture_metadata import LARGEST_TEXT
from comfyui_agent.workflows.workflow_file import find_workflow

GRAPH = {"1": {"class_type": "A", "inputs": {"text": "ä: 漢"}}}
EDITOR = {"nodes": [{"id": 1, "type": "A"}], "links": [], "version": 0.4}
MAKE, MODEL = 0x010F, 0x0110
PNG = b"\x89PNG\r\n\x1a\n"
Texts = dict[str, Any]


def png(texts: Texts, *, kind: str = "text") -> bytes:
    info = PngImagePlugin.PngInfo()
    for name, text in texts.items():
        if kind == "iTXt":
            info.add_itxt(name, text, zip=True)
        else:
            info.add_text(name, text, zip=kind == "zTXt")
    file = io.BytesIO()
    Image.new("RGB", (2, 2)).save(file, "PNG", pnginfo=info)
    return file.getvalue()


def exif(texts: Texts, kind: str) -> bytes:
    image, file = Image.new("RGB", (2, 2)), io.BytesIO()
    tags = image.getexif()
    for tag, (name, text) in zip((MODEL, MAKE), texts.items(), strict=False):
        tags[tag] = f"{name}:{text}"
    image.save(file, kind, exif=tags)
    return file.getvalue()


def box(kind: bytes, *parts: bytes) -> bytes:
    body = b"".join(parts)
    return struct.pack(">I", 8 + len(body)) + kind + body


def mp4(texts: Texts, *, has_keys: bool = True) -> bytes:
    items, keys = [], []
    for number, (name, text) in enumerate(texts.items(), 1):
        data = box(b"data", bytes(8), text.encode())
        keys.append(box(b"mdta", name.encode()))
        free = box(b"----", box(b"mean", bytes(4)), box(b"name", bytes(4), name.encode()), data)
        items.append(box(struct.pack(">I", number), data) if has_keys else free)
    listed = [box(b"keys", bytes(4), struct.pack(">I", len(keys)), *keys)] if has_keys else []
    meta = box(b"meta", bytes(4), box(b"hdlr", bytes(25)), *listed, box(b"ilst", *items))
    return box(b"ftyp", b"isom") + box(b"mdat", bytes(50)) + box(b"moov", box(b"mvhd", bytes(20)), box(b"udta", meta))


def element(kind: int, *parts: bytes, is_open: bool = False) -> bytes:
    body = b"".join(parts)
    size = b"\x01" + b"\xff" * 7 if is_open else b"\x08" + len(body).to_bytes(4, "big")
    return kind.to_bytes((kind.bit_length() + 7) // 8, "big") + size + body


def webm(texts: Texts) -> bytes:
    tags = [
        element(0x67C8, element(0x45A3, name.upper().encode()), element(0x4487, text.encode()))
        for name, text in texts.items()
    ]
    inside = element(0x1254C367, element(0x7373, *tags))
    return element(0x1A45DFA3, bytes(5)) + element(0x18538067, element(0x1549A966, bytes(9)), inside, is_open=True)


def flac(texts: Texts) -> bytes:
    comments = [f"{name}={text}".encode() for name, text in texts.items()]
    body = struct.pack("<I", 3) + b"ffm" + struct.pack("<I", len(comments))
    body += b"".join(struct.pack("<I", len(each)) + each for each in comments)
    return b"fLaC" + struct.pack(">I", 34) + bytes(34) + struct.pack(">I", 0x84000000 | len(body)) + body


CONTAINERS: dict[str, Callable[[Texts], bytes]] = {
    "PNG tEXt": png,
    "PNG zTXt": lambda texts: png(texts, kind="zTXt"),
    "PNG iTXt": lambda texts: png(texts, kind="iTXt"),
    "WebP": lambda texts: exif(texts, "WEBP"),
    "JPEG": lambda texts: exif(texts, "JPEG"),
    "MP4": mp4,
    "MP4 free": lambda texts: mp4(texts, has_keys=False),
    "WebM": webm,
    "FLAC": flac,
}


@pytest.mark.parametrize("container", CONTAINERS)
def test_the_api_format_wins_where_a_file_carries_both(container: str) -> None:
    write = CONTAINERS[container]
    both = find_workflow(write({"workflow": json.dumps(EDITOR), "prompt": json.dumps(GRAPH)}))
    assert (both.document, both.is_editor_format) == (GRAPH, False)
    assert container.split()[0] in both.container
    one = find_workflow(write({"workflow": json.dumps(EDITOR)}))
    assert (one.document, one.is_editor_format) == (EDITOR, True)
    with pytest.raises(NoWorkflowFound, match="without a workflow"):
        find_workflow(write({"comment": "nothing"}))


@pytest.mark.parametrize("container", CONTAINERS)
def test_a_file_that_is_cut_anywhere_is_one_error(container: str) -> None:
    whole = CONTAINERS[container]({"prompt": json.dumps(GRAPH)})
    for end in range(0, len(whole), 7):
        with contextlib.suppress(NoWorkflowFound):
            assert find_workflow(whole[:end]).document == GRAPH


def test_plain_files() -> None:
    for given in [GRAPH, {"prompt": GRAPH, "client_id": "x"}]:
        found = find_workflow(json.dumps(given).encode())
        assert (found.document, found.format, found.container) == (GRAPH, "API format", "")
    assert find_workflow(json.dumps(EDITOR).encode()).format == "UI format"


def test_a_damaged_prompt_leaves_the_workflow() -> None:
    assert find_workflow(png({"prompt": "{", "workflow": json.dumps(EDITOR)})).document == EDITOR
    with pytest.raises(NoWorkflowFound, match="its prompt cannot be read"):
        find_workflow(png({"prompt": "{"}))


def test_not_a_number_is_read_as_comfyui_writes_it() -> None:
    graph = {"1": {**GRAPH["1"], "is_changed": [float("nan")]}}
    assert "1" in find_workflow(png({"prompt": json.dumps(graph)})).document


def test_a_small_file_does_not_grow_without_bounds() -> None:
    bomb = zlib.compress(bytes(LARGEST_TEXT + 1_000))
    chunk = b"prompt\0\0" + bomb
    with pytest.raises(NoWorkflowFound, match="more than"):
        find_workflow(PNG + struct.pack(">I", len(chunk)) + b"zTXt" + chunk + bytes(4))


@pytest.mark.parametrize(
    "data",
    [
        PNG + bytes(3_000_000),
        b"\0\0\0\x08ftyp" + b"\0\0\0\x08moov" * 300_000,
        b"\x1aE\xdf\xa3" + b"\x80" * 3_000_000,
        b"fLaC" + bytes(3_000_000),
        b"\xff\xd8\xff\xe1" + b"\xff\xe1\0\x02" * 700_000,
        b"RIFF\0\0\0\0WEBP" + b"EXIF\0\0\0\0" * 300_000,
    ],
    ids=["PNG", "MP4", "WebM", "FLAC", "JPEG", "WebP"],
)
def test_many_small_parts_take_little_time(data: bytes) -> None:
    begun = time.process_time()
    with pytest.raises(NoWorkflowFound):
        find_workflow(data)
    assert time.process_time() - begun < 5
