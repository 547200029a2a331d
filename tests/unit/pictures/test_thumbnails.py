"""A thumbnail shows what its picture shows, small, upright and without anything that was written about it."""

from __future__ import annotations

import random
import threading
from pathlib import Path
from typing import Any

import pytest
from PIL import Image, ImageChops, ImageStat, PngImagePlugin

from comfyui_agent.pictures import thumbnails
from comfyui_agent.pictures.thumbnails import NoThumbnail, make_thumbnail, size_of
from support.pictures import claiming

RED, GREEN, BLUE, WHITE = (200, 30, 30), (30, 160, 30), (30, 30, 200), (255, 255, 255)
ORIENTATION = 0x0112


def corners(size: tuple[int, int] = (400, 200)) -> Image.Image:
    """Red at the left top, green at the right top, blue at the left bottom, white at the right bottom."""
    picture = Image.new("RGB", (2, 2))
    for place, colour in zip([(0, 0), (1, 0), (0, 1), (1, 1)], [RED, GREEN, BLUE, WHITE], strict=True):
        picture.putpixel(place, colour)
    return picture.resize(size, Image.Resampling.NEAREST)


def saved(folder: Path, name: str, picture: Image.Image, **options: Any) -> Path:
    picture.save(folder / name, **options)
    return folder / name


def thumbnail_of(source: Path, width: int = 160) -> Image.Image:
    target = source.parent / "cache" / f"{source.name}.webp"
    make_thumbnail(source, target, width)
    with Image.open(target) as picture:
        assert picture.format == "WEBP"
        picture.load()
        return picture


def looks_like(picture: Image.Image, wanted: Image.Image) -> bool:
    difference = ImageChops.difference(picture.convert("RGB"), wanted.convert("RGB").resize(picture.size))
    return max(ImageStat.Stat(difference).mean) < 6


def test_a_thumbnail_is_its_picture_at_the_width_asked_for(tmp_path: Path) -> None:
    for name, options in [
        ("a.png", {}),
        ("a.jpg", {"quality": 95}),
        ("a.webp", {"lossless": True}),
        ("a.gif", {}),
        ("a.tiff", {}),
        ("a.bmp", {}),
    ]:
        made = thumbnail_of(saved(tmp_path, name, corners(), **options))
        assert made.size == (160, 80), (name, options)
        assert looks_like(made, corners()), (name, options)


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGBA", "I;16"])
def test_pictures_of_every_depth_are_shown(tmp_path: Path, mode: str) -> None:
    tones = Image.new("L", (200, 100), 255)
    tones.paste(0, (0, 0, 100, 100))
    if mode != "1":
        tones.paste(90, (0, 50, 200, 100))
    picture = tones.convert("I").point(lambda value: value * 257 + 0).convert(mode) if mode == "I;16" else tones
    assert looks_like(thumbnail_of(saved(tmp_path, "a.png", picture.convert(mode))), tones)


def test_jpegs_of_other_colours_are_shown(tmp_path: Path) -> None:
    for mode in ["CMYK", "L"]:
        made = thumbnail_of(saved(tmp_path, "a.jpg", corners().convert(mode), quality=95))
        assert looks_like(made, corners().convert(mode)), mode


def test_nothing_is_enlarged_and_a_long_strip_becomes_narrow() -> None:
    for picture, width, thumbnail in [
        ((1024, 1024), 320, (320, 320)),
        ((832, 1216), 320, (320, 468)),
        ((100, 50), 320, (100, 50)),
        ((100, 4000), 320, (16, 640)),
        ((40_000, 10), 160, (160, 1)),
        ((1, 60_000), 160, (1, 320)),
    ]:
        assert size_of(picture, width) == thumbnail, (picture, width, thumbnail)


def test_a_strip_is_made_as_it_was_measured(tmp_path: Path) -> None:
    assert thumbnail_of(saved(tmp_path, "strip.png", Image.new("RGB", (3, 9000), RED))).size == (1, 320)


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("name", ["a.jpg", "a.png"])
def test_a_picture_stands_upright_as_its_camera_said(tmp_path: Path, name: str, orientation: int) -> None:
    turns = {turn: thumbnails.TURNS[turn] for turn in thumbnails.TURNS}
    undone = {5: 5, 6: 8, 7: 7, 8: 6}.get(orientation, orientation)
    lying = corners().transpose(turns[undone]) if orientation in turns else corners()
    exif = Image.Exif()
    exif[ORIENTATION] = orientation
    made = thumbnail_of(saved(tmp_path, name, lying, exif=exif))
    assert made.size == (160, 80)
    assert looks_like(made, corners())


def test_an_orientation_that_makes_no_sense_is_ignored(tmp_path: Path) -> None:
    for orientation in [0, 9, 300]:
        exif = Image.Exif()
        exif[ORIENTATION] = orientation
        assert looks_like(thumbnail_of(saved(tmp_path, "a.jpg", corners(), exif=exif)), corners()), orientation


def test_what_is_transparent_stays_transparent(tmp_path: Path) -> None:
    picture = corners().convert("RGBA")
    picture.paste((0, 0, 0, 0), (0, 0, 200, 200))
    made = thumbnail_of(saved(tmp_path, "a.png", picture))
    assert made.mode == "RGBA"
    assert made.getpixel((20, 40)) == (0, 0, 0, 0)
    assert made.getpixel((140, 20))[3] == 255  # type: ignore[index]
    edge = made.getpixel((81, 20))
    assert isinstance(edge, tuple)
    assert edge[1] > 100, "the colour below the transparent part bled into the edge"


def test_an_opaque_picture_has_no_transparency(tmp_path: Path) -> None:
    assert thumbnail_of(saved(tmp_path, "a.png", corners())).mode == "RGB"


