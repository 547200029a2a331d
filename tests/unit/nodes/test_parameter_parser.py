"""The values of a parameter: the value language in every type, and files from ComfyUI's input folder alone."""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Callable
from functools import partial
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


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """ComfyUI's input folder; beside it lies what is nobody's business."""
    (tmp_path / "secret.txt").write_text("secret\n", encoding="utf-8")
    place = tmp_path / "input"
    place.mkdir()
    return place


def exactly(values: list[Any]) -> list[tuple[type, Any]]:
    """1, 1.0 and True are equal: their types tell them apart."""
    return [(type(value), value) for value in values]


def error_of(raw: Any, type_: str = "AUTO", folder: Path | None = None) -> str:
    with pytest.raises(ValueError) as caught:
        pytest.fail(f"{raw!r} as {type_} gives {parse(raw, type_, folder)}")
    said = str(caught.value)
    assert len(said) <= LONGEST_ERROR
    assert "\n" not in said
    return said


def in_time(call: Callable[[], Any]) -> Any:
    """What a call gives or raises; it must come back by itself, however the file behaves."""
    found: list[Any] = []

    def run() -> None:
        try:
            found.append(call())
        except Exception as error:  # noqa: BLE001 - looked at by the test
            found.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(PATIENCE_SECONDS)
    assert found, "it does not come back"
    return found[0]


def test_every_form_gives_values_of_the_type() -> None:
    cases: list[tuple[str, str, list[Any]]] = [
        ("1,2,3", "INT", [1, 2, 3]),
        ("7", "INT", [7]),
        ("1..10:2", "INT", [1, 3, 5, 7, 9]),
        ("3..1", "INT", [3, 2, 1]),
        ("-2..1", "INT", [-2, -1, 0, 1]),
        ("1,2,..,5", "INT", [1, 2, 3, 4, 5]),
        ("1..3, 10, 20..22", "INT", [1, 2, 3, 10, 20, 21, 22]),
        ("1|2|3", "INT", [1, 2, 3]),
        ("2.0,3.", "INT", [2, 3]),
        ('"7","8"', "INT", [7, 8]),
        (" 1 ,\n2\n", "INT", [1, 2]),
        ("18446744073709551615", "INT", [2**64 - 1]),
        ("1,2", "FLOAT", [1, 2]),
        ("0.5,1.0,..,3.0", "FLOAT", [0.5, 1.0, 1.5, 2.0, 2.5, 3.0]),
        ("0.1..0.3:0.1", "FLOAT", [0.1, 0.2, 0.3]),
        ("1e-3,.5,-2.", "FLOAT", [0.001, 0.5, -2.0]),
        ("1,2.5", "STRING", ["1", "2.5"]),
        ("1..3", "STRING", ["1", "2", "3"]),
        ("a cat | a dog, sitting | a fox", "STRING", ["a cat", "a dog, sitting", "a fox"]),
        ('"a, b","c"', "STRING", ["a, b", "c"]),
        ('"say \\"yes\\" | no"', "STRING", ['say "yes" | no']),
        ('""', "STRING", [""]),
        ('"@file.txt",b', "STRING", ["@file.txt", "b"]),
        ("true,No,ON,off,yes,False", "BOOLEAN", [True, False, True, False, True, False]),
        ("euler,dpmpp_2m", "COMBO", ["euler", "dpmpp_2m"]),
        ("v1.safetensors | v 2, final.safetensors", "COMBO", ["v1.safetensors", "v 2, final.safetensors"]),
        ("1,1.5,true,red", "AUTO", [1, 1.5, True, "red"]),
        ('007,+7,1e5,"7"', "AUTO", ["007", "+7", "1e5", "7"]),
        ("5", "auto", [5]),
        ("5", " int ", [5]),
    ]
    for raw, type_, values in cases:
        assert exactly(parse(raw, type_)) == exactly(values), (raw, type_)


@pytest.mark.parametrize(("raw", "values"), [(7, [7]), (0.5, [0.5]), (True, [True]), (False, [False])])
def test_a_value_that_is_no_text_stands_for_itself(raw: Any, values: list[Any]) -> None:
    assert exactly(parse(raw, "AUTO")) == exactly(values)
    assert parse(raw, "STRING") == [json.dumps(raw)]


