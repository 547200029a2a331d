"""The values of one axis of a sweep, as people write them: `1..10:2`, `1,2,..,10`, `a | b`, `"a, b","c"`, `@file.txt`.

The grammar is in docs/values.md. Nothing here knows what a value is for: see value_types. Runs on Python 3.9.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

MOST_VALUES = 1_000_000
LONGEST_TEXT, MOST_RANGES = 100_000, 1_000
"""The most letters, and the most ranges in a list, for a caller that takes fewer values: it never waits long."""
MOST_DIGITS = 40
LONGEST_SHOWN = 60
FILE, SEEDS, GOES_ON = "@", "random:", ".."
OR_QUOTED = "; a text goes in quotes"
BETWEEN = r'[^"\\]*(?:\\.[^"\\]*)*'
QUOTED = re.compile(f'"({BETWEEN})"', re.DOTALL)
CLOSED = re.compile(f'(?:[^"]+|"{BETWEEN}")*', re.DOTALL)
"""All up to a quote that is never closed."""
ITEM = {sign: re.compile(f'((?:[^"{sign}]+|"{BETWEEN}")*)(?:[{sign}]|\\Z)', re.DOTALL) for sign in ",|"}
"""All up to a separator or the end. Where every quote is closed, the first try always fits: it never tries again."""
NUMBER = r"([-+]?[0-9]+(?:\.[0-9]+)?)"
RANGE = re.compile(rf"{NUMBER}\s*\.\.\s*{NUMBER}(?:\s*:\s*{NUMBER})?")
MEANT_AS_RANGE = re.compile(r"[-+.]*[0-9][-+0-9.eE]*\s*\.\.|\.\.+\s*[-+]?[0-9]|\.{3,}$|…$")


class BadValues(ValueError):
    """A text that stands for no values: what is wrong with it, and what to write instead, in one line."""


class Token(NamedTuple):
    """One value as a text. A plain one stood in quotes or in a file: a text, unless its place wants something else."""

    text: str
    is_plain: bool


class _Number(NamedTuple):
    """An exact number: so many units of the last of its decimals."""

    units: int
    decimals: int

    def at(self, decimals: int) -> int:
        """Its units if it had that many decimals, which are not fewer than it has."""
        if decimals == self.decimals:
            return self.units
        factor: int = 10 ** (decimals - self.decimals)
        return self.units * factor

    def __str__(self) -> str:
        return _digits(self.units, self.decimals)


ONE = _Number(1, 0)


class _Steps(NamedTuple):
    """Numbers at equal distances: how many there are is known before the first one is made."""

    first: int
    by: int
    decimals: int
    length: int

    def tokens(self, last: int | None = None) -> list[Token]:
        """All of them as texts, or so many from the end."""
        units = range(self.first, self.first + self.length * self.by, self.by)
        return [Token(_digits(each, self.decimals), is_plain=False) for each in units[-last if last else 0 :]]


class Values:
    """What a text stands for: how many values is known before they are made."""

    def __init__(self, parts: Sequence[Token | _Steps], seeds: int = 0) -> None:
        self._parts = parts
        self._seeds = seeds
        self._length = seeds + sum(part.length if isinstance(part, _Steps) else 1 for part in parts)

    def __len__(self) -> int:
        return self._length

    def tokens(self, draw: Callable[[int], Sequence[int]]) -> list[Token]:
        """The values in order. `draw` gives as many different seeds as it is asked for."""
        if self._seeds:
            return [Token(str(seed), is_plain=False) for seed in draw(self._seeds)]
        found: list[Token] = []
        for part in self._parts:
            if isinstance(part, _Steps):
                found += part.tokens()
            else:
                found.append(part)
        return found


def parse(
    text: str,
    *,
    read_lines: Callable[[str], Sequence[str]],
    draw: Callable[[int], Sequence[int]],
    most: int = MOST_VALUES,
) -> list[Token]:
    """The values that a text stands for, in order: at least one, at most `most`. BadValues if it makes no sense.

    `draw` gives as many different seeds as it is asked for. A caller that takes fewer than MOST_VALUES never waits
    long, whatever the text is: it may have LONGEST_TEXT letters and MOST_RANGES ranges.
    """
    return read(text, read_lines=read_lines, most=most, is_quick=most < MOST_VALUES).tokens(draw)


def read(
    text: str, *, read_lines: Callable[[str], Sequence[str]], most: int = MOST_VALUES, is_quick: bool = False
) -> Values:
    """What a text stands for, counted and not made yet: at least one value, at most `most`. BadValues if it is wrong.

    `read_lines` gives the lines of the file that `@NAME` names; an OSError or ValueError of it becomes BadValues.
    If it `is_quick`, the text may have LONGEST_TEXT letters and MOST_RANGES ranges.
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
    return Values([_token(item) for item in items] if separator == "|" else _listed(items, most, is_quick))


def written(tokens: Iterable[Token]) -> str:
    """A text that parses to tokens of the same texts; BadValues if there are none."""
    text = ",".join(_written(token) for token in tokens)
    if not text:
        raise BadValues("there are no values to write")
    return text


def _split(text: str, most: int) -> tuple[list[str], str]:
    """What stands between separators, without blanks around it; and which separator it is."""
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
    """An item that stands for itself."""
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


