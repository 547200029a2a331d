"""Composing a grid in its own process: what it prints, what it leaves behind, and how little memory it takes."""

from __future__ import annotations

import io
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from PIL import Image, ImageChops

from comfyui_agent.pictures import compose as composing
from comfyui_agent.pictures.compose import Spec, compose
from comfyui_agent.pictures.grid import Cell, Grid, Page, lay_out

MEGABYTE = 1024 * 1024


def source(folder: Path, number: int, size: tuple[int, int] = (96, 72)) -> Path:
    """A picture that looks like no other."""
    path = folder / f"{number:04d}.png"
    blots = Image.frombytes("RGB", (4, 4), random.Random(number).randbytes(48))
    blots.resize(size, Image.Resampling.BICUBIC).save(path)
    return path


def cell(row: int, column: int, file: Path | None, **about: Any) -> Cell:
    found = {"file": file, "href": file.name, "state": "done"} if file else {"state": "failed"}
    described = {"label": f"seed = {row}, sampler = {column}", "settings": {"seed": row, "sampler": f"s{column}"}}
    return Cell(row, column, **{**found, **described, "reason": "oom: no memory at node 3", **about})


def page_of(cells: Sequence[Cell], rows: int, columns: int, title: str = "") -> Page:
    headings = (tuple(f"seed {row}" for row in range(rows)), tuple(f"s{each}" for each in range(columns)))
    return Page(*headings, tuple(cells), title, "seed \\ sampler")


def spec(folder: Path, count: int = 1, rows: int = 2, columns: int = 2, **options: Any) -> Spec:
    """A grid over pictures of its own. The last cell of each page failed."""
    pages = []
    for page in range(count):
        files = [source(folder, page * 1000 + number) for number in range(rows * columns - 1)]
        cells = [cell(place // columns, place % columns, file) for place, file in enumerate([*files, None])]
        pages.append(page_of(cells, rows, columns, f"cfg = {page}"))
    grid = Grid(tuple(pages), "knights_1a2b3c4d", "3 of 4 done, 1 needs attention")
    return Spec(replace(grid, **options), "png", folder / "grid.png", folder / "grid.html")


def run(wanted: Spec) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "error", "-m", "comfyui_agent.pictures.compose"]
    return subprocess.run(command, input=wanted.as_json(), capture_output=True, text=True, check=False)


def files_in(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name.startswith((".", "grid"))}


@pytest.mark.parametrize("is_sheet", [False, True], ids=["grid", "sheet"])
def test_the_process_makes_a_grid_whose_every_cell_shows_its_file(tmp_path: Path, is_sheet: bool) -> None:
    wanted = spec(tmp_path, rows=2, columns=3, is_sheet=is_sheet)
    ran = run(wanted)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")
    layout = lay_out(wanted.grid)
    with Image.open(wanted.picture) as picture:
        assert picture.size == layout.pages[0].size
        for each in wanted.grid.pages[0].cells[:-1]:
            shown = picture.crop(layout.box(0, each.row, each.column))
            with Image.open(each.file or "") as own:
                assert ImageChops.difference(shown, own).getbbox() is None
    assert (tmp_path / "grid.html").read_text(encoding="utf-8").startswith("<!doctype html>")


def test_a_jpeg_is_made_where_that_is_asked_for(tmp_path: Path) -> None:
    compose(replace(spec(tmp_path), format="jpeg", picture=tmp_path / "grid.jpg"))
    with Image.open(tmp_path / "grid.jpg") as picture:
        assert picture.format == "JPEG"


def test_each_page_is_a_picture_and_no_other_file_is_touched(tmp_path: Path) -> None:
    compose(spec(tmp_path, count=3))
    names = ["grid.png", "grid_2.png", "grid_3.png"]
    assert len({(tmp_path / name).read_bytes() for name in names}) == 3
    (tmp_path / "grid_2.png").write_text("a result by now")
    compose(spec(tmp_path, count=1))
    assert sorted(path.name for path in tmp_path.glob("*grid*")) == ["grid.html", *names]
    assert (tmp_path / "grid_2.png").read_text() == "a result by now"


def test_a_file_that_the_grid_shows_is_neither_overwritten_nor_removed(tmp_path: Path) -> None:
    shown = source(tmp_path, 1).rename(tmp_path / "grid_2.png")
    page = page_of([cell(0, 0, shown)], 1, 1)
    compose(spec(tmp_path, pages=(page,)))
    assert shown.exists()
    for wanted in (replace(spec(tmp_path, pages=(page,)), picture=shown), spec(tmp_path, pages=(page, page))):
        with pytest.raises(ValueError, match="is one of the files to show"):
            compose(wanted)


def no_room(*_: Any) -> None:
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize("fails", ["draw", "write_page", "os.fsync"])
def test_a_failed_run_leaves_everything_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], fails: str
) -> None:
    compose(spec(tmp_path, count=3))
    before = files_in(tmp_path)
    assert len(before) == 4
    calls = iter([True, False])
    place, name = (composing.os, "fsync") if fails == "os.fsync" else (composing, fails)
    original = getattr(place, name)

    def failing(*arguments: Any) -> Any:
        return original(*arguments) if fails != "write_page" and next(calls) else no_room()

    monkeypatch.setattr(place, name, failing)
    assert composing.main(io.BytesIO(spec(tmp_path, count=2, title="another").as_json().encode())) == 1
    assert capsys.readouterr().err == "[Errno 28] No space left on device\n"
    assert files_in(tmp_path) == before