@pytest.mark.parametrize("raw", [None, [1, 2], {"a": 1}, b"1,2"])
def test_what_is_neither_text_nor_number_is_refused(raw: Any) -> None:
    assert "are not a text" in error_of(raw)


@pytest.mark.parametrize(
    ("kind", "raw", "values"),
    [
        (Kind.NUMBER, "1,2.5", [1, 2.5]),
        (Kind.FLOAT, "1,2.0", [1, 2.0]),
        (Kind.STRING, "1,true", ["1", "true"]),
        (Kind.BOOLEAN, "yes,no", [True, False]),
        (Kind.ANY, "1,red", [1, "red"]),
        (None, "1,red", [1, "red"]),
    ],
)
def test_auto_means_the_kind_of_the_input(kind: Kind | None, raw: str, values: list[Any]) -> None:
    assert exactly(parse(raw, "AUTO", kind=kind)) == exactly(values)


def test_a_type_that_is_said_wins_over_the_kind_of_the_input() -> None:
    assert exactly(parse("1,2", "STRING", kind=Kind.FLOAT)) == exactly(["1", "2"])
    assert exactly(parse("1,2", "INT", kind=Kind.STRING)) == exactly([1, 2])


def test_auto_refuses_what_the_input_cannot_take() -> None:
    with pytest.raises(ValueError, match="value 2: 'red' is not a number"):
        parse("1,red", "AUTO", kind=Kind.NUMBER)


def test_seeds_are_as_many_as_asked_for_and_all_different() -> None:
    seeds = parse("random:64", "INT")
    assert len(set(seeds)) == len(seeds) == 64
    assert all(type(seed) is int and 0 <= seed < 2**32 for seed in seeds)
    assert parse("random:64", "INT") != seeds


def test_what_makes_no_sense_is_refused_in_one_line() -> None:
    cases = [
        ("", "INT", "there are no values"),
        (" \n\t", "STRING", "there are no values"),
        ("1,,2", "INT", "value 2 is empty"),
        ("1,two", "INT", "value 2: 'two' is not a whole number"),
        ("1.5", "INT", "is not a whole number"),
        ("nan", "FLOAT", "is not a number"),
        ("inf", "FLOAT", "is not a number"),
        ("1e999", "FLOAT", "larger than numbers get"),
        ("0x10", "INT", "is not a whole number"),
        ("\u0661", "INT", "is not a whole number"),
        ("9" * 41, "INT", "more than 40 digits"),
        ("maybe", "BOOLEAN", "neither true nor false"),
        ('"open', "STRING", "never closed"),
        ("1..", "INT", "is no range"),
        ("1..5:0", "INT", "leads nowhere"),
        ("1,..", "INT", "has no end"),
        ("random:0", "INT", "does not say how many seeds"),
        ("random:x", "INT", "does not say how many seeds"),
        ("1,random:3", "INT", "stands among other values"),
        ("@a.txt,b", "STRING", "stands among other values"),
        ("@", "STRING", "names no file"),
        ("1", "COLOUR", "is no type: use AUTO, INT, FLOAT, STRING, BOOLEAN, COMBO"),
        ("1", "", "is no type"),
    ]
    for raw, type_, said in cases:
        assert said in error_of(raw, type_), (raw, type_)


@pytest.mark.parametrize("type_", TYPES)
def test_the_most_values_are_taken_and_one_more_is_not(type_: str) -> None:
    if type_ != "BOOLEAN":
        assert len(parse(f"1..{MOST_MEMBERS}", type_)) == MOST_MEMBERS
    assert f"{MOST_MEMBERS:,} is the most" in error_of(f"0..{MOST_MEMBERS}", type_)


@pytest.mark.parametrize("raw", ["0..1e9", f"0..{10**39}", f"random:{10**39}", "0,1,..,100000000", "1," * 10_000 + "1"])
def test_far_too_many_are_refused_before_they_are_made(raw: str) -> None:
    assert isinstance(in_time(lambda: error_of(raw, "INT")), str)


