"""A value gets the type that its place takes, by the server's definition or the template, or is refused."""

from __future__ import annotations

import math
import re
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from comfyui_agent.domain.value_types import BadValue, Kind, ValueType, converted, type_of
from comfyui_agent.domain.values import Token

PAGE = Path(__file__).parents[3] / "docs/values.md"
SAMPLER = {
    "name": "KSampler",
    "input": {
        "required": {
            "seed": ["INT", {"default": 0, "min": 0, "max": 2**64 - 1, "control_after_generate": True}],
            "steps": ["INT", {"default": 20, "min": 1, "max": 10000}],
            "cfg": ["FLOAT", {"default": 8.0, "min": 0.0, "max": 100.0, "step": 0.1}],
            "sampler_name": [["euler", "ddim", "heun"], {}],
            "scheduler": ["COMBO", {"options": ["normal", "karras"]}],
            "tiled": ["BOOLEAN", {"default": False}],
            "model": ["MODEL"],
        },
        "optional": {"note": ["STRING", {"multiline": True}], "strength": [[0.5, 1, True, "1", "auto"]]},
    },
}


def token(text: str, is_plain: bool = False) -> Token:
    return Token(text, is_plain)


def value_of(text: str, type_: ValueType, is_plain: bool = False) -> Any:
    return converted(token(text, is_plain), type_, "3.x")


def error_of(text: str, type_: ValueType, where: str = "3.x") -> str:
    with pytest.raises(BadValue) as caught:
        pytest.fail(f"{text!r} becomes {converted(token(text), type_, where)!r}")
    return str(caught.value)


def complaint(text: str, type_: ValueType, is_plain: bool) -> str:
    """Why a value is refused; empty if it is not."""
    try:
        value_of(text, type_, is_plain)
    except BadValue as error:
        return str(error)
    return ""


def is_same(found: Any, wanted: Any) -> bool:
    return type(found) is type(wanted) and found == wanted


def declared(*said: Any) -> ValueType:
    return type_of(None, {"name": "N", "input": {"required": {"x": list(said)}}}, "x")


ERRORS = re.findall(r"^\| `([^`]+)` `([^`]+)` \| (.+) \|$", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)


def test_every_error_of_the_page_is_said_so() -> None:
    for where, text, error in ERRORS:
        assert error_of(text, type_of(None, SAMPLER, where.partition(".")[2]), where) == error, (where, text, error)


def test_the_page_has_errors() -> None:
    assert len(ERRORS) == 10


def test_every_kind_is_on_the_page() -> None:
    for kind in list(Kind):
        assert f"| `{kind.value}` |" in PAGE.read_text(encoding="utf-8"), kind


# What a place takes


def test_a_definition_counts_whatever_the_template_has() -> None:
    wanted = {
        "seed": ValueType(Kind.INT, (), 0, 2**64 - 1, "KSampler"),
        "steps": ValueType(Kind.INT, (), 1, 10000, "KSampler"),
        "cfg": ValueType(Kind.FLOAT, (), 0.0, 100.0, "KSampler"),
        "sampler_name": ValueType(Kind.COMBO, ("euler", "ddim", "heun"), node="KSampler"),
        "scheduler": ValueType(Kind.COMBO, ("normal", "karras"), node="KSampler"),
        "tiled": ValueType(Kind.BOOLEAN, node="KSampler"),
        "note": ValueType(Kind.STRING, node="KSampler"),
        "strength": ValueType(Kind.COMBO, (0.5, 1, True, "1", "auto"), node="KSampler"),
    }
    for value in (None, 1, 1.5, "x", True, ["4", 0]):
        assert {name: type_of(value, SAMPLER, name) for name in wanted} == wanted, value


def test_where_a_definition_says_nothing_the_template_counts() -> None:
    templates = [
        (True, Kind.BOOLEAN),
        (7, Kind.NUMBER),
        (7.0, Kind.FLOAT),
        ("x", Kind.STRING),
        ("", Kind.STRING),
        ("a ${word}", Kind.STRING),
        ("$${word}", Kind.STRING),
        ("${word} b", Kind.STRING),
        ("${word}", Kind.ANY),
        (["4", 0], Kind.ANY),
        ([1, 2], Kind.ANY),
        ({}, Kind.ANY),
        (None, Kind.ANY),
    ]
    definitions = [
        None,
        {},
        [],
        "KSampler",
        {"input": None},
        {"input": []},
        {"input": {"required": None, "optional": [1]}},
        {"input": {"required": {"other": ["INT"]}}},
        {"input": {"hidden": {"x": ["INT"]}}},
        *({"input": {"required": {"x": said}}} for said in (None, [], {}, "INT", 5, ["MODEL"], ["*"], ["INT,FLOAT"])),
        *({"input": {"required": {"x": [said]}}} for said in (None, 5, {}, "COMBO", [{"key": "a"}, None], {"INT": 1})),
        *({"input": {"required": {"x": ["COMBO", said]}}} for said in (None, [], {"options": "ab"}, {"remote": {}})),
    ]
    for definition, (value, kind) in product(definitions, templates):
        assert type_of(value, definition, "x") == ValueType(kind), (definition, value)


