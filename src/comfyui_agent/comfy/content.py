"""What a file really is, told by its bytes, and whether it is whole."""

from __future__ import annotations

import json
import re
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from PIL import Image, ImageSequence, UnidentifiedImageError

from comfyui_agent.comfy.errors import OutputProblem

MOST_PIXELS_DECODED = 64_000_000
MOST_FRAMES_DECODED = 300
HEAD = 512

Image.MAX_IMAGE_PIXELS = None  # judged below, by a bound of our own: larger pictures are checked without decoding


@dataclass(frozen=True)
class FileKind:
    """The extension that fits the bytes, and what a person would call it."""

    extension: str
    media: str


SIGNATURES: tuple[tuple[int, bytes, FileKind], ...] = (
    (0, b"\x89PNG\r\n\x1a\n", FileKind("png", "image")),
    (0, b"\xff\xd8\xff", FileKind("jpg", "image")),
    (0, b"GIF8", FileKind("gif", "image")),
    (8, b"WEBP", FileKind("webp", "image")),
    (4, b"ftypavif", FileKind("avif", "image")),
    (4, b"ftypqt", FileKind("mov", "video")),
    (4, b"ftyp", FileKind("mp4", "video")),
    (8, b"WAVE", FileKind("wav", "audio")),
    (8, b"AVI ", FileKind("avi", "video")),
    (0, b"fLaC", FileKind("flac", "audio")),
    (0, b"ID3", FileKind("mp3", "audio")),
    (0, b"\xff\xfb", FileKind("mp3", "audio")),
    (0, b"glTF", FileKind("glb", "3d")),
    (0, b"II*\x00", FileKind("tiff", "image")),
    (0, b"MM\x00*", FileKind("tiff", "image")),
)
BY_NAME = {
    "latent": "latent",
    "safetensors": "latent",
    "obj": "3d",
    "gltf": "3d",
    "fbx": "3d",
    "stl": "3d",
    "ply": "3d",
    "usdz": "3d",
    "txt": "text",
    "json": "text",
    "csv": "text",
    "srt": "text",
    "svg": "image",
    "exr": "image",
    "mp3": "audio",
    "m4a": "audio",
    "aac": "audio",
    "opus": "audio",
    "mkv": "video",
}


def recognise(head: bytes, server_name: str) -> FileKind:
    """Tell a file by its first bytes; by the name that the server gave only where the bytes do not tell."""
    for offset, signature, kind in SIGNATURES:
        if head[offset : offset + len(signature)] == signature:
            return kind
    if head.startswith(b"\x1a\x45\xdf\xa3"):
        return FileKind("webm", "video") if b"webm" in head else FileKind("mkv", "video")
    if head.startswith(b"OggS"):
        return FileKind("opus" if b"OpusHead" in head else "ogg", "audio")
    extension = server_name.rpartition(".")[2].lower() if "." in server_name else ""
    if not re.fullmatch(r"[a-z0-9]{1,8}", extension):
        extension = "bin"
    return FileKind(extension, BY_NAME.get(extension, "other"))


def check_whole(path: Path, kind: FileKind, server_name: str) -> None:
    """Raise OutputProblem if a file is empty, cut short or unreadable, as far as its kind lets that be known."""
    size = path.stat().st_size
    if size == 0:
        raise OutputProblem(f"{server_name} is empty")
    claimed = FileKind(server_name.rpartition(".")[2].lower(), "")
    if kind.media != "image" and claimed.extension in ("png", "jpg", "jpeg", "webp", "gif"):
        raise OutputProblem(f"{server_name} is not a picture")
    if kind.media == "image" and kind.extension not in ("svg", "exr", "avif", "tiff"):
        _check_picture(path, server_name)
        return
    with path.open("rb") as file:
        if not _length_fits(file, kind.extension, size):
            raise OutputProblem(f"{server_name} is cut short: it has {size:,} bytes and says that it is longer")


def _check_picture(path: Path, server_name: str) -> None:
    try:
        with Image.open(path) as picture:
            if picture.width * picture.height > MOST_PIXELS_DECODED:
                picture.verify()
                return
            for number, frame in enumerate(ImageSequence.Iterator(picture)):
                frame.load()
                if number >= MOST_FRAMES_DECODED:
                    break
    except (UnidentifiedImageError, OSError, ValueError, SyntaxError, struct.error, EOFError, MemoryError) as error:
        raise OutputProblem(f"{server_name} cannot be read as a picture: {error}") from None


def _length_fits(file: BinaryIO, extension: str, size: int) -> bool:
    """Whether a container is as long as it says; True for kinds that do not say."""
    if extension in ("mp4", "mov"):
        return _boxes_fit(file, size)
    head = file.read(HEAD)
    if extension in ("wav", "avi") and len(head) >= 8:
        return bool(struct.unpack_from("<I", head, 4)[0] + 8 <= size)
    if extension == "glb" and len(head) >= 12:
        return bool(struct.unpack_from("<I", head, 8)[0] <= size)
    if extension in ("latent", "safetensors") and len(head) >= 8:
        return _tensors_fit(file, int(struct.unpack_from("<Q", head)[0]), size)
    return True


def _boxes_fit(file: BinaryIO, size: int) -> bool:
    position, has_index = 0, False
    while position + 8 <= size:
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
    if header > size - 8:
        return False
    file.seek(8)
    try:
        tensors = json.loads(file.read(header))
        ends = [entry["data_offsets"][1] for name, entry in tensors.items() if name != "__metadata__"]
        return bool(8 + header + max(ends, default=0) <= size)
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError):
        return False