def test_a_text_that_is_far_too_long_is_refused() -> None:
    assert "is the most" in error_of("x" * (LONGEST_TEXT + 1), "STRING")
    assert parse("x" * LONGEST_TEXT, "STRING") == ["x" * LONGEST_TEXT]


def test_the_types_of_the_node_are_those_that_can_be_parsed() -> None:
    assert set(TYPES) == set(KINDS)
    assert Kind.COMBO not in KINDS.values(), "whether there is such a choice is for ComfyUI to say"


@settings(max_examples=300, deadline=None)
@given(st.text(max_size=60) | st.text('0123456789.,|"\\@:- randomtrue…\n', max_size=40), st.sampled_from(TYPES))
def test_any_text_gives_values_of_the_type_or_one_line(raw: str, type_: str) -> None:
    wanted: dict[str, Any] = {"INT": int, "FLOAT": (int, float), "STRING": str, "COMBO": str, "BOOLEAN": bool}
    said = ""
    try:
        values = parse(raw, type_, Path("/nowhere at all"))
        assert 1 <= len(values) <= MOST_MEMBERS
        assert all(isinstance(value, wanted.get(type_, object)) for value in values)
    except ValueError as error:
        said = str(error)
    assert "\n" not in said


# Files of values.


def test_a_file_gives_its_lines(folder: Path) -> None:
    (folder / "prompts.txt").write_bytes("\ufeffa fox, red\r\n\r\n   \n  1..3\n@other.txt\ntrue".encode())
    assert parse("@prompts.txt", "STRING", folder) == ["a fox, red", "  1..3", "@other.txt", "true"]
    assert parse('@"prompts.txt"', "AUTO", folder)[-1] == "true"


def test_a_file_of_numbers_gives_numbers(folder: Path) -> None:
    (folder / "deep").mkdir()
    (folder / "deep" / "numbers.txt").write_text("1\n2\n", encoding="utf-8")
    assert parse("@deep/numbers.txt", "INT", folder) == [1, 2]
    assert parse("@deep/../deep/numbers.txt", "FLOAT", folder) == [1, 2]


def test_a_line_ends_where_a_line_ends_and_nowhere_else(folder: Path) -> None:
    (folder / "odd.txt").write_text("a\u2028b\nc\x0bd\x0ce\nf\x85g\n", encoding="utf-8")
    assert parse("@odd.txt", "STRING", folder) == ["a\u2028b", "c\x0bd\x0ce", "f\x85g"]


def test_a_file_that_is_not_there_is_said_to_be_missing(folder: Path) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        parse("@missing.txt", "STRING", folder)
    assert isinstance(caught.value, NoSuchFile)
    assert isinstance(caught.value, BadValues)
    assert str(caught.value) == "'@missing.txt' is not there: put the file into ComfyUI's input folder"


@pytest.mark.parametrize(
    "name", ["../secret.txt", "deep/../../secret.txt", "..", ".", "/etc/passwd", "/dev/zero", "{folder}/../secret.txt"]
)
def test_nothing_outside_of_the_input_folder_is_read(folder: Path, name: str) -> None:
    (folder / "deep").mkdir()
    said = error_of(f"@{name.format(folder=folder)}", "STRING", folder)
    assert "is not in ComfyUI's input folder: put the file there" in said


def test_a_folder_with_a_longer_name_of_the_same_beginning_is_another_one(folder: Path) -> None:
    beside = folder.with_name("input2")
    beside.mkdir()
    (beside / "a.txt").write_text("secret", encoding="utf-8")
    assert "is not in ComfyUI's input folder" in error_of("@../input2/a.txt", "STRING", folder)


def test_links_that_lead_out_are_not_followed_and_others_are(folder: Path) -> None:
    (folder / "out.txt").symlink_to(folder.parent / "secret.txt")
    (folder / "up").symlink_to(folder.parent)
    (folder / "own.txt").write_text("own", encoding="utf-8")
    (folder / "in.txt").symlink_to(folder / "own.txt")
    assert "is not in ComfyUI's input folder" in error_of("@out.txt", "STRING", folder)
    assert "is not in ComfyUI's input folder" in error_of("@up/secret.txt", "STRING", folder)
    assert parse("@in.txt", "STRING", folder) == ["own"]


