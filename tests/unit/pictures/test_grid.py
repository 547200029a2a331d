"""The grid as a picture: every cell shows its own file, and what cannot be shown says why."""

from __future__ import annotations

import io
import os
import random
import struct
import weakref
import zlib
from pathlib import Path

import pytest
from PIL import Image, ImageChops, ImageStat

from comfyui_agent.pictures import grid_drawing, grid_sources
from comfyui_agent.pictures.grid import LONGEST_SIDE, MOST_PIXELS, Cell, Grid, Layout, Page, lay_out, size_within
from comfyui_agent.pictures.grid_drawing import ATTENTION, BADGES, EMPTY, QUIET, draw, text_in
from comfyui_agent.pictures.grid_sources import look_at
from comfyui_agent.pictures.labels import Label

Size = tuple[int, int]


def noise(size: Size, seed: int = 0) -> Image.Image:
    """A picture that looks like no other, in large blots so that it can still be told when it is small."""
    blots = Image.frombytes("RGB", (4, 4), random.Random(f"{size}{seed}").randbytes(48))
    return blots.resize(size, Image.Resampling.BICUBIC)


def saved(folder: Path, name: str, image: Image.Image, **options: object) -> Path:
    path = folder / name
    image.save(path, **options)
    return path


def grid_of(files: list[list[Path | None]], **options: object) -> Grid:
    cells = tuple(
        Cell(row, column, file, label=f"cell {row} {column}", state="done" if file else "pending")
        for row, line in enumerate(files)
        for column, file in enumerate(line)
    )
    rows = tuple(f"seed {row}" for row in range(len(files)))
    columns = tuple(f"sampler {column}" for column in range(len(files[0])))
    return Grid((Page(rows, columns, cells, corner="seed \\ sampler"),), title="knights_1a2b3c4d", **options)  # type: ignore[arg-type]


def crop(picture: Image.Image, layout: Layout, row: int = 0, column: int = 0, page: int = 0) -> Image.Image:
    return picture.crop(layout.box(page, row, column))


def difference(first: Image.Image, second: Image.Image) -> float:
    """How far two pictures are apart, 0 to 255."""
    assert first.size == second.size
    return max(ImageStat.Stat(ImageChops.difference(first, second)).mean)


