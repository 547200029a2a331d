"""A text of values stands for what docs/values.md says, or is refused in one line; whatever it is, at once."""

from __future__ import annotations

import ast
import re
import sys
import time
from collections.abc import Callable, Sequence
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from comfyui_agent.domain.values import (
    LONGEST_TEXT,
    MOST_DIGITS,
    MOST_RANGES,
    MOST_VALUES,
    BadValues,
    Token,
    draw_seeds,
    parse,
    read,
    shortened,
    written,
)

ROOT = Path(__file__).parents[3]
FILES: dict[str, list[str]] = {
    "prompts.txt": ["a fox, red\n", "\n", "   \r\n", "  1..3\r\n", "true"],
    "a, b.txt": ["x"],
    'a"b.txt': ["y"],
    "empty.txt": ["", " \n"],
    "million.txt": ["x"] * (MOST_VALUES + 1),
    "five.txt": ["a", "\n", "b", "c", "d", "e"],
}
LONGEST_ERROR = 300


def read_lines(name: str) -> Sequence[str]:
    if name not in FILES:
        raise FileNotFoundError(2, "No such file or directory", name)
    return FILES[name]


def draw(count: int) -> Sequence[int]:
    return range(100, 100 + count)


def tokens_of(text: str) -> list[Token]:
    return parse(text, read_lines=read_lines, draw=draw)


def values_of(text: str) -> list[str]:
    return [token.text for token in tokens_of(text)]


def error_of(text: str) -> str:
    with pytest.raises(BadValues) as caught:
        pytest.fail(f"{text!r} gives {tokens_of(text)}")
    return str(caught.value)


def complaint(text: str) -> str:
    """What is wrong with a text; empty if it has values."""
    try:
        assert tokens_of(text)
    except BadValues as error:
        return str(error)
    return ""