def test_nothing_has_its_final_name_before_everything_is_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[set[str]] = []
    original: Callable[[int], None] = os.fsync

    def looking(handle: int) -> None:
        seen.append({name for name in files_in(tmp_path) if not name.startswith(".")})
        original(handle)

    monkeypatch.setattr(composing.os, "fsync", looking)
    compose(spec(tmp_path, count=2))
    assert seen == [set(), set(), set()]
    assert set(files_in(tmp_path)) == {"grid.png", "grid_2.png", "grid.html"}


def test_what_a_killed_run_left_is_removed_once_it_is_old_or_its_process_gone(tmp_path: Path) -> None:
    own, gone = os.getpid(), subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    old, new = (tmp_path / f".grid.png.{own}-{letter * 32}.e3part" for letter in "ab")
    left = tmp_path / f".grid.png.{gone.pid}-{'c' * 32}.e3part"
    strange = tmp_path / ".grid.png.e3part"
    for path in (old, new, left, strange):
        path.write_text("half a picture")
    for path in (old, strange):
        os.utime(path, times=(time.time() - 7200,) * 2)
    compose(spec(tmp_path))
    assert {name for name in files_in(tmp_path) if name.startswith(".")} == {new.name, strange.name}


def test_what_is_made_may_be_read_by_others(tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.write_text("")
    compose(spec(tmp_path))
    assert {(tmp_path / name).stat().st_mode for name in ("grid.png", "grid.html")} == {plain.stat().st_mode}


@pytest.mark.parametrize(
    ("text", "message"),
    [("{", "Expecting property name"), ("[1]", "an instance of Spec"), ("{}", "grid Field required")],
)
def test_a_bad_specification_is_one_line(capsys: pytest.CaptureFixture[str], text: str, message: str) -> None:
    assert composing.main(io.BytesIO(text.encode())) == 1
    printed = capsys.readouterr()
    assert message in printed.err
    assert (printed.out, printed.err.count("\n")) == ("", 1)


def test_the_process_says_what_is_wrong_in_one_line(tmp_path: Path) -> None:
    ran = run(replace(spec(tmp_path), picture=Path("/nowhere/\x1b[2J\n猫/grid.png")))
    assert (ran.returncode, ran.stdout, ran.stderr.count("\n")) == (1, "", 1)
    assert "No such file or directory" in ran.stderr
    assert ran.stderr.isascii()
    assert "\x1b" not in ran.stderr


def test_hostile_texts_and_files_make_a_grid_all_the_same(tmp_path: Path) -> None:
    evil = "</script>\n\x1b\ud83d 猫" + "x" * 100_000
    (tmp_path / "broken.png").write_bytes(b"\x89PNG\r\n\x1a\nnothing")
    cells = (
        cell(0, 0, tmp_path / "broken.png", label=evil, href=evil),
        cell(0, 1, None, label=evil, reason=evil, settings={evil: [evil, float("nan")]}),
        cell(1, 0, Path("/dev/zero"), label=evil),
        cell(1, 1, Path(f"/nowhere/{'long' * 5000}.png")),
    )
    page = Page((evil, evil), (evil, evil), cells, evil, evil)
    ran = run(spec(tmp_path, title=evil, subtitle=evil, pages=(page,)))
    assert (ran.returncode, ran.stderr) == (0, "")


SMALL_PARENT = ["sh", "-c", '"$@"; exit $?', "sh"]
"""A process starts with the memory of its parent on its account; a shell has little."""
MEASURED = """
import resource, sys
from comfyui_agent.pictures.compose import main
code = main(sys.stdin.buffer)
sys.stderr.write(str(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024))
sys.exit(code)
"""


def memory_of(wanted: Spec) -> int:
    """The bytes of memory that a run took at most."""
    command = [*SMALL_PARENT, sys.executable, "-c", MEASURED]
    ran = subprocess.run(command, input=wanted.as_json(), capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    return int(ran.stderr)


def many(folder: Path, rows: int, columns: int, size: int, **options: Any) -> Spec:
    file = source(folder, 9_999, (size, size))
    cells = [cell(row, column, file) for row in range(rows) for column in range(columns)]
    return spec(folder, pages=(page_of(cells, rows, columns),), **options)


@pytest.mark.skipif(sys.platform != "linux", reason="memory is counted in other units elsewhere")
def test_one_source_is_in_memory_at_a_time(tmp_path: Path) -> None:
    all_at_once = 30 * 1024 * 1024 * 4
    assert memory_of(many(tmp_path, 5, 6, 1024, cell_pixels=64)) < all_at_once


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.skipif(sys.platform != "linux", reason="memory is counted in other units elsewhere")
def test_a_thousand_large_pictures_take_less_than_half_a_gigabyte(tmp_path: Path) -> None:
    assert memory_of(many(tmp_path, 40, 25, 1024)) < 500 * MEGABYTE
