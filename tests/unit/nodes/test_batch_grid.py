"""The grid of a batch inside ComfyUI: every member has its own cell, and one without a picture says why."""

from __future__ import annotations

import colorsys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from comfyui_agent.domain.combinations import Axis, Combinations, Mode
from comfyui_agent.nodes.core import batch_grid
from comfyui_agent.nodes.core.batch_grid import MOST_PAGES, BatchGrid, Member, lay_out_grid
from comfyui_agent.nodes.core.batch_state import GridOptions, NoGrid
from comfyui_agent.pictures import grid as grids
from comfyui_agent.pictures.grid import Box
from comfyui_agent.pictures.grid_drawing import ATTENTION, EMPTY

Colour = tuple[int, int, int]
SIZE = (64, 48)


def combined(mode: Mode = Mode.MATRIX, **axes: Any) -> Combinations:
    return Combinations([Axis(name, (name,), tuple(values)) for name, values in axes.items()], mode)


def laid_out(combinations: Combinations, members: dict[int, Member], **options: Any) -> BatchGrid:
    every = [members.get(index, Member()) for index in range(len(combinations))]
    return lay_out_grid(combinations, every, GridOptions(**options), "castle", "0 of 8 done")


def boxes_on(made: BatchGrid, page: int) -> dict[int, Box]:
    """Where the members of a page are in its picture."""
    return {index: made.layout.box(*place) for index, place in enumerate(made.places) if place.page == page}


def colour_of(index: int) -> Colour:
    """A different colour for each of a few hundred."""
    shades = colorsys.hsv_to_rgb(index * 0.61803, 0.5 + index % 5 / 10, 0.5 + index % 7 / 14)
    return round(shades[0] * 255), round(shades[1] * 255), round(shades[2] * 255)


def painted(folder: Path, index: int, size: tuple[int, int] = SIZE) -> Member:
    file = folder / f"{index}.png"
    Image.new("RGB", size, colour_of(index)).save(file)
    return Member(file)


def all_painted(folder: Path, combinations: Combinations) -> dict[int, Member]:
    return {index: painted(folder, index) for index in range(len(combinations))}


def shown(picture: Image.Image, box: Box) -> Colour | None:
    """The one colour of a cell; None if there are several."""
    colours = picture.crop(box).getcolors(2)
    return colours[0][1] if colours and len(colours) == 1 else None  # type: ignore[return-value]


def has_colour(picture: Image.Image, box: Box, colour: Colour) -> bool:
    return colour in [each for _, each in picture.crop(box).getcolors(100_000) or ()]


def wrong_cells(made: BatchGrid) -> list[int]:
    """Members that are not in exactly one cell, or whose cell shows another colour than theirs."""
    seen: list[int] = []
    wrong: list[int] = []
    for page, picture in enumerate(made.pictures()):
        boxes = boxes_on(made, page)
        seen += boxes
        wrong += [index for index, box in boxes.items() if shown(picture, box) != colour_of(index)]
    return wrong + [index for index in set(seen) if seen.count(index) > 1]


def test_ninety_members_are_in_nine_rows_and_ten_columns(tmp_path: Path) -> None:
    combinations = combined(seed=range(9), cfg=[number / 2 for number in range(10)])
    made = laid_out(combinations, all_painted(tmp_path, combinations))
    assert (len(made.layout.pages), made.warnings) == (1, ())
    assert wrong_cells(made) == []
    boxes = boxes_on(made, 0)
    assert sorted(boxes) == list(range(90))
    for index, (left, top, right, lower) in boxes.items():
        row, column = divmod(index, 10)
        assert (left, top) == (boxes[column][0], boxes[row * 10][1])
        assert (right - left, lower - top) == SIZE
        assert column == 0 or left > boxes[index - 1][2]
        assert row == 0 or top > boxes[index - 10][3]


@pytest.mark.parametrize(
    ("spoil", "has_mark"),
    [
        (lambda _: Member(reason="KSampler: no memory"), True),
        (lambda _: Member(), False),
        (lambda _: Member(Path("gone.png")), True),
        (lambda member: member.file.write_bytes(b"\x89PNG") and member, True),
    ],
    ids=["failed", "without a file", "vanished", "broken"],
)
def test_a_member_without_a_picture_has_a_cell_with_a_text(
    tmp_path: Path, spoil: Callable[[Member], Member], has_mark: bool
) -> None:
    members = {index: painted(tmp_path, index, (200, 150)) for index in range(6)}
    members[4] = spoil(members[4])
    made = laid_out(combined(seed=range(2), cfg=range(3)), members)
    assert wrong_cells(made) == [4]
    (picture,) = made.pictures()
    cell = boxes_on(made, 0)[4]
    assert has_colour(picture, cell, EMPTY)
    assert picture.crop(cell).convert("L").getextrema()[0] < 160, "there is no text"
    assert has_colour(picture, cell, ATTENTION) is has_mark


