"""Labels in a picture, in a font that has their letters, and marks of states. Python 3.9, Pillow from 10.1 on."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from PIL import Image, ImageDraw, ImageFont

from comfyui_agent.domain.texts import printable, whole

MOST_LINES = 4
ELLIPSIS = "…"
LINE_HEIGHT = 1.3
LONGEST = 800
"""More letters have no room in any picture."""
OTHER_FONTS = (
    "DejaVuSans.ttf",
    "NotoSans-Regular.ttf",
    "NotoSansCJK-Regular.ttc",
    "NotoSansCJKsc-Regular.otf",
    "SourceHanSans-Regular.ttc",
    "wqy-microhei.ttc",
    "DroidSansFallbackFull.ttf",
    "DroidSansFallback.ttf",
    "Arial Unicode.ttf",
    "ARIALUNI.TTF",
    "PingFang.ttc",
    "Hiragino Sans GB.ttc",
    "AppleSDGothicNeo.ttc",
    "msyh.ttc",
    "YuGothM.ttc",
    "malgun.ttf",
    "segoeui.ttf",
    "arial.ttf",
)
"""Fonts for letters that Pillow's own font lacks, in order of preference."""
BETWEEN_WORDS, BETWEEN_PARTS = " ,", "/\\_"
MISSING_LETTER = "\U0010ffff"
PROBE_SIZE = 24

if TYPE_CHECKING:
    Font = ImageFont.FreeTypeFont | ImageFont.ImageFont
Colour = tuple[int, int, int]


@dataclass(frozen=True)
class Label:
    """A text fitted into a width: its lines and its font."""

    lines: tuple[str, ...]
    font: Font
    size: int

    @property
    def height(self) -> int:
        return len(self.lines) * line_height(self.size)

    @property
    def width(self) -> int:
        return max((_width(self.font, line) for line in self.lines), default=0)

    def draw(
        self, drawing: ImageDraw.ImageDraw, left: int, top: int, colour: Colour, centred_to: int | None = None
    ) -> None:
        """Draw the lines at the left, or centred between the left and `centred_to`."""
        for number, line in enumerate(self.lines):
            indent = 0 if centred_to is None else (centred_to - left - _width(self.font, line)) // 2
            drawing.text((left + indent, top + number * line_height(self.size)), line, fill=colour, font=self.font)


def line_height(size: int) -> int:
    return round(size * LINE_HEIGHT)


def fit(text: str, size: int, width: int, most_lines: int = MOST_LINES) -> Label:
    """A text in lines of at most `width` pixels. It ends in an ellipsis if it does not fit."""
    shown = one_line(text)
    font = font_for(shown, size)
    return Label(tuple(wrap(shown, lambda part: _width(font, part), width, most_lines)), font, size)


def one_line(text: str) -> str:
    """A text in one line, with control characters escaped."""
    return printable(" ".join(whole(text, LONGEST).split()))


def wrap(text: str, width_of: Callable[[str], float], width: float, most_lines: int = MOST_LINES) -> list[str]:
    """Break a text after blanks, commas, slashes and underscores, or in a word that is too wide; with an ellipsis at
    last."""
    lines: list[str] = []
    left = text.strip()
    while left and len(lines) < most_lines:
        line, left = _first_line(left, width_of, width)
        lines.append(line)
    if left and lines:
        lines[-1] = _shortened(lines[-1], width_of, width)
    return lines


def _first_line(text: str, width_of: Callable[[str], float], width: float) -> tuple[str, str]:
    """The part of a text that fits, at least one letter, and the rest."""
    fitting = _fitting(text, width_of, width)
    if fitting == len(text) or text[fitting] == " ":
        return text[:fitting].rstrip(), text[fitting:].lstrip()
    after_words, after_parts = (
        max(text.rfind(mark, 0, fitting) for mark in marks) + 1 for marks in (BETWEEN_WORDS, BETWEEN_PARTS)
    )
    # a name is broken only if the line would be half empty otherwise
    at = after_words if after_words * 2 >= fitting else max(after_words, after_parts)
    at = at or _between_letters(text, fitting)
    return text[:at].rstrip(), text[at:].lstrip()