def test_an_animation_shows_its_first_frame(tmp_path: Path) -> None:
    for name in ["a.gif", "a.webp", "a.png"]:
        others = [Image.new("RGB", (400, 200), colour) for colour in (BLUE, GREEN)]
        path = saved(tmp_path, name, corners(), save_all=True, append_images=others, duration=50)
        made = thumbnail_of(path)
        assert looks_like(made, corners()), name
        assert getattr(made, "n_frames", 1) == 1, name


def test_nothing_is_copied_but_pixels(tmp_path: Path) -> None:
    secret = "SECRET-WORDS"
    text = PngImagePlugin.PngInfo()
    text.add_text("prompt", secret)
    text.add_itxt("XML:com.adobe.xmp", secret)
    exif = Image.Exif()
    exif[0x010E] = secret
    options = {"pnginfo": text, "exif": exif, "icc_profile": secret.encode()}
    path = saved(tmp_path, "a.png", corners(), **options)
    assert secret.encode() in path.read_bytes()
    thumbnail_of(path)
    assert secret.encode() not in (tmp_path / "cache" / "a.png.webp").read_bytes()
    jpeg = saved(tmp_path, "a.jpg", corners(), exif=exif, comment=secret.encode(), icc_profile=secret.encode())
    assert not {"exif", "icc_profile", "xmp", "comment"} & set(thumbnail_of(jpeg).info)


def test_a_large_jpeg_is_not_decoded_as_a_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def plain(picture: Image.Image) -> Image.Image:
        seen.append(picture.size)
        return picture

    monkeypatch.setattr(thumbnails, "in_eight_bits", plain)
    path = saved(tmp_path, "a.jpg", corners((3200, 1600)))
    assert thumbnail_of(path).size == (160, 80)
    assert seen == [(400, 200)]


def test_what_is_no_picture_has_no_thumbnail(tmp_path: Path) -> None:
    for name, data in [
        ("page.png", b"<html><script>alert(1)</script></html>"),
        ("drawing.png", b'<svg xmlns="http://www.w3.org/2000/svg"/>'),
        ("empty.png", b""),
        ("film.mp4", b"\0\0\0\x18ftypisom" + b"\0" * 100),
        ("letter.png", b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n"),
        ("text.txt", b"words"),
    ]:
        (tmp_path / name).write_bytes(data)
        with pytest.raises(NoThumbnail, match=f"{name} is no picture that can be shown"):
            make_thumbnail(tmp_path / name, tmp_path / "made.webp", 160)
        assert not (tmp_path / "made.webp").exists(), (name, data)


def test_a_picture_that_is_cut_short_has_no_thumbnail(tmp_path: Path) -> None:
    for name in ["a.png", "a.jpg", "a.webp", "a.gif"]:
        whole = Image.frombytes("RGB", (200, 200), random.Random(1).randbytes(120_000))
        path = saved(tmp_path, name, whole)
        path.write_bytes(path.read_bytes()[:3000])
        with pytest.raises(NoThumbnail, match=f"{name} cannot be read as a picture"):
            make_thumbnail(path, tmp_path / "made.webp", 160)
        assert list(tmp_path.iterdir()) == [path], name
        path.unlink()


def test_a_picture_of_more_than_200_megapixels_is_not_decoded(tmp_path: Path) -> None:
    for size in [(20_000, 10_001), (60_000, 60_000)]:
        (tmp_path / "bomb.png").write_bytes(claiming(*size))
        with pytest.raises(NoThumbnail, match=f"bomb.png is too large: {size[0]} x {size[1]} pixels"):
            make_thumbnail(tmp_path / "bomb.png", tmp_path / "made.webp", 160)


def test_a_picture_between_the_bounds_of_pillow_and_ours_is_decoded_without_a_warning(tmp_path: Path) -> None:
    (tmp_path / "large.png").write_bytes(claiming(9_500, 9_500))
    with pytest.raises(NoThumbnail, match=r"cannot be read as a picture: (?!.*bomb)"):  # its pixels are not there
        make_thumbnail(tmp_path / "large.png", tmp_path / "made.webp", 160)


def test_one_very_large_picture_is_decoded_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = saved(tmp_path, "a.png", corners())
    monkeypatch.setattr(thumbnails, "LARGE", 1000)
    thumbnails._one_large.acquire()
    try:
        second = threading.Thread(target=make_thumbnail, args=(path, tmp_path / "made.webp", 160), daemon=True)
        second.start()
        second.join(0.2)
        assert second.is_alive()
        monkeypatch.setattr(thumbnails, "LARGE", 10_000_000)
        make_thumbnail(path, tmp_path / "small.webp", 160)  # others are not held up
    finally:
        thumbnails._one_large.release()
    second.join(10)
    assert (tmp_path / "made.webp").is_file()


def test_a_source_that_is_gone_is_an_error_of_the_file_system(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        make_thumbnail(tmp_path / "gone.png", tmp_path / "made.webp", 160)


def test_an_old_thumbnail_is_replaced_as_a_whole_or_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = saved(tmp_path, "a.png", corners())
    make_thumbnail(path, tmp_path / "made.webp", 160)
    before = (tmp_path / "made.webp").read_bytes()
    saved(tmp_path, "a.png", Image.new("RGB", (400, 200), BLUE))
    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
        with pytest.raises(OSError, match="No space left"):
            make_thumbnail(path, tmp_path / "made.webp", 160)
    assert (tmp_path / "made.webp").read_bytes() == before
    assert sorted(each.name for each in tmp_path.iterdir()) == ["a.png", "made.webp"]
    make_thumbnail(path, tmp_path / "made.webp", 160)
    assert (tmp_path / "made.webp").read_bytes() != before
