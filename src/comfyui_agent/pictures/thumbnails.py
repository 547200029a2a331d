"""Small pictures of large ones: WebP files, made with Pillow alone.

WebP has transparency, so what a picture leaves open stays open and looks right on a dark page and on a light one.
"""

from __future__ import annotations

import contextlib
import threading
import uuid
from pathlib import Path

from PIL import Image, UnidentifiedImageError

MOST_PIXELS = 200_000_000
MOST_BYTES = 400_000_000
REDUCIBLE = ("L", "RGB", "CMYK")
"""Modes whose pixels can be mixed as they are: palettes cannot, and what is transparent would colour its edge."""
LARGE = 40_000_000
TALLEST = 2
"""How many times its width a thumbnail may be high: a long strip becomes narrow instead."""
QUALITY = 80
EFFORT = 2
"""Of 6: more makes files a little smaller and takes much longer."""
UNNAMED = ".new"
READABLE = ("PNG", "JPEG", "WEBP", "GIF", "AVIF", "TIFF", "BMP")
"""What is opened at all: Pillow would start other programs for some of the rest."""
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

Size = tuple[int, int]

Image.MAX_IMAGE_PIXELS = None  # judged below, by a bound of our own and without a warning

_one_large = threading.Lock()


class NoThumbnail(Exception):
    """The file has no thumbnail: it is no picture, damaged, or too large to be decoded. The text says which."""


def make_thumbnail(source: Path, target: Path, width: int) -> None:
    """Write a picture's thumbnail, at most so wide, as WebP under the name `target`: whole, or not at all.

    It is the first frame of an animation, upright as its orientation says, never larger than the picture itself, and
    carries nothing but pixels. NoThumbnail if there can be none, OSError if `source` cannot be opened or `target` not
    be written. May be called from several threads; one very large picture is decoded at a time.
    """
    thumbnail = _reduced(source, width)
    unnamed = target.with_name(f".{target.name}.{uuid.uuid4().hex}{UNNAMED}")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        thumbnail.save(unnamed, "WEBP", quality=QUALITY, method=EFFORT)
        unnamed.replace(target)
    finally:
        with contextlib.suppress(OSError):
            unnamed.unlink(missing_ok=True)


def size_of(picture: Size, width: int) -> Size:
    """The size of the thumbnail of a picture."""
    share = min(1.0, width / picture[0], TALLEST * width / picture[1])
    return max(1, round(picture[0] * share)), max(1, round(picture[1] * share))


def _reduced(source: Path, width: int) -> Image.Image:
    Image.init()
    with source.open("rb") as file:
        try:
            with Image.open(file, formats=[name for name in READABLE if name in Image.OPEN]) as picture:
                return _small(picture, width)
        except UnidentifiedImageError:
            raise NoThumbnail(f"{source.name} is no picture that can be shown") from None
        except NoThumbnail as error:
            raise NoThumbnail(f"{source.name} {error}") from None
        except MemoryError:
            raise NoThumbnail(f"{source.name} is too large for the memory of this machine") from None
        except Exception as error:  # noqa: BLE001 - decoders raise whatever a broken file brings about
            raise NoThumbnail(f"{source.name} cannot be read as a picture: {error}") from None


def _small(picture: Image.Image, width: int) -> Image.Image:
    pixels = picture.width * picture.height
    if pixels > MOST_PIXELS or pixels * max(len(picture.getbands()), 3) > MOST_BYTES:
        raise NoThumbnail(f"is too large: {picture.width} x {picture.height} pixels")
    with _one_large if pixels > LARGE else contextlib.nullcontext():
        return _decoded(picture, width)


def _decoded(picture: Image.Image, width: int) -> Image.Image:
    orientation = _orientation(picture)
    upright = picture.size[::-1] if orientation in LYING else picture.size
    size = size_of((upright[0], upright[1]), width)
    size = (size[1], size[0]) if orientation in LYING else size
    picture.draft(None, size)  # a large JPEG is decoded at a fraction of its size
    picture.load()
    factor = min(picture.width // (2 * size[0]), picture.height // (2 * size[1]))
    if factor > 1 and picture.mode in REDUCIBLE:
        picture = picture.reduce(factor)  # before anything is copied: a large one is reduced where it lies
    small = _plain(picture).resize(size, Image.Resampling.BICUBIC, reducing_gap=1.5)
    small = small.convert("RGBA") if small.mode == "RGBa" else small
    return small.transpose(TURNS[orientation]) if orientation in TURNS else small


def _orientation(picture: Image.Image) -> int:
    """How the picture is to be turned; 1, as it is, where that is not told or makes no sense."""
    try:
        found = picture.getexif().get(ORIENTATION)
    except Exception:  # noqa: BLE001 - a picture is not lost for what is written about it
        return 1
    return found if isinstance(found, int) else 1


def _plain(picture: Image.Image) -> Image.Image:
    """The pixels in eight bits, copied only where they must be.

    Where some are transparent they come with their colours weighted by that: what cannot be seen colours no edge.
    """
    if picture.mode.startswith("I"):
        return picture.convert("I").point(lambda value: value * (1 / 257)).convert("L")
    if picture.mode == "F":
        return picture.point(lambda value: value * 255.0 + 0).convert("L")
    if picture.has_transparency_data:
        return (picture if picture.mode == "RGBA" else picture.convert("RGBA")).convert("RGBa")
    return picture if picture.mode in ("RGB", "L") else picture.convert("RGB")
