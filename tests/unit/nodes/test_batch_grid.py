"""The grid of a batch inside ComfyUI: every member stands in its own cell, and one without a picture says why."""

from __future__ import annotations

import colorsys
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from comfyui_agent.domain.combinations import Axis, Combinations, Mode
from comfyui_agent.nodes.core import batch_grid
from comfyui_agent.nodes.core.batch_grid import MOST_PAGES, BatchGrid, GridOrder, Member, NoGrid, draw_grid
from comfyui_agent.pictures import grid as grids
from comfyui_agent.pictures import grid_drawing
from comfyui_agent.pictures.grid import Box
from comfyui_agent.pictures.grid_drawing import ATTENTION, EMPTY

Colour = tuple[int, int, int]
SIZE = (64, 48)


def combined(mode: Mode = Mode.MATRIX, **axes: Any) -> Combinations:
    return Combinations([Axis(name, (name,), tuple(values)) for name, values in axes.items()], mode)


def colour_of(index: int) -> Colour:
    """A colour of its own for each of a few hundred."""
    shades = colorsys.hsv_to_rgb(index * 0.61803, 0.5 + index % 5 / 10, 0.5 + index % 7 / 14)
    return round(shades[0] * 255), round(shades[1] * 255), round(shades[2] * 255)


def painted(folder: Path, index: int, size: tuple[int, int] = SIZE) -> Member:
    file = folder / f"{index}.png"
    Image.new("RGB", size, colour_of(index)).save(file)
    return Member(file, "done")


def all_painted(folder: Path, combinations: Combinations) -> dict[int, Member]:
    return {index: painted(folder, index) for index in range(len(combinations))}


def shown(picture: Image.Image, box: Box) -> Colour | None:
    """The one colour of a cell; None if there are several."""
    colours = picture.crop(box).getcolors(2)
    return colours[0][1] if colours and len(colours) == 1 else None  # type: ignore[return-value]


def has_colour(picture: Image.Image, box: Box, colour: Colour) -> bool:
    colours = picture.crop(box).getcolors(100_000)
    assert colours is not None
    return colour in [each for _, each in colours]


def wrong_cells(made: BatchGrid) -> list[int]:
    """Members that are not in exactly one cell, or whose cell shows another colour than theirs."""
    seen: list[int] = []
    wrong: list[int] = []
    for page, picture in enumerate(made):
        boxes = made.boxes(page)
        seen += boxes
        wrong += [index for index, box in boxes.items() if shown(picture, box) != colour_of(index)]
    return wrong + [index for index in set(seen) if seen.count(index) > 1]


def test_ninety_members_stand_in_nine_rows_and_ten_columns(tmp_path: Path) -> None:
    combinations = combined(seed=range(9), cfg=[number / 2 for number in range(10)])
    assert len({colour_of(index) for index in range(90)}) == 90
    made = draw_grid(GridOrder(combinations, all_painted(tmp_path, combinations), "knights", "90 of 90 done"))
    assert (len(made), made.warnings) == (1, ())
    assert wrong_cells(made) == []
    boxes = made.boxes(0)
    assert sorted(boxes) == list(range(90))
    for index, (left, top, right, lower) in boxes.items():
        row, column = divmod(index, 10)
        assert (left, top) == (boxes[column][0], boxes[row * 10][1])
        assert (right - left, lower - top) == SIZE
        assert column == 0 or left > boxes[index - 1][2]
        assert row == 0 or top > boxes[index - 10][3]


@pytest.mark.parametrize(
    ("member", "has_mark"),
    [
        (Member(None, "failed", "KSampler: no memory"), True),
        (Member(None, "cancelled", "interrupted"), False),
        (Member(None, "pending"), False),
        (Member(Path("gone.png"), "done"), True),
        (None, False),
    ],
    ids=["failed", "cancelled", "pending", "vanished", "missing"],
)
def test_a_member_without_a_picture_leaves_a_word_and_the_others_are_shown(
    tmp_path: Path, member: Member | None, has_mark: bool
) -> None:
    combinations = combined(seed=range(2), cfg=range(3))
    members = {index: painted(tmp_path, index, (200, 150)) for index in range(6)}
    if member is None:
        del members[4]
    else:
        members[4] = member
    made = draw_grid(GridOrder(combinations, members))
    (picture,) = made
    assert wrong_cells(made) == [4]
    place = made.boxes(0)[4]
    assert has_colour(picture, place, EMPTY)
    assert picture.crop(place).convert("L").getextrema()[0] < 160, "there are no words"
    assert has_colour(picture, place, ATTENTION) is has_mark