def test_an_input_folder_that_is_itself_a_link_is_fine(folder: Path) -> None:
    (folder / "a.txt").write_text("1\n2", encoding="utf-8")
    link = folder.with_name("link")
    link.symlink_to(folder)
    assert parse("@a.txt", "INT", link) == [1, 2]


def test_links_that_lead_nowhere_are_refused(folder: Path) -> None:
    (folder / "loop.txt").symlink_to(folder / "pool.txt")
    (folder / "pool.txt").symlink_to(folder / "loop.txt")
    (folder / "gone.txt").symlink_to(folder / "never.txt")
    assert error_of("@loop.txt", "STRING", folder)
    assert "is not there" in error_of("@gone.txt", "STRING", folder)


@pytest.mark.parametrize("name", ["a\0b.txt", "x" * 5000, "a" * 200 + "/" + "b" * 300])
def test_a_name_that_no_file_can_have_is_refused(folder: Path, name: str) -> None:
    assert error_of(f"@{name}", "STRING", folder)


def test_a_folder_is_no_file(folder: Path) -> None:
    (folder / "deep").mkdir()
    assert "@deep" in error_of("@deep", "STRING", folder)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no such files here")
def test_what_is_no_plain_file_is_not_waited_for(folder: Path) -> None:
    os.mkfifo(folder / "pipe.txt")
    with socket.socket(socket.AF_UNIX) as listening:
        here = Path.cwd()
        os.chdir(folder)  # the names of sockets are short
        try:
            listening.bind("socket.txt")
        finally:
            os.chdir(here)
        for name in ("pipe.txt", "socket.txt"):
            said = in_time(partial(parse, f"@{name}", "STRING", folder))
            assert isinstance(said, ValueError), said
            assert f"@{name}" in str(said)


def test_a_huge_file_is_refused_and_not_read_whole(folder: Path) -> None:
    with (folder / "huge.txt").open("wb") as file:
        file.truncate(1 << 40)
    assert f"larger than {LARGEST_FILE:,} bytes" in in_time(lambda: error_of("@huge.txt", "STRING", folder))


def test_the_largest_file_is_taken(folder: Path) -> None:
    line = b"x" * 999 + b"\n"
    (folder / "large.txt").write_bytes(line * (LARGEST_FILE // len(line)))
    assert len(parse("@large.txt", "STRING", folder)) == 1000
    with (folder / "large.txt").open("ab") as file:
        file.write(b"y")
    assert "is larger than" in error_of("@large.txt", "STRING", folder)


def test_a_file_of_more_lines_than_members_is_refused(folder: Path) -> None:
    (folder / "many.txt").write_text("1\n" * (MOST_MEMBERS + 1), encoding="utf-8")
    assert f"{MOST_MEMBERS:,} is the most" in error_of("@many.txt", "INT", folder)


@pytest.mark.parametrize("data", [b"\xff\xfea\x00", b"caf\xe9\n", b"\x00\xff" * 9])
def test_a_file_that_is_not_utf8_is_refused(folder: Path, data: bytes) -> None:
    (folder / "latin.txt").write_bytes(data)
    assert "@latin.txt" in error_of("@latin.txt", "STRING", folder)


@pytest.mark.parametrize("data", [b"", b"\n \n", b"\xef\xbb\xbf"])
def test_a_file_without_values_is_refused(folder: Path, data: bytes) -> None:
    (folder / "empty.txt").write_bytes(data)
    assert "has no values" in error_of("@empty.txt", "STRING", folder)


def test_without_a_folder_any_file_will_do(folder: Path) -> None:
    assert parse(f"@{folder.parent / 'secret.txt'}", "STRING") == ["secret"]


def test_names_in_errors_are_short(folder: Path) -> None:
    assert len(error_of("@" + "n" * 240, "STRING", folder)) < 200
