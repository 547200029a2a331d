"""The kind of a file by its bytes, and whether it is complete."""

from __future__ import annotations

import json
import os
import re
import struct
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import BinaryIO

from PIL import Image, ImageSequence, UnidentifiedImageError

from comfyui_agent.comfy import shapes
from comfyui_agent.comfy.errors import OutputProblem
from comfyui_agent.domain.kinds import ENDINGS

MOST_PIXELS_DECODED = 64_000_000
MOST_PIXELS_IN_ALL = 512_000_000
MOST_FRAMES_DECODED = 300
MOST_INPUT_PIXELS = 178_956_970
"""Pillow, which loads pictures at a server, refuses what has more."""
MOST_BOXES = 100_000
MOST_CHUNKS = 1_000_000
TAIL = 256 * 1024
LARGEST_TENSOR_HEADER = 32 * 1024 * 1024
PICTURES = {"png": "PNG", "jpg": "JPEG", "gif": "GIF", "webp": "WEBP"}
HEAD = 512

Image.MAX_IMAGE_PIXELS = None  # checked below against our own bound


@dataclass(frozen=True)
class FileKind:
    """The extension and media type that fit the bytes of a file."""

    extension: str
    media: str


SIGNATURES = tuple(
    (re.compile(pattern, re.DOTALL), FileKind(extension, media))
    for pattern, extension, media in (
        (rb"\x89PNG\r\n\x1a\n", "png", "image"),
        (rb"\xff\xd8\xff", "jpg", "image"),
        (rb"GIF8", "gif", "image"),
        (rb".{4}ftypavif", "avif", "image"),
        (rb".{4}ftypqt", "mov", "video"),
        (rb".{4}ftypM4A", "m4a", "audio"),
        (rb".{4}ftyp", "mp4", "video"),
        (rb"fLaC", "flac", "audio"),
        (rb"ID3|\xff\xfb", "mp3", "audio"),
        (rb"glTF", "glb", "3d"),
        (rb"II\*\x00|MM\x00\*", "tiff", "image"),
        (rb"RIFF.{4}WEBP", "webp", "image"),
        (rb"RIFF.{4}WAVE", "wav", "audio"),
        (rb"RIFF.{4}AVI ", "avi", "video"),
        (rb"\x1a\x45\xdf\xa3.*webm", "webm", "video"),
        (rb"\x1a\x45\xdf\xa3", "mkv", "video"),
        (rb"OggS.*OpusHead", "opus", "audio"),
        (rb"OggS", "ogg", "audio"),
    )
)
TOLD_BY_BYTES = {"jpeg"} | {kind.extension for _, kind in SIGNATURES if kind.extension != "mp3"}
MEDIA_BY_EXTENSION = {
    extension: media
    for media, extensions in {
        "latent": "latent safetensors",
        "3d": "obj gltf fbx stl ply usdz",
        "text": "txt json csv srt",
        "image": "svg exr bmp",
        "audio": "mp3 m4a aac",
    }.items()
    for extension in extensions.split()
}
ATTACHMENT = "application/octet-stream"
"""For files that a browser only saves and never shows: HTML, SVG, texts and unknown formats."""
MEDIA_TYPES = {
    "png": "image/png",
    "jpg": "image/jpeg",
    "gif": "image/gif",
    "webp": "image/webp",
    "avif": "image/avif",
    "tiff": "image/tiff",
    "mp4": "video/mp4",
    "webm": "video/webm",
    "mkv": "video/x-matroska",
    "mov": "video/quicktime",
    "avi": "video/x-msvideo",
    "flac": "audio/flac",
    "mp3": "audio/mpeg",
    "wav": "audio/wav",
    "ogg": "audio/ogg",
    "opus": "audio/ogg",
    "m4a": "audio/mp4",
    "glb": "model/gltf-binary",
}


def recognise(head: bytes, server_name: str) -> FileKind:
    """The kind of a file by its first bytes, or by the server's name for it if the bytes do not show it."""
    for pattern, kind in SIGNATURES:
        if pattern.match(head):
            return kind
    extension = server_name.rpartition(".")[2].lower() if "." in server_name else ""
    if extension not in ENDINGS:  # a server must not choose any ending it likes
        extension = "bin"
    return FileKind(extension, MEDIA_BY_EXTENSION.get(extension, "other"))


def media_type_of(head: bytes) -> str:
    """The media type by the first bytes of a file."""
    return MEDIA_TYPES.get(recognise(head, "").extension, ATTACHMENT)


