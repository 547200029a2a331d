"""The values of one axis of a sweep, as people write them: `1..10:2`, `1,2,..,10`, `a | b`, `"a, b","c"`, `@file.txt`.

The grammar is in docs/values.md. What a value is for is the matter of value_types. Runs on Python 3.9.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable, Sequence
from decimal import Context, Decimal, localcontext
from typing import NamedTuple

MOST_VALUES = 1_000_000
LONGEST_TEXT, MOST_RANGES = 100_000, 1_000
"""The most letters and the most ranges of a quick text."""
MOST_DIGITS = 40
SEED_LIMIT = 2**32
"""Every node takes seeds below this."""
EXACT = Context(prec=4 * MOST_DIGITS)
LONGEST_SHOWN = 60
FILE, SEEDS, GOES_ON = "@", "random:", ".."
OR_QUOTED = "; a text goes in quotes"
BETWEEN = r'[^"\\]*(?:\\.[^"\\]*)*'
QUOTED = re.compile(f'"({BETWEEN})"', re.DOTALL)
CLOSED = re.compile(f'(?:[^"]+|"{BETWEEN}")*', re.DOTALL)
"""Everything before a quote that is never closed."""
ITEM = {sign: re.compile(f'((?:[^"{sign}]+|"{BETWEEN}")*)(?:[{sign}]|\\Z)', re.DOTALL) for sign in ",|"}
"""Everything before a separator or the end. It never backtracks in a text whose quotes are closed."""
NUMBER = r"([-+]?[0-9]+(?:\.[0-9]+)?)"
RANGE = re.compile(rf"{NUMBER}\s*\.\.\s*{NUMBER}(?:\s*:\s*{NUMBER})?")
MEANT_AS_RANGE = re.compile(r"[-+.]*[0-9][-+0-9.eE]*\s*\.\.|\.\.+\s*[-+]?[0-9]|\.{3,}$|…$")

ReadLines = Callable[[str], Sequence[str]]
"""The lines of the file that `@NAME` names. It may raise OSError or ValueError."""
DrawSeeds = Callable[[int], Sequence[int]]


class BadValues(ValueError):
    """A text that stands for no values. The message is one line: what is wrong, and what to write instead."""


class Token(NamedTuple):
    """One value as a text. A plain token stood in quotes or in a file: it is a text unless its place needs a number."""

    text: str
    is_plain: bool


class _Steps(NamedTuple):
    """Numbers at equal distances. Their count is known before the first one is made."""

    first: Decimal
    step: Decimal
    length: int

    def tokens(self, last: int | None = None) -> list[Token]:
        """All numbers as texts, or only the last few."""
        with localcontext(EXACT):
            numbers = range(self.length)[-last if last else 0 :]
            return [Token(_digits(self.first + self.step * number), is_plain=False) for number in numbers]


class Values:
    """What a text stands for. The count is known before the values are made."""

    def __init__(self, parts: Sequence[Token | _Steps], seeds: int = 0) -> None:
        self._parts = parts
        self._seeds = seeds
        self._length = seeds + sum(part.length if isinstance(part, _Steps) else 1 for part in parts)

    def __len__(self) -> int:
        return self._length

    def tokens(self, draw: DrawSeeds) -> list[Token]:
        if self._seeds:
            return [Token(str(seed), is_plain=False) for seed in draw(self._seeds)]
        return [token for part in self._parts for token in (part.tokens() if isinstance(part, _Steps) else [part])]


def parse(text: str, *, read_lines: ReadLines, draw: DrawSeeds, most: int = MOST_VALUES) -> list[Token]:
    """The values of a text in order, as `read` counts them. Below MOST_VALUES the text must be quick to read."""
    return read(text, read_lines=read_lines, most=most, is_quick=most < MOST_VALUES).tokens(draw)


def read(text: str, *, read_lines: ReadLines, most: int = MOST_VALUES, is_quick: bool = False) -> Values:
    """The values of a text, counted and not yet made: at least one, at most `most`. BadValues if the text is wrong.

    A quick text has at most LONGEST_TEXT letters and MOST_RANGES ranges, so that reading it never takes long.
    """
    if is_quick and len(text) > LONGEST_TEXT:
        raise BadValues(
            f"the text has {len(text):,} letters, and {LONGEST_TEXT:,} is the most: give fewer or shorter values"
        )
    if not text.strip():
        raise BadValues("there are no values: write some, such as 1,2,3 or 1..10")
    items, separator = _split(text, most)
    if "" in items:
        sign = "comma" if separator == "," else separator
        raise BadValues(f'value {items.index("") + 1} is empty: take a {sign} away, or write "" for an empty text')
    if len(items) == 1 and items[0].startswith(FILE):
        return Values(_from_file(items[0], read_lines, most))
    if len(items) == 1 and items[0].startswith(SEEDS):
        return Values((), _count_of_seeds(items[0], most))
    if separator == "|":
        return Values([_token(item) for item in items])
    with localcontext(EXACT):
        return Values(_listed(items, most, is_quick))


def written(tokens: Iterable[Token]) -> str:
    """A text that parses to the same tokens. BadValues if there are none."""
    text = ",".join(_written(token) for token in tokens)
    if not text:
        raise BadValues("there are no values to write")
    return text


def draw_seeds(count: int) -> list[int]:
    """As many different seeds as asked for."""
    return random.Random().sample(range(SEED_LIMIT), count)


def _split(text: str, most: int) -> tuple[list[str], str]:
    """The stripped items between separators, and the separator."""
    closed = CLOSED.match(text)
    if closed and closed.end() < len(text):
        raise BadValues(
            f"the quote at {shortened(text[closed.end() :])} is never closed: close it; for a quote as a letter, put "
            f'the value in quotes and write \\" for the letter'
        )
    outside = QUOTED.sub("", text)
    separator = "|" if "|" in outside else ","
    count = outside.count(separator) + 1
    goes_on = separator == "," and GOES_ON in outside  # then an item is not always a value
    if not goes_on or count > 2 * most:
        _check_count(count, most, "the list", "make it shorter")
    items = text.split(separator) if outside == text else ITEM[separator].findall(text)[:count]
    return [item.strip() for item in items], separator


def _token(item: str) -> Token:
    if item.startswith('"'):
        return Token(_unquoted(item), is_plain=True)
    if item.startswith((FILE, SEEDS)):
        example = "@file.txt" if item.startswith(FILE) else "random:4"
        raise BadValues(f"{shortened(item)} stands among other values: write {example} alone{OR_QUOTED}")
    return Token(item, is_plain=False)


def _unquoted(item: str) -> str:
    quoted = QUOTED.fullmatch(item)
    if quoted is None:
        raise BadValues(
            f"{shortened(item)} goes on after its closing quote: write a comma between two values; for a quote as a "
            f'letter, put the whole value in quotes and write \\" for the letter'
        )
    return quoted[1].replace('\\"', '"').replace("\\\\", "\\")


def _from_file(item: str, read_lines: ReadLines, most: int) -> list[Token]:
    name = item[len(FILE) :].strip()
    name = _unquoted(name) if name.startswith('"') else name
    if not name:
        raise BadValues(f"@ names no file: write @file.txt{OR_QUOTED}")
    shown = shortened(FILE + name)
    try:
        lines = [line for line in read_lines(name) if line.strip()]
    except BadValues:
        raise
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise BadValues(f"{shown} cannot be read: {reason}") from error
    if not lines:
        raise BadValues(f"{shown} has no values: write one on each line")
    _check_count(len(lines), most, shown, "make it shorter")
    return [Token(line.rstrip("\r\n"), is_plain=True) for line in lines]


def _count_of_seeds(item: str, most: int) -> int:
    count = item[len(SEEDS) :].strip()
    if not re.fullmatch(rf"[0-9]{{1,{MOST_DIGITS}}}", count) or int(count) == 0:
        raise BadValues(f"{shortened(item)} does not say how many seeds: write random:4{OR_QUOTED}")
    _check_count(int(count), most, shortened(item), "ask for fewer")
    return int(count)


def _listed(items: Sequence[str], most: int, is_quick: bool) -> list[Token | _Steps]:
    """The parts of a list by commas. Ranges stay unmade."""
    parts: list[Token | _Steps] = []
    count = ranges = 0
    has_to_end = False
    for item in items:
        steps: _Steps | None = None
        if item == GOES_ON:
            if has_to_end or not parts:
                raise BadValues(f".. goes on from nothing: write numbers before it, such as 1,2,..,10{OR_QUOTED}")
            has_to_end = True
            continue
        if has_to_end:
            steps = _going_on(_last_two(parts), item, most)
            has_to_end = False
        elif (GOES_ON in item or "…" in item) and MEANT_AS_RANGE.match(item):
            steps = _range(item, most)
        count += 1 if steps is None else steps.length
        _check_count(count, most, "the list", "make it shorter")
        if steps is None:
            parts.append(_token(item))
            continue
        if steps.length:
            parts.append(steps)
        ranges += 1
        if ranges > MOST_RANGES and is_quick:
            raise BadValues(f"the list has more than {MOST_RANGES:,} ranges: write fewer and longer ones")
    if has_to_end:
        raise BadValues(f".. has no end: write the last number after it, such as 1,2,..,10{OR_QUOTED}")
    return parts


def _last_two(parts: Sequence[Token | _Steps]) -> list[Token]:
    """The last two values of non-empty parts, or the only one."""
    found: list[Token] = []
    for part in parts[-2:]:
        found += part.tokens(last=2) if isinstance(part, _Steps) else [part]
    return found[-2:]


def _range(item: str, most: int) -> _Steps:
    """`1..10:2`"""
    parts = RANGE.fullmatch(item)
    if parts is None and not item.strip(".…"):
        raise BadValues(f"{shortened(item)} has not two dots: write 1,2,..,10{OR_QUOTED}")
    if parts is None:
        raise BadValues(f"{shortened(item)} is no range: write 1..10, or 1..10:2 with a step{OR_QUOTED}")
    start, end, step = _number(parts[1]), _number(parts[2]), _number(parts[3] or "1")
    ends = f"{_digits(start)}..{_digits(end)}"
    finest = max(_decimals(start), _decimals(end))
    smallest = _digits(Decimal(1).scaleb(-finest))
    if parts[3] is None and finest:
        raise BadValues(f"{ends} needs a step: write {ends}:{smallest}")
    shown = f"{ends}:{_digits(step)}" if parts[3] else ends
    if step == 0:
        raise BadValues(f"{shown} has step 0, which leads nowhere: write another, such as {ends}:{smallest}")
    if step < 0 and start < end:
        raise BadValues(f"{shown} goes up and its step down: write {ends}:{_digits(-step)}")
    steps = _stepped(start, end, step)
    _check_count(steps.length, most, shown, "take a larger step or a nearer end")
    return steps


def _going_on(before: Sequence[Token], item: str, most: int) -> _Steps:
    """The numbers after the values before `..`, up to the number after it."""
    shown = ",".join([*map(_written, before), GOES_ON, item])
    for token in [*before, Token(item, is_plain=False)]:
        if token.is_plain or not re.fullmatch(NUMBER, token.text):
            raise BadValues(f"{shortened(shown)} needs numbers before and after its ..: write 1,2,..,10{OR_QUOTED}")
    *earlier, last = (_number(token.text) for token in before)
    end = _number(item)
    if earlier:
        step = last - earlier[0]
        if step == 0:
            raise BadValues(f"{shown} has step 0, which leads nowhere: write two different numbers before the ..")
        if step * (end - last) < 0:
            way = "up" if step > 0 else "down"
            raise BadValues(
                f"{shown} goes {way}, away from {_digits(end)}: write the two numbers before the .. towards it"
            )
    elif _decimals(last) or _decimals(end):
        raise BadValues(f"{shown} needs a step: write two numbers before the .., such as 0.1,0.2,..,0.5")
    else:
        step = Decimal(1)
    steps = _stepped(last, end, step)
    _check_count(steps.length, most, shown, "take a larger step or a nearer end")
    return _Steps(steps.first + steps.step, steps.step, steps.length - 1)


def _stepped(start: Decimal, end: Decimal, step: Decimal) -> _Steps:
    """From start towards end, including the end if a step hits it. Numbers have the decimals of start or step."""
    distance = end - start
    return _Steps(start, abs(step) if distance >= 0 else -abs(step), int(abs(distance) // abs(step)) + 1)


def _number(text: str) -> Decimal:
    if sum(map(str.isdigit, text)) > MOST_DIGITS:
        raise BadValues(f"{shortened(text)} has more than {MOST_DIGITS} digits: write a shorter number")
    return Decimal(text) + 0  # -0 becomes 0


def _digits(number: Decimal) -> str:
    return f"{number:f}"


def _decimals(number: Decimal) -> int:
    return len(_digits(number).partition(".")[2])


def _written(token: Token) -> str:
    text = token.text
    is_bare = (
        text == text.strip() != ""
        and not token.is_plain
        and not text.startswith((FILE, SEEDS))
        and not re.search(r'[",|…]|\.\.', text)
    )
    return text if is_bare else '"' + re.sub(r'(["\\])', r"\\\1", text) + '"'


def _check_count(count: int, most: int, shown: str, remedy: str) -> None:
    if count > most:
        raise BadValues(f"{shown} has {count:,} values, and {most:,} is the most: {remedy}")


def shortened(text: str) -> str:
    """A text for a sentence: quoted, on one line, not too long."""
    return repr(text if len(text) <= LONGEST_SHOWN else text[: LONGEST_SHOWN - 1] + "…")