def test_a_file_that_is_yet_to_be_uploaded_is_no_wrong_choice() -> None:
    for options in [{"image_upload": True}, {"upload": True}, {"video_upload": True, "x": 1}]:
        assert declared(["example.png"], options).kind is Kind.STRING, options
        assert declared("COMBO", {"options": [], **options}).kind is Kind.STRING, options
        assert declared(["example.png"], dict.fromkeys(options, False)).kind is Kind.COMBO, options


def test_a_bound_that_is_no_number_is_none() -> None:
    for bound in [None, "1", True, math.nan, math.inf, -math.inf, [], {}, 1e300]:
        for kind in ("INT", "FLOAT"):
            assert declared(kind, {"min": bound, "max": bound}) == ValueType(Kind(kind), node="N")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(["INT", "FLOAT", "COMBO", "x", "\n"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["x", "input", "required", "min", "max", "options", "name"]), inner, max_size=3
        )
    ),
)


@given(JSON, JSON, JSON, st.text(max_size=8), st.booleans())
@example("INT", {"min": 5, "max": 1}, 1, "3", False)
def test_whatever_a_server_says_nothing_but_a_bad_value_is_raised(
    said: Any, options: Any, other: Any, text: str, is_plain: bool
) -> None:
    shapes = [other, {"input": other}, {"input": {"required": other}}]
    shapes += [{"name": other, "input": {"optional": {"x": [said, options]}}}]
    for definition in shapes:
        type_ = type_of(other, definition, "x")
        assert complaint(text, type_, is_plain).isprintable()


def test_endless_numbers_of_a_server_are_left_out() -> None:
    endless = 10**5000
    assert declared("INT", {"min": -endless, "max": endless}) == ValueType(Kind.INT, node="N")
    assert declared([1, endless]) == ValueType(Kind.COMBO, (1,), node="N")


# What a value becomes


def test_a_whole_number_becomes_one() -> None:
    for text, wanted in [("7", 7), ("-7", -7), ("+7", 7), ("007", 7), ("7.0", 7), ("7.", 7), (" 7 ", 7), ("0", 0)]:
        assert is_same(value_of(text, ValueType(Kind.INT)), wanted), (text, wanted)
        assert is_same(value_of(text, ValueType(Kind.INT), is_plain=True), wanted), (text, wanted)
        assert is_same(value_of(text, ValueType(Kind.NUMBER)), wanted), (text, wanted)


def test_a_number_keeps_the_dot_that_it_was_written_with() -> None:
    for text, wanted in [
        ("7", 7),
        ("7.0", 7.0),
        ("7.5", 7.5),
        (".05", 0.05),
        ("1e10", 1e10),
        ("1e-4", 0.0001),
        ("-2.50", -2.5),
        ("007", 7),
    ]:
        assert is_same(value_of(text, ValueType(Kind.FLOAT)), wanted), (text, wanted)
        assert is_same(value_of(text, ValueType(Kind.FLOAT), is_plain=True), wanted), (text, wanted)


def test_without_a_definition_a_whole_number_in_the_template_takes_any() -> None:
    type_ = type_of(20, None, "steps")
    assert is_same(value_of("7.5", type_), 7.5)
    assert is_same(value_of("7", type_), 7)
    assert "'x' is not a number" in error_of("x", type_)


def test_what_is_no_whole_number_is_refused() -> None:
    for text in ["7.5", "x", "", "1e3", "0x10", "1_000", "٣", "nan", "inf", "true", "1 2", "--1"]:
        assert "is not a whole number" in error_of(text, ValueType(Kind.INT)), text


def test_what_is_no_number_is_refused() -> None:
    texts = ("x", "", "nan", "inf", "-inf", "1e", "e5", ".", "1_0", "٣", "1e99999")
    for text, kind in product(texts, (Kind.FLOAT, Kind.NUMBER)):
        assert "is not a number" in error_of(text, ValueType(kind)), (text, kind)


def test_endless_numbers_are_refused_and_long_ones_are_exact() -> None:
    for kind in [Kind.INT, Kind.FLOAT, Kind.NUMBER]:
        assert is_same(value_of("9" * 40, ValueType(kind)), 10**40 - 1), kind
        for text in ("9" * 41, "9" * 1_000_000):
            message = error_of(text, ValueType(kind))
            assert "more than 40 digits" in message
            assert len(message) < 200


