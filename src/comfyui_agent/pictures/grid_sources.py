"""The files of a grid's cells: what they are, and their pixels. Runs on Python 3.9, with Pillow from 10.1 on."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from PIL import Image, UnidentifiedImageError

MOST_SOURCE_PIXELS = 8192 * 8192
"""Larger files are not decoded, because they and the grid would fill the memory of a small machine."""
WHITE = (255, 255, 255)
READABLE = ("PNG", "JPEG", "WEBP", "GIF", "AVIF", "BMP", "TIFF", "PPM", "TGA", "QOI", "JPEG2000")
"""The formats that are opened. Pillow would start other programs for some of the rest."""
OTHER_KINDS = {
    "Video": "mp4 webm mov mkv avi m4v mpg mpeg ogv",
    "Audio": "mp3 wav flac ogg opus m4a aac",
    "3D model": "glb gltf obj stl ply fbx usdz splat ksplat spz",
}
Size = tuple[int, int]


@dataclass(frozen=True)
class Source:
    """What a cell's file is: a picture of a size, another kind of file, or a problem."""

    size: Size = (0, 0)
    format: str = ""
    kind: str = ""
    problem: str = ""

    @property
    def is_picture(self) -> bool:
        return bool(self.format)


def look_at(file: Path | None) -> Source:
    """What a file is, by its name and first bytes."""
    if file is None:
        return Source()
    kind = next((kind for kind, ends in OTHER_KINDS.items() if file.suffix.lower().lstrip(".") in ends.split()), "")
    if not os.path.isfile(file):  # noqa: PTH113 - pathlib raises for an impossible path
        return Source(kind=kind, problem=f"{file.name} is not there")
    if kind:
        return Source(kind=kind)
    try:
        with _opened(file) as image:
            source = Source(image.size, image.format or "")
    except Exception as error:  # noqa: BLE001 - one broken file must not spoil the grid
        return Source(problem=problem_with(file, error))
    width, height = source.size
    if width * height > MOST_SOURCE_PIXELS and source.format != "JPEG":
        return Source(problem=f"{file.name} is too large to be shown here: {width} x {height} pixels")
    return source


def decode(file: Path, at_least: Size) -> Image.Image:
    """The first frame of a picture file, at least as large as asked for. Any error of Pillow if the file is broken."""
    with _opened(file) as image:
        image.draft(None, at_least)
        if image.width * image.height > MOST_SOURCE_PIXELS:
            raise Image.DecompressionBombError
        image.load()
        return in_eight_bits(image)


def resized(image: Image.Image, size: Size, filter_: Image.Resampling = Image.Resampling.LANCZOS) -> Image.Image:
    """A picture at a size as RGB, on white where it is transparent."""
    if image.size != size:
        filter_ = Image.Resampling.NEAREST if size[0] > image.width else filter_
        image = image.resize(size, filter_, reducing_gap=3.0)
    if image.mode == "RGBA":
        plain = Image.new("RGB", size, WHITE)
        plain.paste(image, mask=image.getchannel("A"))
        return plain
    return image.convert("RGB")


@contextmanager
def _opened(file: Path) -> Iterator[Image.Image]:
    Image.init()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about large files, which are measured here, and slightly odd ones
        with Image.open(file, formats=[name for name in READABLE if name in Image.OPEN]) as image:
            yield image


def in_eight_bits(image: Image.Image) -> Image.Image:
    """The same picture as L, RGB or RGBA, copied only if needed."""
    if image.mode.startswith("I"):
        return image.convert("I").point(lambda value: value * (1 / 257)).convert("L")
    if image.mode == "F":
        low, high = image.getextrema()
        scale = 255 / max(1.0, float(str(high))) if float(str(low)) >= 0 else 255.0
        return image.point(lambda value: value * scale + 0).convert("L")
    mode = "RGBA" if image.has_transparency_data else "L" if image.mode == "L" else "RGB"
    return image if image.mode == mode else image.convert(mode)


def problem_with(file: Path, error: Exception) -> str:
    """Why a file cannot be shown, as a sentence."""
    if isinstance(error, Image.DecompressionBombError):
        return f"{file.name} is too large to be shown here"
    if isinstance(error, PermissionError):
        return f"{file.name} may not be read"
    if isinstance(error, FileNotFoundError):
        return f"{file.name} is not there"
    what = "is damaged" if isinstance(error, (OSError, SyntaxError, EOFError)) else f"cannot be read ({error})"
    if isinstance(error, UnidentifiedImageError):
        what = "is empty" if file.stat().st_size == 0 else "is not a picture that can be shown here"
    return f"{file.name} {what}"