def table(heading: str) -> list[list[str]]:
    """The rows of the table under this heading, as a reader sees them; code keeps its ticks."""
    lines = (ROOT / "docs/values.md").read_text(encoding="utf-8").splitlines()
    start = lines.index(heading) + 2
    end = next(number for number in range(start, len(lines)) if not lines[number].startswith("|"))
    return [
        [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines[start:end]
    ]


def spans(cell: str) -> list[str]:
    return re.findall("`([^`]*)`", cell)


EXAMPLES = [(spans(text)[0], spans(values)) for text, values in table("| written | values |") if spans(values)]
ERRORS = [(spans(text)[0], error.replace("\\\\", "\\")) for text, error in table("| written | error |")]


def test_every_example_of_the_page_holds() -> None:
    for text, values in EXAMPLES:
        assert values_of(text) == values, text


def test_every_error_of_the_page_is_said_so() -> None:
    for text, error in ERRORS:
        assert error_of(text) == error, text


def test_the_page_has_examples_and_errors() -> None:
    assert len(EXAMPLES) > 20
    assert len(ERRORS) > 25


# Lists


def test_a_list_is_cut_at_its_separators_and_nowhere_else() -> None:
    cases = [
        (" 1 ,\t2\n, 3 ", ["1", "2", "3"]),
        ('" a "," b"', [" a ", " b"]),
        ('""', [""]),
        ('"",1', ["", "1"]),
        ('"a | b",c', ["a | b", "c"]),
        ('"a | b" | c, d', ["a | b", "c, d"]),
        ("007", ["007"]),
        ("16:9, 4:3", ["16:9", "4:3"]),
        ("1e5", ["1e5"]),
        ("9" * 100, ["9" * 100]),
        ("1..3 | 7", ["1..3", "7"]),
        (".. | ...", ["..", "..."]),
        ("a..z, ../x, wait..., x..5", ["a..z", "../x", "wait...", "x..5"]),
        ('".."', [".."]),
        ("a@b, c random:4", ["a@b", "c random:4"]),
        ('say "a, b", c', ['say "a, b"', "c"]),
        ('say "a | b" | c', ['say "a | b"', "c"]),
        (r'"\(a\) \n \\ \""', [r"\(a\) \n \ " + '"']),
        (r"C:\a, \\b", [r"C:\a", r"\\b"]),
        ("日本, 🦊", ["日本", "🦊"]),
    ]
    for text, values in cases:
        assert values_of(text) == values, text


WRONG = {
    "goes on after its closing quote": ['"a" "b"', '"a","b" | c', '"a"b', '""""', '@"a".txt'],
    "is empty": ["1,", ",1", ",", "1, ,2", "|", "a|", "|a", '"a",', "1..3,"],
    "needs a step: write two numbers before the ..": ["0.5,..,3", "1,..,2.5"],
    "goes up and its step down": ["1..2:-1"],
    "goes up, away": ["1,2,..,0"],
    "goes down, away": ["2,1,..,3"],
    "needs numbers before and after": [
        *('"1",2,..,5', '1,"2",..,5', '1,2,..,"5"', "1,2,..,x", "1,2,..,4..6", "true,2,..,5"),
    ],
    "is no range": ["1..", "1..x", "1..2:", "1..2:x", "1..2:3:4", "1...5", "..5", "..0", ".1..5:1", "1e1..9"],
    "has not two dots": ["...", "1,2,...,9", "1,2,…,9", "1,2,....,9"],
    "does not say how many seeds": [
        *("random:", "random:0", "random:-1", "random:1.5", "random:1..4", f"random:{'9' * 5000}"),
    ],
}


def test_every_mistake_is_named() -> None:
    for message, texts in WRONG.items():
        for text in texts:
            assert message in error_of(text), text


def test_quotes_make_a_token_plain_and_nothing_else_in_a_list_does() -> None:
    assert tokens_of('1,"1",true,2..3') == [
        Token("1", is_plain=False),
        Token("1", is_plain=True),
        Token("true", is_plain=False),
        Token("2", is_plain=False),
        Token("3", is_plain=False),
    ]
    assert tokens_of('a | "b"') == [Token("a", is_plain=False), Token("b", is_plain=True)]


# Ranges

DECIMALS = st.builds(
    lambda units, places: f"{Decimal(units).scaleb(-places):f}", st.integers(-300, 300), st.integers(1, 3)
)
WHOLES = st.integers(-60, 60).map(str)
NUMBERS = st.one_of(WHOLES, DECIMALS)


def decimals_of(text: str) -> int:
    return len(text.partition(".")[2])


def walked(start: Fraction, end: Fraction, step: Fraction) -> list[Fraction]:
    """By adding, which is exact with fractions."""
    found = []
    while (start <= end) if step > 0 else (start >= end):
        found.append(start)
        start += step
    return found


@given(NUMBERS, NUMBERS, NUMBERS.filter(lambda text: abs(Fraction(text)) >= Fraction(1, 20)))
@example("0.1", "0.5", "0.1")
@example("-0.1", "0.1", "0.1")
@example("3", "3", "-1")
def test_a_range_is_exact(start: str, end: str, step: str) -> None:
    first, last, size = Fraction(start), Fraction(end), Fraction(step)
    if size < 0 and last > first:
        assert "goes up and its step down" in error_of(f"{start}..{end}:{step}")
        return
    found = values_of(f"{start} .. {end} : {step}")
    assert [Fraction(value) for value in found] == walked(first, last, abs(size) if last >= first else -abs(size))
    assert {decimals_of(value) for value in found} == {max(decimals_of(start), decimals_of(step))}
    assert all(re.fullmatch(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?", value) for value in found)
    assert not any(re.fullmatch(r"-0(\.0+)?", value) for value in found)


@given(st.integers(-60, 60), st.integers(-60, 60))
def test_the_step_between_whole_numbers_is_one(start: int, end: int) -> None:
    by = 1 if end >= start else -1
    assert values_of(f"{start}..{end}") == [str(number) for number in range(start, end + by, by)]
    assert values_of(f"{start},..,{end}") == values_of(f"{start}..{end}")


@given(NUMBERS, NUMBERS, NUMBERS)
@example("0.1", "0.2", "0.5")
@example("1", "2", "2")
def test_two_numbers_before_the_dots_give_the_step(first: str, second: str, end: str) -> None:
    step = Fraction(second) - Fraction(first)
    text = f"9,{first},{second},..,{end},x"
    if step == 0:
        assert "has step 0" in error_of(text)
    elif (Fraction(end) - Fraction(second)) * step < 0:
        assert "away from" in error_of(text)
    elif abs(step) >= Fraction(1, 20):
        found = values_of(text)
        assert found[:3] == ["9", first, second]
        assert found[-1] == "x"
        assert [Fraction(value) for value in found[2:-1]] == walked(Fraction(second), Fraction(end), step)


def test_a_range_between_decimals_needs_a_step() -> None:
    for text, instead in (("1..2.5", "1..2.5:0.1"), ("0.25..3", "0.25..3:0.01"), ("1.0..3.0", "1.0..3.0:0.1")):
        assert error_of(text) == f"{text} needs a step: write {instead}"
        assert values_of(instead)


def test_dots_go_on_from_what_a_range_or_other_dots_left() -> None:
    assert values_of("1..2,..,4,..,6") == ["1", "2", "3", "4", "5", "6"]


def test_numbers_of_forty_digits_are_exact() -> None:
    low = "1" + "0" * (MOST_DIGITS - 1)
    assert values_of(f"{low}..{int(low) + 2}") == [low, str(int(low) + 1), str(int(low) + 2)]
    tiny = "0." + "0" * (MOST_DIGITS - 2) + "1"
    assert values_of(f"0..{tiny}:{tiny}") == ["0." + "0" * (MOST_DIGITS - 1), tiny]
    near = "1" + tiny[1:]
    assert values_of(f"{near}..1:{tiny}") == [near, near[:-1] + "0"]
    assert "more than 40 digits" in error_of(f"{low}0..{low}1")
    assert "more than 40 digits" in error_of(f"1..5:{tiny}1")
    assert "more than 40 digits" in error_of(f"1,{low}0,..,{low}1")


# How many


@pytest.mark.slow
def test_as_many_values_as_there_may_be_and_not_one_more() -> None:
    assert len(tokens_of(f"1..{MOST_VALUES}")) == MOST_VALUES
    for text in (f"0..{MOST_VALUES}", f"0,..,{MOST_VALUES}", f"x,1..{MOST_VALUES}", "1," * MOST_VALUES + "1"):
        assert f"has {MOST_VALUES + 1:,} values" in error_of(text)


def test_a_range_that_is_far_too_large_is_not_built() -> None:
    started = time.thread_time()
    for text in (f"0..{'9' * 40}", f"0..1:0.{'0' * 38}1", f"0,0.{'0' * 38}1,..,{'9' * 40}", f"-{'9' * 40}..{'9' * 40}"):
        assert "is the most" in error_of(text)
    assert time.thread_time() - started < 1


# A caller that takes fewer

FEW = 10_000
READING_SECONDS = 0.25
"""Far above the some 25 ms that it takes: other work on the machine is no error."""


def few_of(text: str, most: int = FEW) -> list[Token] | str:
    """The values, or what is wrong."""
    try:
        return parse(text, read_lines=read_lines, draw=draw_seeds, most=most)
    except BadValues as error:
        return str(error)


def test_a_caller_says_how_many_values_it_takes() -> None:
    cases = [
        ("1..4", "1..5", "1..5 has 5 values, and 4 is the most: take a larger step or a nearer end"),
        ("1,2,..,4", "1,2,..,6", "1,2,..,6 has 5 values, and 4 is the most: take a larger step or a nearer end"),
        ("1,2,..,4", "1,2,..,5", "the list has 5 values, and 4 is the most: make it shorter"),
        ("1,..,1,..,4", "1,..,1,..,4,5", "the list has 5 values, and 4 is the most: make it shorter"),
        ("1..2,1..2", "1..3,1..2", "the list has 5 values, and 4 is the most: make it shorter"),
        ("1..2,..,4", "1..2,..,5", "the list has 5 values, and 4 is the most: make it shorter"),
        ("a,b,c,d", "a,b,c,d,e", "the list has 5 values, and 4 is the most: make it shorter"),
        ('"a,b","c",d,e', '"a,b","c",d,e,f', "the list has 5 values, and 4 is the most: make it shorter"),
        ("a|b|c|1..2", "a|b|c|1..2|e", "the list has 5 values, and 4 is the most: make it shorter"),
        ("random:4", "random:5", "'random:5' has 5 values, and 4 is the most: ask for fewer"),
        ("@prompts.txt", "@five.txt", "'@five.txt' has 5 values, and 4 is the most: make it shorter"),
    ]
    for fits, too_many, message in cases:
        assert len(few_of(fits, 4)) in (3, 4)
        assert few_of(too_many, 4) == message
        assert len(tokens_of(too_many)) == 5 + (too_many == "1,2,..,6")


def test_what_is_too_much_is_refused_before_it_is_made() -> None:
    def refuse(count: int) -> Sequence[int]:
        raise AssertionError(f"{count} seeds were drawn")

    million = "1..1000000"
    for text in (million, f"1,{million}", "1,2,..,1000000", "random:1000000", f"1..9999,{million}"):
        started = time.thread_time()
        with pytest.raises(BadValues, match="10,000 is the most"):
            parse(text, read_lines=read_lines, draw=refuse, most=FEW)
        assert time.thread_time() - started < READING_SECONDS


HOSTILE = {
    "commas": "," * LONGEST_TEXT,
    "bars": "|" * LONGEST_TEXT,
    "commas and a bar": "," * (LONGEST_TEXT - 1) + "|",
    "a bar in quotes": '"|"' + "," * (LONGEST_TEXT - 3),
    "quotes": '"' * LONGEST_TEXT,
    "quotes, one of them open": '"' * (LONGEST_TEXT - 1),
    "quotes in a value": "say " + '""' * (LONGEST_TEXT // 2 - 2),
    "escaped quotes": '"' + '\\"' * (LONGEST_TEXT // 2 - 1) + '"',
    "escaped quotes, open": '"' + '\\"' * (LONGEST_TEXT // 2 - 1),
    "backslashes": '"' + "\\" * (LONGEST_TEXT - 2) + '"',
    "empty texts": '"",' * (FEW - 1) + '""',
    "short values": "12345678," * (FEW - 1) + "1",
    "a range": f"1..{FEW}",
    "ranges": "1 .. 1," * (FEW - 1) + "1",
    "going on": "1" + ",..,1" * (LONGEST_TEXT // 5 - 1),
    "texts with dots": "a..b," * (FEW - 1) + "a",
    "decimals": "0.0001..1:0.0001",
    "seeds": f"random:{FEW}",
    "digits": "1" * LONGEST_TEXT,
    "dots": "." * LONGEST_TEXT,
    "blanks": "1" + " " * (LONGEST_TEXT - 4) + "..x",
    "too long": "," * (100 * LONGEST_TEXT),
}


def test_a_caller_that_takes_fewer_never_waits_long() -> None:
    for case, text in HOSTILE.items():
        took = []
        for _ in range(3):  # whatever else lives in the process may be collected meanwhile
            started = time.thread_time()
            found = few_of(text)
            took.append(time.thread_time() - started)
        assert min(took) < READING_SECONDS, case
        assert 0 < len(found) < LONGEST_ERROR if isinstance(found, str) else 0 < len(found) <= FEW, case


def test_a_text_may_be_long_and_not_longer() -> None:
    assert few_of("x" * LONGEST_TEXT) == [Token("x" * LONGEST_TEXT, is_plain=False)]
    says = "the text has 100,001 letters, and 100,000 is the most: give fewer or shorter values"
    assert few_of("x" * (LONGEST_TEXT + 1)) == says
    assert len(values_of("x" * (LONGEST_TEXT + 1))) == 1


def test_a_list_may_have_many_ranges_and_not_one_more() -> None:
    ranges = ",".join(["1..2"] * MOST_RANGES)
    assert len(few_of(ranges)) == 2 * MOST_RANGES
    assert few_of(ranges + ",..,3") == "the list has more than 1,000 ranges: write fewer and longer ones"
    assert len(values_of(ranges + ",..,3")) == 2 * MOST_RANGES + 1


# Files and seeds


def test_lines_of_a_file_are_plain_texts() -> None:
    assert tokens_of(" @ prompts.txt ") == [
        Token("a fox, red", is_plain=True),
        Token("  1..3", is_plain=True),
        Token("true", is_plain=True),
    ]


def test_the_name_of_a_file_may_stand_in_quotes() -> None:
    assert values_of('@"a, b.txt"') == ["x"]
    assert values_of(r'@"a\"b.txt"') == ["y"]


def test_the_reason_why_a_file_cannot_be_read_is_named() -> None:
    def refusing(error: Exception) -> Callable[[str], Sequence[str]]:
        def refuse(name: str) -> Sequence[str]:
            raise error

        return refuse

    for error, message in (
        (PermissionError(13, "Permission denied"), "'@x' cannot be read: Permission denied"),
        (OSError("no such drive"), "'@x' cannot be read: no such drive"),
        (ValueError("embedded null byte"), "'@x' cannot be read: embedded null byte"),
        (BadValues("lies outside the workspace"), "lies outside the workspace"),
    ):
        with pytest.raises(BadValues) as caught:
            parse("@x", read_lines=refusing(error), draw=draw)
        assert str(caught.value) == message


def test_seeds_are_drawn_once_and_are_numbers() -> None:
    asked: list[int] = []

    def dice(count: int) -> Sequence[int]:
        asked.append(count)
        return [7, 5, 2**64 - 1]

    assert parse("random: 3", read_lines=read_lines, draw=dice) == [
        Token("7", is_plain=False),
        Token("5", is_plain=False),
        Token("18446744073709551615", is_plain=False),
    ]
    assert asked == [3]


def test_files_and_seeds_stand_alone_unless_they_are_quoted() -> None:
    for text in ("@prompts.txt | b", "b | random:4", "random:4,random:4", "@prompts.txt,@prompts.txt"):
        assert "stands among other values" in error_of(text)
        quoted = ", ".join(f'"{part.strip()}"' for part in re.split("[,|]", text))
        assert values_of(quoted) == [part.strip() for part in re.split("[,|]", text)]


# Writing

CROOKED = st.text(alphabet='"\\,|.@:random0123456789-+ \n…aé🦊\ud800\u2028', max_size=12)
TOKENS = st.lists(
    st.builds(Token, st.one_of(st.text(max_size=12), CROOKED, NUMBERS), is_plain=st.booleans()), min_size=1, max_size=6
)


@given(TOKENS)
@example([Token("@a", is_plain=False)])
@example([Token("random:4", is_plain=False)])
@example([Token("..", is_plain=False)])
@example([Token("…", is_plain=False)])
@example([Token("", is_plain=False)])
@example([Token("a | b, c", is_plain=False)])
def test_what_is_written_parses_to_the_same_texts(tokens: list[Token]) -> None:
    again = tokens_of(written(tokens))
    assert [token.text for token in again] == [token.text for token in tokens]
    assert all(now.is_plain for now, before in zip(again, tokens, strict=True) if before.is_plain)


def test_simple_values_are_written_as_people_write_them() -> None:
    assert written(tokens_of("1..3, euler, 0.5")) == "1,2,3,euler,0.5"
    assert written(tokens_of('"1", a, "b\\"c"')) == '"1",a,"b\\"c"'
    assert written(tokens_of("a, b | c")) == '"a, b",c'


def test_no_values_cannot_be_written() -> None:
    with pytest.raises(BadValues):
        written([])


# Anything


@given(st.one_of(st.text(), CROOKED, st.text(alphabet='1.,"|:\\-', max_size=30)))
@settings(max_examples=400)
def test_whatever_is_written_is_values_or_refused_in_one_line(text: str) -> None:
    message = complaint(text)
    assert message.isprintable()
    assert len(message) < LONGEST_ERROR


def test_nothing_takes_long() -> None:
    texts = [
        '"' + '\\"' * 500_000,
        '"' * 999_999,
        '""' * 500_000,
        "|" * 999_999,
        "1" * 1_000_000,
        "1" * 500_000 + ".." + "2" * 500_000,
        "." * 1_000_000,
        "1" + " " * 1_000_000 + "..x",
        "1" + " " * 500_000 + ".." + " " * 500_000 + "3" + " " * 500_000 + ":0",
        "1." * 500_000,
        "1e" * 500_000 + "..",
        "-" * 1_000_000 + "1..",
        "." * 1_000_000 + "1..",
        ".." + " " * 1_000_000 + "x",
        "1,2,..," + "9" * 1_000_000,
        "9" * 1_000_000 + ",..,5",
        "random:" + "9" * 1_000_000,
        "@" + "x" * 1_000_000,
        "a" * 1_000_000 + ",..,5",
        " " * 1_000_000,
    ]
    for text in texts:
        started = time.thread_time()
        assert len(complaint(text)) < LONGEST_ERROR, text[:20]
        assert time.thread_time() - started < 5, text[:20]


def test_a_long_text_is_shortened_to_be_shown() -> None:
    assert shortened("x" * 60) == repr("x" * 60)
    assert shortened("x" * 61) == repr("x" * 59 + "…")


# Where it runs

PORTABLE = (
    "domain.batches",
    "domain.combinations",
    "domain.grid_layout",
    "domain.node_classes",
    "domain.prompts",
    "domain.texts",
    "domain.value_types",
    "domain.values",
    "pictures.grid",
    "pictures.grid_drawing",
    "pictures.grid_sources",
    "pictures.labels",
)


@pytest.mark.parametrize("name", PORTABLE)
def test_it_runs_inside_comfyui(name: str) -> None:
    """On Python 3.9, with nothing but the standard library, Pillow and the others that are copied along."""
    source = (ROOT / f"src/comfyui_agent/{name.replace('.', '/')}.py").read_text(encoding="utf-8")
    tree = ast.parse(source, feature_version=(3, 9))
    assert "from __future__ import annotations" in source
    imported = {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    imported |= {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    along = {f"comfyui_agent.{other}" for other in PORTABLE} | ({"PIL"} if name.startswith("pictures.") else set())
    assert {module for module in imported - along if module.partition(".")[0] not in sys.stdlib_module_names} == set()
    keywords = {word.arg for node in ast.walk(tree) if isinstance(node, ast.Call) for word in node.keywords}
    assert not keywords & {"strict", "slots", "kw_only"}
    when_imported = [part for part in tree.body if not isinstance(part, (ast.FunctionDef, ast.ClassDef, ast.If))]
    assert not [node for part in when_imported for node in ast.walk(part) if isinstance(node, ast.BitOr)]


def test_values_are_counted_without_being_made(monkeypatch: pytest.MonkeyPatch) -> None:
    for text in ("1..9:2", "1,3,..,9,x", "a | b", "random:4", "@prompts.txt", '"a, b",c', "1..2,..,5"):
        found = read(text, read_lines=read_lines)
        assert len(found) == len(found.tokens(range)), text
    monkeypatch.setattr("comfyui_agent.domain.values.Token", lambda *_: pytest.fail("a value was made"))
    assert len(read("1..1000000", read_lines=read_lines)) == 1_000_000


def test_a_list_that_goes_on_has_no_more_items_than_it_could_have_values() -> None:
    with pytest.raises(BadValues, match="the list has 4,000,002 values"):
        read("," * 4_000_000 + "..,1", read_lines=list, most=100)