@pytest.mark.parametrize(
    ("columns", "rows"), [("", ""), ("model", "cfg"), (" seed ", "model"), ("cfg", ""), ("", "cfg")]
)
def test_people_choose_what_goes_across_and_down_and_the_rest_makes_pages(
    tmp_path: Path, columns: str, rows: str
) -> None:
    combinations = combined(model=["a", "b", "c"], tiled=[True], seed=range(2), cfg=range(4))
    made = laid_out(combinations, all_painted(tmp_path, combinations), columns=columns, rows=rows)
    assert made.warnings == ()
    assert wrong_cells(made) == []
    for page in range(len(made.layout.pages)):
        for at, name in ((0, columns.strip()), (1, rows.strip())):
            edges = [
                (box[at], combinations.values_at(index)[name]) for index, box in boxes_on(made, page).items() if name
            ]
            assert len(set(edges)) == len({edge for edge, _ in edges}) == len({value for _, value in edges})


@pytest.mark.parametrize(
    ("options", "warning"),
    [
        ({"columns": "sed"}, "columns: 'sed' is no parameter of this batch; did you mean seed?"),
        ({"rows": "x\ny"}, "rows: 'x\\ny' is no parameter of this batch; there are cfg, seed"),
        ({"columns": "seed", "rows": "seed"}, "rows: 'seed' goes across already; leave it out, or name another"),
    ],
)
def test_an_option_that_cannot_be_followed_gives_a_warning(
    tmp_path: Path, options: dict[str, str], warning: str
) -> None:
    combinations = combined(seed=range(2), cfg=range(3))
    made = laid_out(combinations, all_painted(tmp_path, combinations), **options)
    assert made.warnings == (warning,)
    assert wrong_cells(made) == []


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[grids.Grid]:
    """The grids that are laid out."""
    found: list[grids.Grid] = []
    lay_out = grids.lay_out
    monkeypatch.setattr(batch_grid, "lay_out", lambda grid: found.append(grid) or lay_out(grid))
    return found


@pytest.mark.parametrize(
    ("combinations", "labels"),
    [
        (combined(seed=[1, 2], cfg=[7]), ["seed = 1", "seed = 2"]),
        (combined(seed=[1], tiled=[False]), ["seed = 1, tiled = false"]),
        (
            combined(Mode.LINEAR, cfg=[5, 6.5], tiled=[True], steps=[20, 21]),
            ["cfg = 5, steps = 20", "cfg = 6.5, steps = 21"],
        ),
    ],
)
def test_fewer_than_two_axes_that_vary_and_linear_batches_make_a_contact_sheet(
    tmp_path: Path, drawn: list[grids.Grid], combinations: Combinations, labels: list[str]
) -> None:
    made = laid_out(combinations, all_painted(tmp_path, combinations))
    assert wrong_cells(made) == []
    assert drawn[0].is_sheet
    assert [cell.label for cell in drawn[0].pages[0].cells] == labels


def test_columns_of_a_linear_batch_give_a_warning() -> None:
    made = laid_out(combined(Mode.LINEAR, cfg=[5, 6], steps=[1, 2]), {}, columns="cfg")
    assert made.warnings == ("columns and rows are for mode matrix: a batch in mode linear is a contact sheet",)


def test_titles_and_headings_say_what_is_shown(drawn: list[grids.Grid]) -> None:
    combinations = combined(model=["a", "b"], seed=[1, 2], tiled=[True, False])
    laid_out(combinations, {3: Member(reason="no memory")})
    (grid,) = drawn
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
        left, _, right, _ = boxes_on(laid_out(combinations, members, cell_pixels=cell_pixels), 0)[0]
        assert right - left == width


@pytest.mark.parametrize(("models", "is_sheet"), [(MOST_PAGES, False), (MOST_PAGES + 1, True)])
def test_too_many_pages_become_one_contact_sheet(tmp_path: Path, models: int, is_sheet: bool) -> None:
    combinations = combined(model=range(models), seed=range(2), cfg=range(2))
    made = laid_out(combinations, dict.fromkeys(range(len(combinations)), painted(tmp_path, 7)))
    assert len(made.layout.pages) == (1 if is_sheet else models)
    assert len(boxes_on(made, 0)) == (len(combinations) if is_sheet else 4)
    assert ["the grid would have 51 pages, and 50 is the most" in text for text in made.warnings] == [True] * is_sheet


def test_pages_that_are_too_large_become_a_contact_sheet_or_no_grid(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grids, "LONGEST_SIDE", 900)
    made = laid_out(combined(seed=range(120), cfg=range(2)), dict.fromkeys(range(240), painted(tmp_path, 7)))
    assert made.warnings == ("the pages of the grid are too large for pictures: it is a contact sheet instead",)
    assert len(boxes_on(made, 0)) == 240
    with pytest.raises(NoGrid, match="3,000 results do not fit into one picture: make several batches"):
        laid_out(combined(seed=range(60), cfg=range(50)), {})
