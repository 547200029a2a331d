"""The values of a parameter: in every type, and from files of ComfyUI's input folder only."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from comfyui_agent.domain.value_types import Kind
from comfyui_agent.domain.values import LONGEST_TEXT, BadValues
from comfyui_agent.nodes.core.parameter_parser import KINDS, LARGEST_FILE, MOST_MEMBERS, TYPES, NoSuchFile, parse

LONGEST_ERROR = 400
PATIENCE_SECONDS = 5.0
OUTSIDE = "is not in ComfyUI's input folder: put the file there"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """ComfyUI's input folder, with a secret beside it."""
    (tmp_path / "secret.txt").write_text("secret\n", encoding="utf-8")
    place = tmp_path / "input"
    (place / "deep").mkdir(parents=True)
    return place


def exactly(values: list[Any]) -> list[tuple[type, Any]]:
    """1, 1.0 and True are equal: their types tell them apart."""
    return [(type(value), value) for value in values]


def error_of(raw: Any, type_: str = "AUTO", folder: Path | None = None) -> str:
    with pytest.raises(ValueError) as caught:
        pytest.fail(f"{raw!r} as {type_} gives {parse(raw, type_, folder)}")
    message = str(caught.value)
    assert len(message) <= LONGEST_ERROR
    assert "\n" not in message
    return message


def in_time(call: Callable[[], Any]) -> Any:
    """What a call gives. It must come back by itself, whatever the file is."""
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(call()), daemon=True)
    thread.start()
    thread.join(PATIENCE_SECONDS)
    assert found, "it does not come back"
    return found[0]


def test_values_have_the_type() -> None:
    cases: list[tuple[Any, str, list[Any]]] = [
        ("1..10:2", "INT", [1, 3, 5, 7, 9]),
        ("1,2,..,5", "INT", [1, 2, 3, 4, 5]),
        ("1|2|3", "INT", [1, 2, 3]),
        (" 1 ,\n2\n", "INT", [1, 2]),
        ("2.0,3.", "INT", [2, 3]),
        ("0.5,1.0,..,2.0", "FLOAT", [0.5, 1.0, 1.5, 2.0]),
        ("1,2.5", "STRING", ["1", "2.5"]),
        ("a cat | a dog, sitting", "STRING", ["a cat", "a dog, sitting"]),
        ('"a, b","c"', "STRING", ["a, b", "c"]),
        ('"@file.txt",b', "STRING", ["@file.txt", "b"]),
        ("true,No,ON,off", "BOOLEAN", [True, False, True, False]),
        ("euler,dpmpp_2m", "COMBO", ["euler", "dpmpp_2m"]),
        ("1,1.5,true,red", "AUTO", [1, 1.5, True, "red"]),
        ('007,+7,1e5,"7"', "AUTO", ["007", "+7", "1e5", "7"]),
        ("5", " int ", [5]),
        (7, "AUTO", [7]),
        (0.5, "AUTO", [0.5]),
        (True, "AUTO", [True]),
        (False, "STRING", [json.dumps(False)]),
    ]
    for raw, type_, values in cases:
        assert exactly(parse(raw, type_)) == exactly(values), (raw, type_)
    seeds = parse("random:64", "INT")
    assert len(set(seeds)) == len(seeds) == 64
    assert parse("random:64", "INT") != seeds


@pytest.mark.parametrize(
    ("type_", "kind", "raw", "values"),
    [
        ("AUTO", Kind.NUMBER, "1,2.5", [1, 2.5]),
        ("AUTO", Kind.STRING, "1,true", ["1", "true"]),
        ("AUTO", Kind.BOOLEAN, "yes,no", [True, False]),
        ("AUTO", Kind.ANY, "1,red", [1, "red"]),
        ("AUTO", None, "1,red", [1, "red"]),
        ("STRING", Kind.FLOAT, "1,2", ["1", "2"]),
        ("INT", Kind.STRING, "1,2", [1, 2]),
    ],
)
def test_auto_means_the_kind_of_the_input(type_: str, kind: Kind | None, raw: str, values: list[Any]) -> None:
    assert exactly(parse(raw, type_, kind=kind)) == exactly(values)


def test_bad_values_are_refused_in_one_line() -> None:
    cases = [
        ("", "INT", "there are no values"),
        ("1,two", "INT", "value 2: 'two' is not a whole number"),
        ("nan", "FLOAT", "is not a number"),
        ("maybe", "BOOLEAN", "neither true nor false"),
        ("1..5:0", "INT", "leads nowhere"),
        ("1,random:3", "INT", "stands among other values"),
        ("@", "STRING", "names no file"),
        ("1", "COLOUR", "is no type: use AUTO, INT, FLOAT, STRING, BOOLEAN, COMBO"),
        (None, "AUTO", "are not a text"),
        ([1, 2], "AUTO", "are not a text"),
        ("x" * (LONGEST_TEXT + 1), "STRING", "is the most"),
        (f"0..{MOST_MEMBERS}", "INT", f"{MOST_MEMBERS:,} is the most"),
    ]
    for raw, type_, message in cases:
        assert message in error_of(raw, type_), (raw, type_)
    assert len(parse(f"1..{MOST_MEMBERS}", "INT")) == MOST_MEMBERS


