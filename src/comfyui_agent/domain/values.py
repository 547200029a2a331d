"""The values of one axis of a sweep, as people write them: `1..10:2`, `1,2,..,10`, `a | b`, `"a, b","c"`, `@file.txt`.

The grammar is in docs/values.md. Nothing here knows what a value is for: see value_types. Runs on Python 3.9.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

MOST_VALUES = 1_000_000
MOST_DIGITS = 40
LONGEST_SHOWN = 60
FILE, SEEDS, GOES_ON = "@", "random:", ".."
OR_QUOTED = "; a text goes in quotes"
MARK = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[",|]', re.DOTALL)
"""All between two quotes, a quote that is never closed, or a separator."""
QUOTED = re.compile(r'"([^"\\]*(?:\\.[^"\\]*)*)"', re.DOTALL)
ESCAPED = re.compile(r'\\(["\\])')
NUMBER = r"([-+]?[0-9]+(?:\.[0-9]+)?)"
RANGE = re.compile(rf"{NUMBER}\s*\.\.\s*{NUMBER}(?:\s*:\s*{NUMBER})?")
MEANT_AS_RANGE = re.compile(r"[-+.]*[0-9][-+0-9.eE]*\s*\.\.|\.\.+\s*[-+]?[0-9]|\.{3,}$|…$")


class BadValues(ValueError):
    """A text that stands for no values: what is wrong with it, and what to write instead, in one line."""


@dataclass(frozen=True)
class Token:
    """One value as a text. A plain one stood in quotes or in a file: a text, unless its place wants something else."""

    text: str
    is_plain: bool


@dataclass(frozen=True)
class _Number:
    """An exact number: so many units of the last of its decimals."""

    units: int
    decimals: int

    def at(self, decimals: int) -> int:
        """Its units if it had that many decimals, which are not fewer than it has."""
        factor: int = 10 ** (decimals - self.decimals)
        return self.units * factor

    def __str__(self) -> str:
        return _digits(self.units, self.decimals)


def parse(
    text: str,
    *,
    read_lines: Callable[[str], Sequence[str]],
    draw: Callable[[int], Sequence[int]],
) -> list[Token]:
    """The values that a text stands for, in order: at least one, at most MOST_VALUES. BadValues if it makes no sense.

    `read_lines` gives the lines of the file that `@NAME` names; an OSError or ValueError of it becomes BadValues.
    `draw` gives as many different seeds as it is asked for.
    """
    if not text.strip():
        raise BadValues("there are no values: write some, such as 1,2,3 or 1..10")
    items, separator = _split(text)
    for number, item in enumerate(items, start=1):
        if not item:
            sign = "comma" if separator == "," else separator
            raise BadValues(f'value {number} is empty: take a {sign} away, or write "" for an empty text')
    if len(items) == 1 and items[0].startswith(FILE):
        return _from_file(items[0], read_lines)
    if len(items) == 1 and items[0].startswith(SEEDS):
        return [Token(str(seed), is_plain=False) for seed in draw(_count_of_seeds(items[0]))]
    return [_token(item) for item in items] if separator == "|" else _listed(items)


def written(tokens: Iterable[Token]) -> str:
    """A text that parses to tokens of the same texts; BadValues if there are none."""
    text = ",".join(_written(token) for token in tokens)
    if not text:
        raise BadValues("there are no values to write")
    return text


def _split(text: str) -> tuple[list[str], str]:
    """What stands between separators, without blanks around it; and which separator it is."""
    cuts: dict[str, list[int]] = {",": [], "|": []}
    for mark in MARK.finditer(text):
        if mark[0] == '"':
            rest = shortened(text[mark.start() :])
            raise BadValues(
                f"the quote at {rest} is never closed: close it; for a quote as a letter, put the value in quotes and "
                f'write \\" for the letter'
            )
        if len(mark[0]) == 1:
            cuts[mark[0]].append(mark.start())
    separator = "|" if cuts["|"] else ","
    _check_count(len(cuts[separator]) + 1, "the list", "make it shorter")
    items, start = [], 0
    for end in [*cuts[separator], len(text)]:
        items.append(text[start:end].strip())
        start = end + 1
    return items, separator


def _token(item: str) -> Token:
    """An item that stands for itself."""
    if item.startswith('"'):
        return Token(_unquoted(item), is_plain=True)
    for sign, example in ((FILE, "@file.txt"), (SEEDS, "random:4")):
        if item.startswith(sign):
            raise BadValues(f"{shortened(item)} stands among other values: write {example} alone{OR_QUOTED}")
    return Token(item, is_plain=False)


def _unquoted(item: str) -> str:
    quoted = QUOTED.fullmatch(item)
    if quoted is None:
        raise BadValues(
            f"{shortened(item)} goes on after its closing quote: write a comma between two values; for a quote as a "
            f'letter, put the whole value in quotes and write \\" for the letter'
        )
    return ESCAPED.sub(r"\1", quoted[1])


def _from_file(item: str, read_lines: Callable[[str], Sequence[str]]) -> list[Token]:
    name = item[len(FILE) :].strip()
    name = _unquoted(name) if name.startswith('"') else name
    if not name:
        raise BadValues(f"@ names no file: write @file.txt{OR_QUOTED}")
    shown = shortened(FILE + name)
    try:
        lines = [line.rstrip("\r\n") for line in read_lines(name) if line.strip()]
    except BadValues:
        raise
    except OSError as error:
        raise BadValues(f"{shown} cannot be read: {error.strerror or error}") from error
    except ValueError as error:
        raise BadValues(f"{shown} cannot be read: {error}") from error
    if not lines:
        raise BadValues(f"{shown} has no values: write one on each line")
    _check_count(len(lines), shown, "make it shorter")
    return [Token(line, is_plain=True) for line in lines]


def _count_of_seeds(item: str) -> int:
    count = item[len(SEEDS) :].strip()
    if not re.fullmatch(rf"[0-9]{{1,{MOST_DIGITS}}}", count) or int(count) == 0:
        raise BadValues(f"{shortened(item)} does not say how many seeds: write random:4{OR_QUOTED}")
    _check_count(int(count), shortened(item), "ask for fewer")
    return int(count)


def _listed(items: Sequence[str]) -> list[Token]:
    """The tokens of a list by commas, with its ranges and `..` filled in."""
    tokens: list[Token] = []
    has_to_end = False
    for item in items:
        if item == GOES_ON:
            if has_to_end or not tokens:
                raise BadValues(f".. goes on from nothing: write numbers before it, such as 1,2,..,10{OR_QUOTED}")
            has_to_end = True
        elif has_to_end:
            tokens += [Token(each, is_plain=False) for each in _going_on(tokens[-2:], item)]
            has_to_end = False
        elif MEANT_AS_RANGE.match(item):
            tokens += [Token(each, is_plain=False) for each in _range(item)]
        else:
            tokens.append(_token(item))
        _check_count(len(tokens), "the list", "make it shorter")
    if has_to_end:
        raise BadValues(f".. has no end: write the last number after it, such as 1,2,..,10{OR_QUOTED}")
    return tokens


def _range(item: str) -> Iterator[str]:
    """`1..10:2`"""
    parts = RANGE.fullmatch(item)
    if parts is None and not item.strip(".…"):
        raise BadValues(f"{shortened(item)} has not two dots: write 1,2,..,10{OR_QUOTED}")
    if parts is None:
        raise BadValues(f"{shortened(item)} is no range: write 1..10, or 1..10:2 with a step{OR_QUOTED}")
    start, end = _number(parts[1]), _number(parts[2])
    finest = _Number(1, max(start.decimals, end.decimals))
    if parts[3] is None and finest.decimals:
        raise BadValues(f"{start}..{end} needs a step: write {start}..{end}:{finest}")
    step = _number(parts[3]) if parts[3] else finest
    shown = f"{start}..{end}:{step}" if parts[3] else f"{start}..{end}"
    if step.units == 0:
        raise BadValues(f"{shown} has step 0, which leads nowhere: write another, such as {start}..{end}:{finest}")
    if step.units < 0 and _distance(start, end) > 0:
        raise BadValues(
            f"{shown} goes up and its step down: write {start}..{end}:{_Number(-step.units, step.decimals)}"
        )
    return _stepped(start, end, step, shown)


def _going_on(before: Sequence[Token], item: str) -> Iterator[str]:
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
        step = _Number(1, 0)
    else:
        decimals = max(last.decimals, earlier[0].decimals)
        step = _Number(last.at(decimals) - earlier[0].at(decimals), decimals)
        if step.units == 0:
            raise BadValues(f"{shown} has step 0, which leads nowhere: write two different numbers before the ..")
        if step.units * _distance(last, end) < 0:
            way = "up" if step.units > 0 else "down"
            raise BadValues(f"{shown} goes {way}, away from {end}: write the two numbers before the .. towards it")
    values = _stepped(last, end, step, shown)
    next(values)
    return values


def _stepped(start: _Number, end: _Number, step: _Number, shown: str) -> Iterator[str]:
    """From start towards end, which is included when it is hit; with the decimals of start or step."""
    finest = max(start.decimals, end.decimals, step.decimals)
    count = abs(end.at(finest) - start.at(finest)) // abs(step.at(finest)) + 1
    _check_count(count, shown, "take a larger step or a nearer end")
    decimals = max(start.decimals, step.decimals)
    first, by = start.at(decimals), abs(step.at(decimals))
    by = by if _distance(start, end) >= 0 else -by
    return (_digits(first + index * by, decimals) for index in range(count))


def _distance(start: _Number, end: _Number) -> int:
    decimals = max(start.decimals, end.decimals)
    return end.at(decimals) - start.at(decimals)


def _number(text: str) -> _Number:
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


def _check_count(count: int, shown: str, remedy: str) -> None:
    if count > MOST_VALUES:
        raise BadValues(f"{shown} has {count:,} values, and {MOST_VALUES:,} is the most: {remedy}")


def shortened(text: str) -> str:
    """A text to be shown within a sentence: quoted, on one line, not too long."""
    return repr(text if len(text) <= LONGEST_SHOWN else text[: LONGEST_SHOWN - 1] + "…")