def _from_file(item: str, read_lines: Callable[[str], Sequence[str]], most: int) -> list[Token]:
    name = item[len(FILE) :].strip()
    name = _unquoted(name) if name.startswith('"') else name
    if not name:
        raise BadValues(f"@ names no file: write @file.txt{OR_QUOTED}")
    shown = shortened(FILE + name)
    try:
        lines = read_lines(name)
    except BadValues:
        raise
    except OSError as error:
        raise BadValues(f"{shown} cannot be read: {error.strerror or error}") from error
    except ValueError as error:
        raise BadValues(f"{shown} cannot be read: {error}") from error
    count = sum(map(bool, map(str.strip, lines)))
    if not count:
        raise BadValues(f"{shown} has no values: write one on each line")
    _check_count(count, most, shown, "make it shorter")
    return [Token(line.rstrip("\r\n"), is_plain=True) for line in lines if line.strip()]


def _count_of_seeds(item: str, most: int) -> int:
    count = item[len(SEEDS) :].strip()
    if not re.fullmatch(rf"[0-9]{{1,{MOST_DIGITS}}}", count) or int(count) == 0:
        raise BadValues(f"{shortened(item)} does not say how many seeds: write random:4{OR_QUOTED}")
    _check_count(int(count), most, shortened(item), "ask for fewer")
    return int(count)


def _listed(items: Sequence[str], most: int, is_quick: bool) -> list[Token | _Steps]:
    """The parts of a list by commas, with its `..` understood. No range is filled in."""
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
    """The last two values of parts, of which none is empty; one if there are no more."""
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
    start, end = _number(parts[1]), _number(parts[2])
    if parts[3] is None and (start.decimals or end.decimals):
        raise BadValues(f"{start}..{end} needs a step: write {start}..{end}:{_finest(start, end)}")
    step = _number(parts[3]) if parts[3] else ONE
    if step.units == 0:
        raise BadValues(
            f"{start}..{end}:{step} has step 0, which leads nowhere: write another, such as "
            f"{start}..{end}:{_finest(start, end)}"
        )
    if step.units < 0 and _distance(start, end) > 0:
        raise BadValues(
            f"{start}..{end}:{step} goes up and its step down: write "
            f"{start}..{end}:{_Number(-step.units, step.decimals)}"
        )
    steps = _stepped(start, end, step)
    if steps.length > most:
        shown = f"{start}..{end}:{step}" if parts[3] else f"{start}..{end}"
        _check_count(steps.length, most, shown, "take a larger step or a nearer end")
    return steps


def _going_on(before: Sequence[Token], item: str, most: int) -> _Steps:
    """What follows the values before `..` up to the number after it; the last of those before is not repeated."""
    shown = ",".join([*map(_written, before), GOES_ON, item])
    for token in [*before, Token(item, is_plain=False)]:
        if token.is_plain or not re.fullmatch(NUMBER, token.text):
            raise BadValues(f"{shortened(shown)} needs numbers before and after its ..: write 1,2,..,10{OR_QUOTED}")
    *earlier, last = (_number(token.text) for token in before)
    end = _number(item)
    if not earlier:
        if last.decimals or end.decimals:
            raise BadValues(f"{shown} needs a step: write two numbers before the .., such as 0.1,0.2,..,0.5")
        step = ONE
    else:
        decimals = max(last.decimals, earlier[0].decimals)
        step = _Number(last.at(decimals) - earlier[0].at(decimals), decimals)
        if step.units == 0:
            raise BadValues(f"{shown} has step 0, which leads nowhere: write two different numbers before the ..")
        if step.units * _distance(last, end) < 0:
            way = "up" if step.units > 0 else "down"
            raise BadValues(f"{shown} goes {way}, away from {end}: write the two numbers before the .. towards it")
    steps = _stepped(last, end, step)
    _check_count(steps.length, most, shown, "take a larger step or a nearer end")
    return _Steps(steps.first + steps.by, steps.by, steps.decimals, steps.length - 1)


def _stepped(start: _Number, end: _Number, step: _Number) -> _Steps:
    """From start towards end, which is included when it is hit; with the decimals of start or step."""
    decimals = max(start.decimals, step.decimals)
    finest = max(decimals, end.decimals)
    distance = end.at(finest) - start.at(finest)
    by = abs(step.at(decimals)) if distance >= 0 else -abs(step.at(decimals))
    return _Steps(start.at(decimals), by, decimals, abs(distance) // abs(step.at(finest)) + 1)


def _finest(start: _Number, end: _Number) -> _Number:
    """One unit of the last decimal of either."""
    return _Number(1, max(start.decimals, end.decimals))


def _distance(start: _Number, end: _Number) -> int:
    decimals = max(start.decimals, end.decimals)
    return end.at(decimals) - start.at(decimals)


def _number(text: str) -> _Number:
    if len(text) <= MOST_DIGITS and "." not in text:
        return _Number(int(text), 0)
    whole, _, fraction = text.partition(".")
    if len(whole.lstrip("+-")) + len(fraction) > MOST_DIGITS:
        raise BadValues(f"{shortened(text)} has more than {MOST_DIGITS} digits: write a shorter number")
    return _Number(int(whole + fraction), len(fraction))


def _digits(units: int, decimals: int) -> str:
    if not decimals:
        return str(units)
    digits = str(abs(units)).rjust(decimals + 1, "0")
    return f"{'-' if units < 0 else ''}{digits[:-decimals]}.{digits[-decimals:]}"


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
    """A text to be shown within a sentence: quoted, on one line, not too long."""
    return repr(text if len(text) <= LONGEST_SHOWN else text[: LONGEST_SHOWN - 1] + "…")