@pytest.mark.parametrize("raw", [f"0..{10**39}", f"random:{10**39}", "0,1,..,100000000", "1," * 10_000 + "1"])
def test_far_too_many_are_refused_before_they_are_made(raw: str) -> None:
    assert isinstance(in_time(lambda: error_of(raw, "INT")), str)


def test_the_types_of_the_node_are_those_that_can_be_parsed() -> None:
    assert set(TYPES) == set(KINDS)
    assert Kind.COMBO not in KINDS.values(), "ComfyUI checks choices"


@settings(max_examples=150, deadline=None)
@given(st.text(max_size=60) | st.text('0123456789.,|"\\@:- randomtrue…\n', max_size=40), st.sampled_from(TYPES))
def test_any_text_gives_values_of_the_type_or_one_line(raw: str, type_: str) -> None:
    wanted: dict[str, Any] = {"INT": int, "FLOAT": (int, float), "STRING": str, "COMBO": str, "BOOLEAN": bool}
    message = ""
    try:
        values = parse(raw, type_, Path("/nowhere at all"))
        assert 1 <= len(values) <= MOST_MEMBERS
        assert all(isinstance(value, wanted.get(type_, object)) for value in values)
    except ValueError as error:
        message = str(error)
    assert "\n" not in message


# Files.


def test_a_file_gives_its_lines(folder: Path) -> None:
    (folder / "prompts.txt").write_bytes("\ufeffa fox, red\r\n\r\n   \n  1..3\n@other.txt\na\u2028b\n".encode())
    assert parse("@prompts.txt", "STRING", folder) == ["a fox, red", "  1..3", "@other.txt", "a\u2028b"]
    (folder / "deep" / "numbers.txt").write_text("1\n2\n", encoding="utf-8")
    assert parse("@deep/../deep/numbers.txt", "INT", folder) == [1, 2]
    (folder.parent / "link").symlink_to(folder)
    assert parse("@deep/numbers.txt", "INT", folder.parent / "link") == [1, 2]
    assert parse(f"@{folder.parent / 'secret.txt'}", "STRING") == ["secret"], "without a folder any file will do"


def test_a_missing_file_is_file_not_found(folder: Path) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        parse("@missing.txt", "STRING", folder)
    assert isinstance(caught.value, NoSuchFile)
    assert isinstance(caught.value, BadValues)
    assert str(caught.value) == "'@missing.txt' is not there: put the file into ComfyUI's input folder"


def test_nothing_outside_of_the_input_folder_is_read(folder: Path) -> None:
    (folder / "out.txt").symlink_to(folder.parent / "secret.txt")
    (folder / "up").symlink_to(folder.parent)
    (folder.parent / "input2").mkdir()
    (folder.parent / "input2" / "a.txt").write_text("secret", encoding="utf-8")
    names = ["../secret.txt", "deep/../../secret.txt", "..", ".", "/etc/passwd", "/dev/zero"]
    for name in [*names, f"{folder}/../secret.txt", "out.txt", "up/secret.txt", "../input2/a.txt"]:
        assert OUTSIDE in error_of(f"@{name}", "STRING", folder), name


def test_a_file_that_cannot_be_read_is_refused(folder: Path) -> None:
    (folder / "loop.txt").symlink_to(folder / "loop.txt")
    (folder / "gone.txt").symlink_to(folder / "never.txt")
    (folder / "latin.txt").write_bytes(b"caf\xe9\n")
    (folder / "empty.txt").write_bytes(b"\xef\xbb\xbf\n \n")
    (folder / "many.txt").write_text("1\n" * (MOST_MEMBERS + 1), encoding="utf-8")
    with (folder / "huge.txt").open("wb") as file:
        file.truncate(1 << 40)
    os.mkfifo(folder / "pipe.txt")
    cases = [
        ("loop.txt", "@loop.txt"),
        ("gone.txt", "is not there"),
        ("latin.txt", "@latin.txt"),
        ("empty.txt", "has no values"),
        ("many.txt", f"{MOST_MEMBERS:,} is the most"),
        ("huge.txt", f"larger than {LARGEST_FILE:,} bytes"),
        ("pipe.txt", "is no file with values"),
        ("deep", "is no file with values"),
        ("a\0b.txt", "@a"),
        ("x" * 5000, "@xxx"),
    ]
    for name, message in cases:
        assert message in in_time(lambda name=name: error_of(f"@{name}", "STRING", folder)), name[:20]