def in_the_middle(image: Image.Image, size: Size) -> Image.Image:
    canvas = Image.new("RGB", size, (255, 255, 255))
    canvas.paste(image, ((size[0] - image.width) // 2, (size[1] - image.height) // 2))
    return canvas


def test_every_cell_shows_its_own_file(tmp_path: Path) -> None:
    for is_sheet in [False, True]:
        pictures = [[noise((120, 90), 10 * row + column) for column in range(3)] for row in range(2)]
        files = [[saved(tmp_path, f"{id(each)}.png", each) for each in row] for row in pictures]
        layout = lay_out(grid_of(files, is_sheet=is_sheet))
        picture = draw(layout, 0).picture
        assert layout.cell == (120, 90), is_sheet
        for row in range(2):
            for column in range(3):
                assert crop(picture, layout, row, column).tobytes() == pictures[row][column].tobytes()


def test_each_page_shows_its_own_cells(tmp_path: Path) -> None:
    pictures = [noise((100, 100), number) for number in range(2)]
    pages = tuple(
        Page(("",), ("",), (Cell(0, 0, saved(tmp_path, f"{number}.png", each), state="done"),), title=f"cfg {number}")
        for number, each in enumerate(pictures)
    )
    layout = lay_out(Grid(pages))
    for number, each in enumerate(pictures):
        assert crop(draw(layout, number).picture, layout, page=number).tobytes() == each.tobytes()


def test_pictures_of_other_shapes_stand_whole_in_the_middle_of_the_same_frame(tmp_path: Path) -> None:
    wide, high, small = noise((200, 100)), noise((100, 200)), noise((80, 70))
    files = [saved(tmp_path, f"{number}.png", each) for number, each in enumerate((wide, high, small))]
    layout = lay_out(grid_of([list(files)]))
    picture = draw(layout, 0).picture
    assert layout.cell == (200, 200)
    for column, each in enumerate((wide, high, small)):
        assert crop(picture, layout, 0, column).tobytes() == in_the_middle(each, (200, 200)).tobytes()


def test_a_cell_size_that_is_asked_for_is_the_longest_side(tmp_path: Path) -> None:
    source = noise((400, 300))
    layout = lay_out(grid_of([[saved(tmp_path, "a.png", source)]], cell_pixels=200))
    shown = crop(draw(layout, 0).picture, layout)
    assert layout.cell == shown.size == (200, 150)
    assert difference(shown, source.resize((200, 150), Image.Resampling.LANCZOS)) < 2


def test_only_tiny_pictures_are_enlarged() -> None:
    for size, cell, shown in [
        ((100, 80), (100, 80), (100, 80)),
        ((100, 80), (300, 300), (100, 80)),
        ((64, 10), (300, 300), (64, 10)),
        ((63, 10), (300, 300), (126, 20)),
        ((8, 8), (300, 300), (128, 128)),
        ((8, 8), (70, 70), (64, 64)),
        ((400, 200), (100, 100), (100, 50)),
        ((10_000, 1), (100, 100), (100, 1)),
    ]:
        assert size_within(size, cell) == shown, (size, cell, shown)


def test_headings_stand_beside_and_above_the_cells_and_never_on_them(tmp_path: Path) -> None:
    white = Image.new("RGB", (90, 90), (255, 255, 255))
    file = saved(tmp_path, "white.png", white)
    layout = lay_out(grid_of([[file] * 2] * 2))
    picture = draw(layout, 0).picture
    left, top, _, _ = layout.box(0, 0, 0)
    for row in range(2):
        _, upper, _, lower = layout.box(0, row, 0)
        assert picture.crop((0, upper, left - 2, lower)).convert("L").getextrema()[0] < 128
    for column in range(2):
        start, _, end, _ = layout.box(0, 0, column)
        assert picture.crop((start, top // 2, end, top - 2)).convert("L").getextrema()[0] < 128
        assert crop(picture, layout, 0, column).tobytes() == white.tobytes()
    last = layout.box(0, 1, 1)
    assert last[2] <= picture.width
    assert last[3] <= picture.height


def test_labels_of_a_sheet_stand_below_their_cells(tmp_path: Path) -> None:
    file = saved(tmp_path, "white.png", Image.new("RGB", (90, 90), (255, 255, 255)))
    layout = lay_out(grid_of([[file], [file]], is_sheet=True))
    picture = draw(layout, 0).picture
    left, _, right, lower = layout.box(0, 0, 0)
    _, next_upper, _, _ = layout.box(0, 1, 0)
    assert picture.crop((left, lower + 2, right, next_upper - 2)).convert("L").getextrema()[0] < 128
    assert layout.pages[0].rows == layout.pages[0].columns == ()


def test_a_large_grid_has_smaller_cells_and_stays_within_its_bounds(tmp_path: Path) -> None:
    for rows, columns in [(40, 25), (1, 400), (400, 1)]:
        file = saved(tmp_path, "large.png", Image.new("RGB", (1024, 1024)))
        layout = lay_out(grid_of([[file] * columns] * rows))
        width, height = layout.pages[0].size
        assert width * height <= MOST_PIXELS, (rows, columns)
        assert max(width, height) <= LONGEST_SIDE, (rows, columns)
        assert width * height > MOST_PIXELS * 0.8 or max(width, height) > LONGEST_SIDE * 0.8, (rows, columns)
        right, lower = layout.box(0, rows - 1, columns - 1)[2:]
        assert right <= width, (rows, columns)
        assert lower <= height, (rows, columns)


def test_text_follows_the_size_of_the_cells(tmp_path: Path) -> None:
    file = saved(tmp_path, "large.png", Image.new("RGB", (1024, 1024)))
    few, many = lay_out(grid_of([[file]])), lay_out(grid_of([[file] * 25] * 40))
    assert many.cell[0] < few.cell[0] / 3
    assert many.text < few.text / 3


def test_more_cells_than_a_picture_can_hold_are_refused_with_a_way_out() -> None:
    page = Page(("r",) * 1000, ("c",) * 1000, ())
    with pytest.raises(ValueError, match=r"1,000,000 cells do not fit .* put one of the axes on pages"):
        lay_out(Grid((page,)))


def test_a_cell_without_a_picture_says_why() -> None:
    for cell, mark, word, detail in [
        (Cell(0, 0, state="failed", reason="oom: no memory"), "△", "Needs attention", "oom: no memory"),
        (Cell(0, 0, state="pending"), "○", "Pending", ""),
        (Cell(0, 0, state="processing"), "◐", "Rendering", ""),
        (Cell(0, 0, state="cancelled"), "", "Cancelled", ""),
        (Cell(0, 0, state="done"), "●", "Done", "no file"),
        (Cell(0, 0, Path("/nowhere/a.png"), state="done"), "△", "Cannot be shown", "a.png is not there"),
    ]:
        said = text_in(cell, look_at(cell.file))
        assert (said.mark, said.word, said.detail) == (mark, word, detail), (cell, mark, word, detail)


@pytest.mark.parametrize("state", ["failed", "pending", "processing", "cancelled"])
def test_a_placeholder_is_a_light_box_with_words_in_it(state: str) -> None:
    cell = Cell(0, 0, state=state, reason="execution: " + "a long story " * 100)
    layout = lay_out(Grid((Page(("a",), ("b",), (cell,)),)))
    shown = crop(draw(layout, 0).picture, layout)
    colours = shown.getcolors(100_000)
    assert colours is not None
    share, colour = max(colours)
    assert colour == EMPTY
    assert 0.5 < share / (shown.width * shown.height) < 1
    edge = [shown.crop((0, 0, shown.width, 4)), shown.crop((0, shown.height - 4, shown.width, shown.height))]
    assert all(part.getcolors() == [(shown.width * 4, EMPTY)] for part in edge)


@pytest.mark.parametrize(("state", "colour"), [("failed", ATTENTION), ("cancelled", QUIET), ("pending", QUIET)])
def test_only_what_needs_attention_has_its_colour_and_reasons_never_do(
    monkeypatch: pytest.MonkeyPatch, state: str, colour: tuple[int, int, int]
) -> None:
    drawn: dict[str, object] = {}
    monkeypatch.setattr(Label, "draw", lambda label, *where, **_: drawn.update({" ".join(label.lines): where[3]}))
    layout = lay_out(Grid((Page(("",), ("",), (Cell(0, 0, state=state, reason="no memory"),)),)))
    draw(layout, 0)
    drawn.pop("")  # headings
    assert drawn == {BADGES[state][1]: colour, "no memory": QUIET}


def test_films_sounds_and_models_are_named(tmp_path: Path) -> None:
    for name, kind in [("a.mp4", "Video"), ("a.WEBM", "Video"), ("a.flac", "Audio"), ("a.glb", "3D model")]:
        file = tmp_path / name
        file.write_bytes(b"something else")
        said = text_in(Cell(0, 0, file, state="done"), look_at(file))
        assert (said.word, said.detail) == (kind, name), (name, kind)


def png_of(width: int, height: int) -> bytes:
    """The start of a PNG that claims a size."""
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    checksum = struct.pack(">I", zlib.crc32(b"IHDR" + head))
    data = zlib.compress(b"")
    return (
        b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + b"IHDR" + head + checksum
        + struct.pack(">I", len(data)) + b"IDAT" + data + struct.pack(">I", zlib.crc32(b"IDAT" + data))
    )  # fmt: skip


def cut_short(tmp_path: Path, format: str) -> bytes:
    whole = io.BytesIO()
    Image.frombytes("RGB", (200, 200), random.Random(1).randbytes(120_000)).save(whole, format)
    return whole.getvalue()[: len(whole.getvalue()) // 2]


BROKEN = {
    "empty": (b"", "is empty"),
    "text": (b"not a picture at all", "is not a picture that can be shown here"),
    "claims to be huge": (png_of(60_000, 60_000), "is too large to be shown here"),
    "claims to be large": (png_of(9_000, 9_000), "is too large to be shown here: 9000 x 9000 pixels"),
    "claims to be very large": (png_of(10_000, 10_000), "is too large to be shown here: 10000 x 10000 pixels"),
    "claims nothing": (png_of(0, 10), "is not a picture that can be shown here"),
    "only a head": (png_of(100, 100), "is damaged"),
    "script": (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "is not a picture that can be shown here"),
}


def test_a_broken_file_says_so_in_its_cell_and_the_others_are_shown(tmp_path: Path) -> None:
    for content, trouble in BROKEN.values():
        bad = tmp_path / "bad.png"
        bad.write_bytes(content)
        fine = noise((100, 100))
        layout = lay_out(grid_of([[bad, saved(tmp_path, "fine.png", fine)]]))
        drawn = draw(layout, 0)
        said = layout.sources[0, 0, 0].problem or drawn.problems[0, 0, 0]
        assert said.startswith("bad.png "), (content, trouble)
        assert trouble in said, (content, trouble)
        assert max(crop(drawn.picture, layout, 0, 0).getcolors(100_000) or [])[1] == EMPTY, (content, trouble)
        assert crop(drawn.picture, layout, 0, 1).tobytes() == fine.tobytes(), (content, trouble)


def test_a_file_that_is_cut_short_is_damaged(tmp_path: Path) -> None:
    for format in ["PNG", "JPEG", "WEBP", "GIF"]:
        bad = tmp_path / f"cut.{format.lower()}"
        bad.write_bytes(cut_short(tmp_path, format))
        layout = lay_out(grid_of([[bad]]))
        drawn = draw(layout, 0)
        assert "is damaged" in layout.sources[0, 0, 0].problem + drawn.problems.get((0, 0, 0), ""), format
        assert drawn.thumbnails == {}, format


def test_what_is_no_file_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.png")
    (tmp_path / "folder.png").mkdir()
    assert look_at(tmp_path / "pipe.png").problem == "pipe.png is not there"
    assert look_at(tmp_path / "folder.png").problem == "folder.png is not there"
    assert look_at(tmp_path / "no\0name.png").problem
    assert look_at(tmp_path / "half\ud83d.png").problem


def test_a_file_that_breaks_after_it_was_looked_at_leaves_a_word(tmp_path: Path) -> None:
    file = saved(tmp_path, "a.png", noise((100, 100)))
    layout = lay_out(grid_of([[file]]))
    file.write_bytes(b"")
    assert draw(layout, 0).problems == {(0, 0, 0): "a.png is empty"}
    file.unlink()
    assert draw(layout, 0).problems == {(0, 0, 0): "a.png is not there"}


MODES = {
    "palette": ("png", Image.new("RGB", (100, 100), (200, 30, 60)).quantize(4), (200, 30, 60)),
    "grey": ("png", Image.new("L", (100, 100), 77), (77, 77, 77)),
    "one bit": ("png", Image.new("1", (100, 100), 1), (255, 255, 255)),
    "alpha": ("png", Image.new("RGBA", (100, 100), (200, 0, 0, 0)), (255, 255, 255)),
    "half alpha": ("png", Image.new("RGBA", (100, 100), (0, 0, 0, 51)), (204, 204, 204)),
    "grey and alpha": ("png", Image.new("LA", (100, 100), (0, 51)), (204, 204, 204)),
    "16 bits": ("png", Image.new("I;16", (100, 100), 40_000), (155, 155, 155)),
    "floating": ("tiff", Image.new("F", (100, 100), 0.5), (127, 127, 127)),
    "CMYK": ("jpg", Image.new("CMYK", (100, 100), (0, 255, 255, 0)), (254, 0, 0)),
    "webp": ("webp", Image.new("RGBA", (100, 100), (0, 0, 255, 255)), (0, 0, 254)),
}


def test_every_kind_of_pixel_becomes_its_colour(tmp_path: Path) -> None:
    for mode, (ending, source, colour) in MODES.items():
        file = saved(tmp_path, f"{mode}.{ending}", source)
        for cell_pixels in (None, 50):  # as it is, smaller
            layout = lay_out(grid_of([[file]], cell_pixels=cell_pixels))
            shown = crop(draw(layout, 0).picture, layout)
            assert difference(shown, Image.new("RGB", shown.size, colour)) <= 3, (mode, cell_pixels)


def test_an_animation_shows_its_first_frame(tmp_path: Path) -> None:
    frames = [Image.new("RGB", (100, 100), colour) for colour in ((200, 0, 0), (0, 200, 0))]
    for ending in ("gif", "webp", "png"):
        file = saved(tmp_path, f"a.{ending}", frames[0], save_all=True, append_images=frames[1:], duration=100)
        layout = lay_out(grid_of([[file]]))
        assert difference(crop(draw(layout, 0).picture, layout), frames[0]) < 3


def test_a_note_to_turn_the_picture_is_ignored(tmp_path: Path) -> None:
    note = Image.Exif()
    note[0x0112] = 6
    source = noise((120, 80))
    file = saved(tmp_path, "turned.png", source, exif=note)
    layout = lay_out(grid_of([[file]]))
    assert crop(draw(layout, 0).picture, layout).tobytes() == source.tobytes()


def test_a_large_jpeg_is_never_decoded_in_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = noise((2000, 1600))
    file = saved(tmp_path, "large.jpg", source)
    monkeypatch.setattr(grid_sources, "MOST_SOURCE_PIXELS", 1000 * 800)
    layout = lay_out(grid_of([[file]], cell_pixels=400))
    drawn = draw(layout, 0)
    assert drawn.problems == {}
    assert difference(crop(drawn.picture, layout), source.resize((400, 320), Image.Resampling.LANCZOS)) < 4


def test_thumbnails_are_small_jpegs_of_the_sources(tmp_path: Path) -> None:
    source = noise((640, 480))
    layout = lay_out(grid_of([[saved(tmp_path, "a.png", source)]]))
    (content,) = draw(layout, 0).thumbnails.values()
    with Image.open(io.BytesIO(content)) as thumbnail:
        assert (thumbnail.format, thumbnail.size) == ("JPEG", (320, 240))
        assert difference(thumbnail.convert("RGB"), source.resize((320, 240), Image.Resampling.LANCZOS)) < 6


def test_thumbnails_do_not_depend_on_the_size_of_the_cells(tmp_path: Path) -> None:
    source = noise((640, 480))
    layout = lay_out(grid_of([[saved(tmp_path, "a.png", source)]], cell_pixels=16))
    (content,) = draw(layout, 0).thumbnails.values()
    with Image.open(io.BytesIO(content)) as thumbnail:
        assert difference(thumbnail.convert("RGB"), source.resize((320, 240), Image.Resampling.LANCZOS)) < 6


def test_without_thumbnails_the_picture_is_the_same(tmp_path: Path) -> None:
    layout = lay_out(grid_of([[saved(tmp_path, "a.png", noise((640, 480)))]], cell_pixels=100))
    with_them, without = draw(layout, 0), draw(layout, 0, with_thumbnails=False)
    assert with_them.thumbnails
    assert without.thumbnails == without.problems == {}
    assert without.picture.tobytes() == with_them.picture.tobytes()


def test_one_source_is_in_memory_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    living: list[weakref.ref[Image.Image]] = []
    decode = grid_drawing.decode

    def watched(file: Path, at_least: Size) -> Image.Image:
        assert [each for each in living if each() is not None] == []
        image = decode(file, at_least)
        living.append(weakref.ref(image))
        return image

    monkeypatch.setattr(grid_drawing, "decode", watched)
    files = [saved(tmp_path, f"{number}.png", noise((200, 200), number)) for number in range(3)]
    layout = lay_out(grid_of([list(files)], cell_pixels=100))
    for with_thumbnails in (True, False):
        assert draw(layout, 0, with_thumbnails=with_thumbnails).problems == {}
    assert len(living) == 6


def test_hostile_texts_are_drawn_and_bounded() -> None:
    evil = "x" * 100_000 + "\n\x00\x1b[2J\u202e</script>\ud83d 猫"
    cell = Cell(0, 0, label=evil, state="failed", reason=evil)
    for is_sheet in (False, True):
        page = Page((evil, ""), (evil, ""), (cell,), title=evil, corner=evil)
        layout = lay_out(Grid((page,), title=evil, subtitle=evil, is_sheet=is_sheet))
        assert max(layout.pages[0].size) < 3000
        draw(layout, 0)