def _fitting(text: str, width_of: Callable[[str], float], width: float) -> int:
    low, high = 1, len(text)
    if width_of(text) <= width:
        return high
    while low < high:
        middle = (low + high + 1) // 2
        if width_of(text[:middle]) <= width:
            low = middle
        else:
            high = middle - 1
    return low


def _between_letters(text: str, at: int) -> int:
    """The position at or before `at` that does not separate a letter from its combining marks."""
    place = at
    while place > 0 and place < len(text) and unicodedata.category(text[place]) in ("Mn", "Me", "Mc", "Cf"):
        place -= 1
    return place or at


def _shortened(line: str, width_of: Callable[[str], float], width: float) -> str:
    while line and width_of(line + ELLIPSIS) > width:
        line = line[: _between_letters(line, len(line) - 1)] if len(line) > 1 else ""
    return line.rstrip(" ,/\\_") + ELLIPSIS


def font_for(text: str, size: int) -> Font:
    """The font that has the most letters of a text. Pillow's own font comes first."""
    letters = frozenset(letter for letter in text if not letter.isspace() and unicodedata.category(letter) != "Cf")
    name = _name_for(letters) if letters else None
    return _font(name, size) or ImageFont.load_default()


@lru_cache(maxsize=4096)
def _name_for(letters: frozenset[str]) -> str | None:
    if all(_has(None, letter) for letter in letters):
        return None
    installed = [name for name in OTHER_FONTS if _font(name, PROBE_SIZE)]
    return max([None, *installed], key=lambda name: sum(_has(name, letter) for letter in letters))


@lru_cache(maxsize=65536)
def _has(name: str | None, letter: str) -> bool:
    """Whether a font has a letter. It draws a missing one like a letter that no font has."""
    font = _font(name, PROBE_SIZE)
    if font is None:
        return letter.isascii()
    return _drawn(font, letter) != _drawn(font, MISSING_LETTER)


def _drawn(font: Font, letter: str) -> tuple[tuple[int, int], bytes]:
    mask = font.getmask(letter)
    return mask.size, bytes(mask)


@lru_cache(maxsize=512)
def _font(name: str | None, size: int) -> Font | None:
    """A font by its file name, or Pillow's own for None. Returns None if it is not on this machine."""
    try:
        return ImageFont.load_default(size=size) if name is None else ImageFont.truetype(name, size)
    except (OSError, ImportError, ValueError):
        return None


def _width(font: Font, text: str) -> int:
    return -int(-font.getlength(text) // 1)


def draw_mark(canvas: Image.Image, mark: str, place: tuple[int, int], side: int, colour: Colour) -> None:
    """Draw the mark of a state into a square. Few fonts have these marks."""
    fine = side * 4
    edge, stroke = fine // 8, max(4, fine // 12)
    shape = Image.new("L", (fine, fine))
    drawing = ImageDraw.Draw(shape)
    around = (edge, edge, fine - edge, fine - edge)
    if mark == "△":
        corners = [(fine / 2, edge), (fine - edge, fine - edge), (edge, fine - edge)]
        drawing.line([*corners, corners[0], corners[1]], fill=255, width=stroke, joint="curve")
    elif mark == "◐":
        drawing.ellipse(around, outline=255, width=stroke)
        drawing.pieslice(around, 90, 270, fill=255)
    elif mark == "●":
        drawing.ellipse(around, fill=255)
    elif mark == "○":
        drawing.ellipse(around, outline=255, width=stroke)
    canvas.paste(colour, (*place, place[0] + side, place[1] + side), shape.resize((side, side), Image.Resampling.BOX))
