"""Labels fit their width: broken where a reader would, cut where they must be, in a font that has their letters."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageDraw, ImageFont

from comfyui_agent.pictures import labels
from comfyui_agent.pictures.labels import ELLIPSIS, MOST_LINES, draw_mark, fit, font_for, line_height, one_line, wrap


def test_a_text_is_broken_where_a_reader_would_break_it() -> None:
    for text, width, lines in [
        ("euler", 8, ["euler"]),
        ("a knight on a hill", 8, ["a knight", "on a", "hill"]),
        ("one two", 7, ["one two"]),
        ("seed,cfg,steps", 9, ["seed,cfg,", "steps"]),
        ("models/sdxl/base", 12, ["models/sdxl/", "base"]),
        ("models\\sdxl\\base", 12, ["models\\sdxl\\", "base"]),
        ("euler_ancestral", 10, ["euler_", "ancestral"]),
        ("sampler = euler_ancestral", 17, ["sampler =", "euler_ancestral"]),
        ("a euler_ancestral", 9, ["a euler_", "ancestral"]),
        ("abcdefgh", 3, ["abc", "def", "gh"]),
        ("", 5, []),
        ("   ", 5, []),
    ]:
        assert wrap(text, len, width) == lines, (text, width, lines)


def test_what_is_left_over_after_the_last_line_is_an_ellipsis() -> None:
    lines = wrap("one two three four five six", len, 5)
    assert lines == ["one", "two", "three", "four…"]
    assert wrap("x" * 100, len, 5, most_lines=2) == ["xxxxx", "xxxx…"]
    assert wrap("anything", len, 5, most_lines=0) == []


@given(st.text(), st.integers(1, 30), st.integers(1, MOST_LINES))
def test_no_line_is_too_wide_and_nothing_is_lost_without_an_ellipsis(text: str, width: int, most: int) -> None:
    lines = wrap(one_line(text), len, width, most)
    assert len(lines) <= most
    assert all(len(line) <= width for line in lines)
    if one_line(text) and not lines[-1].endswith(ELLIPSIS):
        assert "".join("".join(lines).split()) == "".join(one_line(text).split())


def test_a_letter_keeps_its_marks() -> None:
    assert wrap("ae\u0301b", len, 2) == ["a", "e\u0301", "b"]


def test_a_text_of_a_hundred_thousand_letters_is_fitted_like_any_other() -> None:
    label = fit("x" * 100_000, 16, 120)
    assert len(label.lines) == MOST_LINES
    assert label.lines[-1].endswith(ELLIPSIS)
    assert 60 < label.width <= 120


def test_line_breaks_are_blanks_and_control_characters_are_shown() -> None:
    assert one_line("two\nlines\r\n\tand a tab") == "two lines and a tab"
    assert one_line("a\x07b\x1b[2Jc\u202ed") == "a\\x07b\\x1b[2Jc\\x202ed"
    assert one_line("half \ud83d a letter") == "half \\ud83d a letter"


def test_a_label_says_how_large_it_is_drawn() -> None:
    label = fit("a knight on a hill, in fog", 20, 100)
    canvas = Image.new("L", (140, label.height + 40))
    label.draw(ImageDraw.Draw(canvas), 20, 20, 255, centred_to=120)
    drawn = canvas.getbbox()
    assert drawn is not None
    assert 20 <= drawn[0] <= drawn[2] <= 121
    assert 20 <= drawn[1] <= drawn[3] <= 20 + label.height
    assert label.height == len(label.lines) * line_height(20)


def test_lines_stand_in_the_middle_where_that_is_asked_for() -> None:
    canvas = Image.new("L", (200, 40))
    fit("ii", 20, 200).draw(ImageDraw.Draw(canvas), 0, 0, 255, centred_to=200)
    drawn = canvas.getbbox()
    assert drawn is not None
    assert abs((drawn[0] + drawn[2]) / 2 - 100) <= 2


class Lacking:
    """A font that lacks the letters of a text."""

    def __init__(self, lacks: str) -> None:
        self._lacks = lacks

    def getmask(self, letter: str) -> Image.Image:
        return Image.new("L", (1, 1), 0 if letter in self._lacks or letter == labels.MISSING_LETTER else 9)


@pytest.fixture
def fonts(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str | None, Lacking]]:
    """The fonts of this machine: by their names, and the one of Pillow without one."""
    known: dict[str | None, Lacking] = {}

    def forget() -> None:
        labels._name_for.cache_clear()
        labels._has.cache_clear()

    def drawn(font: Lacking, letter: str) -> tuple[tuple[int, int], bytes]:
        mask = font.getmask(letter)
        return mask.size, mask.tobytes()

    forget()
    monkeypatch.setattr(labels, "_font", lambda name, _: known.get(name))
    monkeypatch.setattr(labels, "_drawn", drawn)
    yield known
    forget()


def test_the_font_of_pillow_is_taken_where_it_has_every_letter(fonts: dict[str | None, Lacking]) -> None:
    fonts[None], fonts["DejaVuSans.ttf"] = Lacking("é"), Lacking("")
    assert font_for("cafe", 20) is fonts[None]


def test_another_font_is_taken_for_letters_that_it_lacks(fonts: dict[str | None, Lacking]) -> None:
    fonts[None], fonts["DejaVuSans.ttf"], fonts["msyh.ttc"] = Lacking("é猫"), Lacking("猫"), Lacking("")
    assert font_for("café", 20) is fonts["DejaVuSans.ttf"]
    assert font_for("猫", 20) is fonts["msyh.ttc"]


def test_letters_that_no_font_has_are_drawn_as_well_as_can_be(fonts: dict[str | None, Lacking]) -> None:
    fonts[None], fonts["DejaVuSans.ttf"] = Lacking("é猫"), Lacking("猫")
    assert font_for("é猫", 20) is fonts["DejaVuSans.ttf"]
    assert font_for("猫", 20) is fonts[None]


def test_the_font_of_pillow_is_known_to_have_some_letters_and_lack_others() -> None:
    assert labels._has(None, "a")
    assert labels._has(None, ELLIPSIS)
    assert not labels._has(None, "猫")
    assert isinstance(font_for("plain", 20), ImageFont.FreeTypeFont)


def test_each_mark_looks_like_no_other() -> None:
    for mark in ["△", "○", "◐", "●"]:
        pictures = {}
        for each in ("△", "○", "◐", "●", ""):
            canvas = Image.new("RGB", (40, 40), (255, 255, 255))
            draw_mark(canvas, each, (4, 4), 32, (0, 0, 0))
            pictures[each] = canvas.tobytes()
        assert [other for other, picture in pictures.items() if picture == pictures[mark]] == [mark], mark