def check_whole(path: Path, kind: FileKind, server_name: str, most_pixels: int = 0) -> None:
    """Raise OutputProblem if a file is empty, cut short or unreadable, as far as its kind allows to know, or if it is
    a picture of more than `most_pixels`, unless that is 0."""
    with path.open("rb") as file:
        check_file(file, kind, server_name, most_pixels)


def check_file(file: BinaryIO, kind: FileKind, server_name: str, most_pixels: int = 0) -> None:
    """The same for a file that is open or in memory."""
    size, name = file.seek(0, os.SEEK_END), shapes.shown(server_name)
    if size == 0:
        raise OutputProblem(f"{name} is empty")
    claimed = server_name.rpartition(".")[2].lower()
    if kind.media != "image" and claimed in ("png", "jpg", "jpeg", "webp", "gif"):
        raise OutputProblem(f"{name} is not a picture")
    if kind.media == "other" and claimed in TOLD_BY_BYTES:
        raise OutputProblem(f"{name} is not what its name says")
    if kind.extension in PICTURES:
        _check_picture(file, PICTURES[kind.extension], name, most_pixels)
    file.seek(0)
    if not _is_complete(file, kind.extension, size):
        raise OutputProblem(f"{name} is cut short: it has {size:,} bytes and says that it is longer")


def _check_picture(file: BinaryIO, reader: str, name: str, most_pixels: int) -> None:
    """Decode a picture with the one reader that fits its first bytes. Some others would start programs."""
    try:
        with Image.open(file, formats=(reader,)) as picture:
            pixels = max(1, picture.width * picture.height)
            if most_pixels and pixels > most_pixels:
                raise OutputProblem(f"{name} is too large: {picture.width:,} x {picture.height:,} pixels")
            if pixels > MOST_PIXELS_DECODED:
                picture.verify()
                return
            frames = min(MOST_FRAMES_DECODED, max(1, MOST_PIXELS_IN_ALL // pixels))
            for frame in islice(ImageSequence.Iterator(picture), frames):
                frame.load()
    except (UnidentifiedImageError, OSError, ValueError, SyntaxError, struct.error, EOFError, MemoryError) as error:
        reason = "" if isinstance(error, UnidentifiedImageError) else f": {shapes.shown(str(error))}"
        raise OutputProblem(f"{name} cannot be read as a picture{reason}") from None


def _is_complete(file: BinaryIO, extension: str, size: int) -> bool:
    """Whether a file has its declared length or its end mark. True for kinds that have neither."""
    head = file.read(HEAD)
    try:
        match extension:
            case "mp4" | "mov" | "m4a":
                return _boxes_fit(file, size)
            case "wav" | "avi" | "webp":
                return bool(struct.unpack_from("<I", head, 4)[0] + 8 <= size)
            case "glb":
                return bool(struct.unpack_from("<I", head, 8)[0] <= size)
            case "latent" | "safetensors":
                return _tensors_fit(file, int(struct.unpack_from("<Q", head)[0]), size)
            case "png":
                return _chunks_end(file)
            case "jpg":
                file.seek(max(0, size - TAIL))
                return b"\xff\xd9" in file.read(TAIL)
            case _:
                return True
    except struct.error:
        return False


def _chunks_end(file: BinaryIO) -> bool:
    position = 8
    for _ in range(MOST_CHUNKS):
        file.seek(position)
        head = file.read(8)
        if len(head) < 8:
            return False
        if head[4:] == b"IEND":
            return len(file.read(4)) == 4
        position += 12 + int(struct.unpack_from(">I", head)[0])
    return False


def _boxes_fit(file: BinaryIO, size: int) -> bool:
    position, has_index = 0, False
    for _ in range(MOST_BOXES):
        if position + 8 > size:
            break
        file.seek(position)
        head = file.read(16)
        length = struct.unpack_from(">I", head)[0]
        has_index = has_index or head[4:8] in (b"moov", b"moof")
        if length == 1 and len(head) == 16:
            length = struct.unpack_from(">Q", head, 8)[0]
        elif length == 0:
            length = size - position
        if length < 8:
            return False
        position += length
    return position == size and has_index


def _tensors_fit(file: BinaryIO, header: int, size: int) -> bool:
    if header > min(size - 8, LARGEST_TENSOR_HEADER):
        return False
    file.seek(8)
    try:
        tensors = json.loads(file.read(header))
        ends = [entry["data_offsets"][1] for name, entry in tensors.items() if name != "__metadata__"]
        return bool(8 + header + max(ends, default=0) <= size)
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError):
        return False