def test_bounds_are_included() -> None:
    steps, cfg = type_of(None, SAMPLER, "steps"), type_of(None, SAMPLER, "cfg")
    assert [value_of(text, steps) for text in ("1", "10000")] == [1, 10000]
    assert [value_of(text, cfg) for text in ("0", "0.0", "100.0", "100")] == [0, 0.0, 100.0, 100]
    assert error_of("10001", steps) == "3.x: 10001 is above 10000, the most that KSampler takes"
    assert error_of("-0.1", cfg) == "3.x: -0.1 is below 0.0, the least that KSampler takes"
    seed = type_of(None, SAMPLER, "seed")
    assert value_of(str(2**64 - 1), seed) == 2**64 - 1
    assert "is above 18446744073709551615" in error_of(str(2**64), seed)
    unnamed = type_of(None, {"input": {"required": {"x": ["INT", {"min": 1}]}}}, "x")
    assert error_of("0", unnamed) == "3.x: 0 is below 1, the least that the node takes"


@given(st.text(), st.booleans())
@example("007", False)
@example(" true ", False)
def test_a_text_stays_as_it_was_written(text: str, is_plain: bool) -> None:
    assert value_of(text, ValueType(Kind.STRING), is_plain) == text


def test_words_for_true_and_false() -> None:
    for is_plain in [False, True]:
        for word in ("true", "True", "TRUE", "yes", "on", " true "):
            assert value_of(word, ValueType(Kind.BOOLEAN), is_plain) is True
        for word in ("false", "False", "no", "off"):
            assert value_of(word, ValueType(Kind.BOOLEAN), is_plain) is False
        for word in ("", "1", "0", "maybe", "truefalse"):
            assert "is neither true nor false" in error_of(word, ValueType(Kind.BOOLEAN))


def test_a_choice_keeps_the_type_that_the_server_has() -> None:
    cases = [
        ("euler", ("ddim", "euler"), "euler"),
        ("1", (0.5, 1, True, "1"), 1),
        ("1", ("1", 1), "1"),
        ("0.5", (0.5, 1), 0.5),
        ("true", ("x", True), True),
        ("True", ("x", True), True),
        ("true", ("true", True), "true"),
        ("007", (7, "007"), "007"),
        (" a", ("a", " a"), " a"),
        (" a", ("a",), "a"),
        ("", ("", "a"), ""),
    ]
    for (text, choices, wanted), is_plain in product(cases, (False, True)):
        found = value_of(text, ValueType(Kind.COMBO, choices), is_plain)
        assert is_same(found, wanted), (text, choices, is_plain, found)


def test_a_wrong_choice_is_said_with_the_nearest() -> None:
    for text, choices, says in [
        ("EULER", ("euler", "ddim"), "'EULER' is not one of the server's choices; did you mean euler?"),
        ("1.0", (1, 2), "'1.0' is not one of the server's choices; there are 1, 2"),
        ("tru", (True, False), "'tru' is not one of the server's choices; did you mean true?"),
        ("x", (), "'x' is not one of the server's choices; there are none"),
        ("x", ("a\nb",), "'x' is not one of the server's choices; there are a\\nb"),
        ("y" * 100, ("a",), f"'{'y' * 59}…' is not one of the server's choices; there are a"),
    ]:
        assert error_of(text, ValueType(Kind.COMBO, choices)) == f"3.x: {says}", (text, choices, says)


def test_no_choices_at_a_server_refuse_everything_and_long_ones_are_cut() -> None:
    assert "there are none" in error_of("x", declared([]))
    assert error_of("x", declared(["y" * 120])).endswith(f"there are {'y' * 120}")
    assert error_of("x", declared(["y" * 121])).endswith(f"there are {'y' * 119}…")


def test_where_nothing_is_known_a_value_is_what_it_looks_like() -> None:
    for text, wanted in [
        ("7", 7),
        ("-7", -7),
        ("0.50", 0.5),
        ("10", 10),
        ("9" * 40, 10**40 - 1),
        ("true", True),
        ("True", True),
        ("False", False),
        ("yes", "yes"),
        ("007", "007"),
        ("+7", "+7"),
        ("1e5", "1e5"),
        ("", ""),
        ("fox", "fox"),
        ("9" * 41, "9" * 41),
    ]:
        assert is_same(value_of(text, ValueType(Kind.ANY)), wanted), (text, wanted)
        assert is_same(value_of(text, ValueType(Kind.ANY), is_plain=True), text), (text, wanted)


def test_many_values_among_many_choices_are_looked_up() -> None:
    """A million values and ten thousand choices would be hours of comparing."""
    type_ = ValueType(Kind.COMBO, tuple(f"lora_{number}.safetensors" for number in range(10_000)))
    assert type_.by_text is type_.by_text
    assert value_of("lora_9999.safetensors", type_) == "lora_9999.safetensors"
