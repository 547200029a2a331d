"""Thumbnails as WebP files. They keep transparency, so they look right on dark and on light pages."""

from __future__ import annotations

import contextlib
import io
import threading
import uuid
from pathlib import Path

from PIL import Image, UnidentifiedImageError

from comfyui_agent.pictures.grid_sources import Size, in_eight_bits

MOST_PIXELS = 200_000_000
MOST_BYTES = 400_000_000
REDUCIBLE = ("L", "RGB", "CMYK")
"""Modes whose pixels can be averaged. Palettes cannot, and transparent pixels would colour the edges."""
LARGE = 40_000_000
TALLEST = 2
"""A thumbnail is at most this many times as high as wide."""
QUALITY = 80
EFFORT = 2
"""Of 6. More makes files a little smaller and takes much longer."""
UNNAMED = ".new"
READABLE = ("PNG", "JPEG", "WEBP", "GIF", "AVIF", "TIFF", "BMP")
"""The formats that are opened. Pillow would start other programs for some of the rest."""
ORIENTATION = 0x0112
TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
LYING = (5, 6, 7, 8)
"""Orientations that swap width and height."""

Image.MAX_IMAGE_PIXELS = None  # checked below against our own bound

_one_large = threading.Lock()


class NoThumbnail(Exception):
    """The file is no picture, damaged, or too large. The text says which."""


def make_thumbnail(source: Path, target: Path, width: int) -> None:
    """Write the thumbnail of a picture to `target`, whole or not at all: its first frame, upright, without metadata.
    NoThumbnail if the file has none, OSError if a file cannot be read or written. Threads may call this."""
    thumbnail = _reduced(source, width)
    unnamed = target.with_name(f".{target.name}.{uuid.uuid4().hex}{UNNAMED}")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        thumbnail.save(unnamed, "WEBP", quality=QUALITY, method=EFFORT)
        unnamed.replace(target)
    finally:
        with contextlib.suppress(OSError):
            unnamed.unlink(missing_ok=True)


def encode_picture(source: Path, longest: int, most_bytes: int) -> tuple[bytes, int, int]:
    """A picture as WebP, at most so many pixels long and bytes large, and its size. NoThumbnail or OSError as above."""
    picture = _reduced(source, longest, tallest=1)
    for quality in (QUALITY, 50, 20, 5):
        buffer = io.BytesIO()
        picture.save(buffer, "WEBP", quality=quality, method=EFFORT)
        if buffer.tell() <= most_bytes:
            return buffer.getvalue(), *picture.size
    raise NoThumbnail(f"{source.name} takes more than {most_bytes:,} bytes at {longest} pixels: ask for a smaller one")


def size_of(picture: Size, width: int, tallest: int = TALLEST) -> Size:
    share = min(1.0, width / picture[0], tallest * width / picture[1])
    return max(1, round(picture[0] * share)), max(1, round(picture[1] * share))


def _reduced(source: Path, width: int, tallest: int = TALLEST) -> Image.Image:
    Image.init()
    with source.open("rb") as file:
        try:
            with Image.open(file, formats=[name for name in READABLE if name in Image.OPEN]) as picture:
                pixels = picture.width * picture.height
                if pixels > MOST_PIXELS or pixels * max(len(picture.getbands()), 3) > MOST_BYTES:
                    size = f"{picture.width} x {picture.height} pixels"
                    raise NoThumbnail(f"{source.name} is too large: {size}")
                with _one_large if pixels > LARGE else contextlib.nullcontext():
                    return _decoded(picture, width, tallest)
        except UnidentifiedImageError:
            raise NoThumbnail(f"{source.name} is no picture that can be shown") from None
        except NoThumbnail:
            raise
        except MemoryError:
            raise NoThumbnail(f"{source.name} is too large for the memory of this machine") from None
        except Exception as error:  # noqa: BLE001 - decoders raise anything for a broken file
            raise NoThumbnail(f"{source.name} cannot be read as a picture: {error}") from None


def _decoded(picture: Image.Image, width: int, tallest: int) -> Image.Image:
    orientation = _orientation(picture)
    upright = picture.size[::-1] if orientation in LYING else picture.size
    size = size_of((upright[0], upright[1]), width, tallest)
    size = (size[1], size[0]) if orientation in LYING else size
    picture.draft(None, size)  # a large JPEG is decoded at a fraction of its size
    picture.load()
    factor = min(picture.width // (2 * size[0]), picture.height // (2 * size[1]))
    if factor > 1 and picture.mode in REDUCIBLE:
        picture = picture.reduce(factor)  # before anything is copied
    plain = in_eight_bits(picture)
    plain = plain.convert("RGBa") if plain.mode == "RGBA" else plain  # premultiplied, to keep edges clean
    small = plain.resize(size, Image.Resampling.BICUBIC, reducing_gap=1.5)
    small = small.convert("RGBA") if small.mode == "RGBa" else small
    return small.transpose(TURNS[orientation]) if orientation in TURNS else small


def _orientation(picture: Image.Image) -> int:
    """The EXIF orientation, 1 if there is none or it makes no sense."""
    try:
        found = picture.getexif().get(ORIENTATION)
    except Exception:  # noqa: BLE001 - broken metadata must not hide the picture
        return 1
    return found if isinstance(found, int) else 1