def test_a_broken_file_leaves_a_word_and_the_others_are_shown(tmp_path: Path) -> None:
    combinations = combined(seed=range(2), cfg=range(2))
    members = all_painted(tmp_path, combinations)
    broken = members[2].file
    assert broken is not None
    broken.write_bytes(broken.read_bytes()[:50])
    made = draw_grid(GridOrder(combinations, members))
    assert wrong_cells(made) == [2]
    assert has_colour(made.picture(0), made.boxes(0)[2], EMPTY)


def test_a_file_that_vanishes_before_it_is_drawn_leaves_a_word(tmp_path: Path) -> None:
    combinations = combined(seed=range(2), cfg=range(2))
    members = all_painted(tmp_path, combinations)
    made = draw_grid(GridOrder(combinations, members))
    (tmp_path / "3.png").unlink()
    assert wrong_cells(made) == [3]
    assert has_colour(made.picture(0), made.boxes(0)[3], EMPTY)


def test_what_a_failed_member_has_saved_before_is_not_shown(tmp_path: Path) -> None:
    file = painted(tmp_path, 1).file
    combinations = combined(seed=range(2))
    made = draw_grid(
        GridOrder(combinations, {0: painted(tmp_path, 0), 1: Member(file, "failed", "VAEDecode: no memory")})
    )
    assert wrong_cells(made) == [1]


def test_more_than_two_axes_make_pages(tmp_path: Path) -> None:
    combinations = combined(model=["a", "b", "c"], tiled=[True], seed=range(2), cfg=range(4))
    made = draw_grid(GridOrder(combinations, all_painted(tmp_path, combinations)))
    assert len(made) == len(list(made)) == 3
    assert [sorted(made.boxes(page)) for page in range(3)] == [list(range(page * 8, page * 8 + 8)) for page in range(3)]
    assert wrong_cells(made) == []


@pytest.mark.parametrize(("columns", "rows"), [("model", "cfg"), (" seed ", "model"), ("cfg", ""), ("", "cfg")])
def test_people_say_what_goes_across_and_down(tmp_path: Path, columns: str, rows: str) -> None:
    combinations = combined(model=["a", "b", "c"], seed=range(2), cfg=range(4))
    made = draw_grid(GridOrder(combinations, all_painted(tmp_path, combinations), columns=columns, rows=rows))
    assert made.warnings == ()
    assert wrong_cells(made) == []
    for page in range(len(made)):
        for at, name in ((0, columns.strip()), (1, rows.strip())):
            edges = [(box[at], combinations.values_at(index)[name]) for index, box in made.boxes(page).items() if name]
            assert len(set(edges)) == len({edge for edge, _ in edges}) == len({value for _, value in edges})


@pytest.mark.parametrize(
    ("wish", "warning"),
    [
        ({"columns": "sed"}, "columns: 'sed' is no parameter of this batch; did you mean seed?"),
        ({"rows": "x\ny"}, "rows: 'x\\ny' is no parameter of this batch; there are cfg, seed"),
        ({"columns": "seed", "rows": "seed"}, "rows: 'seed' goes across already; leave it out, or name another"),
    ],
)
def test_a_wish_that_cannot_be_is_left_out_with_a_warning(tmp_path: Path, wish: dict[str, str], warning: str) -> None:
    combinations = combined(seed=range(2), cfg=range(3))
    made = draw_grid(GridOrder(combinations, all_painted(tmp_path, combinations), **wish))  # type: ignore[arg-type]
    assert made.warnings == (warning,)
    assert wrong_cells(made) == []


def labels_of(monkeypatch: pytest.MonkeyPatch, order: GridOrder) -> tuple[BatchGrid, list[str]]:
    """The grid, and what stands below its cells; empty if it is no contact sheet."""
    found: list[str] = []
    lay_out = grids.lay_out

    def watched(grid: grids.Grid) -> grids.Layout:
        found[:] = [cell.label for cell in grid.pages[0].cells] if grid.is_sheet else []
        return lay_out(grid)

    monkeypatch.setattr(grids, "lay_out", watched)
    return draw_grid(order), found


def test_axes_in_step_are_a_contact_sheet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    combinations = combined(Mode.LINEAR, cfg=[5, 6.5, 8, 9, 10], tiled=[True], steps=[20, 21, 22, 23, 24])
    made, labels = labels_of(
        monkeypatch, GridOrder(combinations, all_painted(tmp_path, combinations), "castle", columns="cfg")
    )
    assert labels[:2] == ["cfg = 5, steps = 20", "cfg = 6.5, steps = 21"]
    assert made.warnings == ("columns and rows are for mode matrix: a batch in mode linear is a contact sheet",)
    assert wrong_cells(made) == []
    boxes = made.boxes(0)
    assert [boxes[index][0] for index in range(3)] == sorted({box[0] for box in boxes.values()})
    assert [boxes[index][1] for index in (0, 3)] == sorted({box[1] for box in boxes.values()})


@pytest.mark.parametrize(
    ("axes", "labels"),
    [
        ({"seed": [1, 2], "cfg": [7]}, ["seed = 1", "seed = 2"]),
        ({"seed": [1], "tiled": [False]}, ["seed = 1, tiled = false"]),
    ],
)
def test_one_axis_that_varies_is_a_contact_sheet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, axes: dict[str, list[Any]], labels: list[str]
) -> None:
    combinations = combined(**axes)
    made, found = labels_of(monkeypatch, GridOrder(combinations, all_painted(tmp_path, combinations)))
    assert found == labels
    assert wrong_cells(made) == []
    picture, (left, _, right, lower) = made.picture(0), made.boxes(0)[0]
    below = picture.crop((left, lower + 2, right, picture.height))
    assert below.convert("L").getextrema()[0] < 128


def test_it_says_what_it_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[grids.Grid] = []
    lay_out = grids.lay_out
    monkeypatch.setattr(grids, "lay_out", lambda grid: found.append(grid) or lay_out(grid))
    combinations = combined(model=["a", "b"], seed=[1, 2], tiled=[True, False])
    draw_grid(GridOrder(combinations, {3: Member(state="failed", reason="no memory")}, "castle", "0 of 8 done"))
    (grid,) = found
    assert (grid.title, grid.subtitle) == ("castle", "0 of 8 done")
    assert [page.title for page in grid.pages] == ["model = a", "model = b"]
    assert grid.pages[1].rows == ("seed = 1", "seed = 2")
    assert grid.pages[1].columns == ("tiled = true", "tiled = false")
    assert grid.pages[1].corner == "seed \\ tiled"
    reasons = {cell.reason: (cell.row, cell.column, cell.state) for cell in grid.pages[0].cells if cell.reason}
    assert reasons == {"no memory": (1, 1, "failed")}


def test_cells_are_as_large_as_people_say(tmp_path: Path) -> None:
    combinations = combined(seed=range(2), cfg=range(2))
    members = all_painted(tmp_path, combinations)
    for cell_pixels, width in ((0, SIZE[0]), (32, 32), (4, 16), (-5, SIZE[0])):
        left, _, right, _ = draw_grid(GridOrder(combinations, members, cell_pixels=cell_pixels)).boxes(0)[0]
        assert right - left == width


def test_more_pages_than_people_look_at_are_one_contact_sheet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    member = painted(tmp_path, 7)
    for pages in (MOST_PAGES, MOST_PAGES + 1):
        combinations = combined(model=range(pages), seed=range(2), cfg=range(2))
        order = GridOrder(combinations, dict.fromkeys(range(len(combinations)), member))
        made, labels = labels_of(monkeypatch, order)
        is_sheet = pages > MOST_PAGES
        assert len(made) == (1 if is_sheet else pages)
        assert len(made.boxes(0)) == (len(combinations) if is_sheet else 4)
        assert labels[-1:] == (["model = 50, seed = 1, cfg = 1"] if is_sheet else [])
        assert [text[:60] for text in made.warnings] == (
            ["the grid would have 51 pages, and 50 is the most: it is a co"] if is_sheet else []
        )


def test_what_is_too_large_for_pictures_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    member = painted(tmp_path, 7)
    monkeypatch.setattr(grids, "LONGEST_SIDE", 900)
    wide = combined(seed=range(120), cfg=range(2))
    made = draw_grid(GridOrder(wide, dict.fromkeys(range(240), member)))
    assert made.warnings == ("the pages of the grid are too large for pictures: it is a contact sheet instead",)
    assert len(made.boxes(0)) == 240
    many = combined(seed=range(60), cfg=range(50))
    with pytest.raises(NoGrid, match="3,000 results do not fit into one picture: make several batches"):
        draw_grid(GridOrder(many, {}))


def test_pictures_are_drawn_one_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[int] = []
    draw = grid_drawing.draw

    def watched(layout: grids.Layout, number: int, *, with_thumbnails: bool = True) -> grid_drawing.Drawn:
        drawn.append(number)
        assert not with_thumbnails
        return draw(layout, number, with_thumbnails=with_thumbnails)

    monkeypatch.setattr(grid_drawing, "draw", watched)
    combinations = combined(model=range(3), seed=range(2), cfg=range(2))
    made = draw_grid(GridOrder(combinations, all_painted(tmp_path, combinations)))
    pictures = iter(made)
    assert drawn == []
    next(pictures)
    assert drawn == [0]


def test_it_can_be_imported_where_there_is_no_pillow() -> None:
    module = batch_grid.__name__
    code = (
        f"import sys; sys.modules['PIL'] = None; import {module}; print(sorted(m for m in sys.modules if 'PIL.' in m))"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "[]"
