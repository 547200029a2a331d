"""A complaint is one line: where, which key, what it says, what would be right, what may have been meant."""

from __future__ import annotations

from typing import Annotated, Any

import pytest
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from comfyui_agent.config.settings import Number, Whole
from comfyui_agent.config.validation import LONGEST_VALUE, Complaint, Complaints, check, dotted, shown


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Inner(Strict):
    size: int = Field(default=1, description="a whole number, such as 1")
    plain: int = 1


def _known(value: Any) -> Any:
    if value == "unknown":
        raise ValueError("'unknown' is not known here: write known")
    return value


class Outer(Strict):
    name: str = Field(description="a text, such as fox")
    inner: Inner = Field(default=Inner(), description="a section with the key size")
    maybe: Inner | None = Field(default=None, description="a section or nothing")
    several: tuple[int, ...] = Field(default=(), description="a list of whole numbers")
    either: int | bool | None = Field(default=None, description="a number, true or false")
    word: Annotated[str, BeforeValidator(_known)] = Field(default="", description="a word")
    amount: Whole = Field(default=1, description="a whole amount, such as 2")
    share: Number = Field(default=1.0, description="a share, such as 0.5")


def complaints_on(tree: Any) -> Complaints:
    with pytest.raises(Complaints) as caught:
        check(Outer, tree, lambda path: f"file:{len(path)}")
    return caught.value


def test_what_is_right_becomes_the_model() -> None:
    assert check(Outer, {"name": "fox", "inner": {"size": 3}}, lambda _: "").inner.size == 3


def test_a_complaint_names_place_key_value_and_remedy() -> None:
    for tree, line in [
        ({}, "file:1: name: is missing: write a text, such as fox"),
        ({"name": 5}, "file:1: name: 5 cannot be used: write a text, such as fox"),
        ({"name": "x", "inner": 3}, "file:1: inner: 3 cannot be used: write a section with the key size"),
        ({"name": "x", "inner": None}, "file:1: inner: None cannot be used: write a section with the key size"),
        (
            {"name": "x", "inner": {"size": "y"}},
            "file:2: inner.size: 'y' cannot be used: write a whole number, such as 1",
        ),
        ({"name": "x", "inner": {"siez": 1}}, "file:2: inner.siez: there is no such key; did you mean size?"),
        ({"name": "x", "maybe": {"siez": 1}}, "file:2: maybe.siez: there is no such key; did you mean size?"),
        (
            {"name": "x", "several": [1, "y"]},
            "file:2: several.1: 'y' cannot be used: write a list of whole numbers",
        ),
        ({"name": "x", "either": "z"}, "file:1: either: 'z' cannot be used: write a number, true or false"),
        ({"name": "x", "word": "unknown"}, "file:1: word: 'unknown' is not known here: write known"),
        (
            {"name": "x", "qqqq": 1},
            "file:1: qqqq: there is no such key; there are amount, either, inner, maybe, name, several, share, word",
        ),
        (
            {"name": "x", "inner": {"plain": "y"}},
            "file:2: inner.plain: 'y' cannot be used: write a section with the key size",
        ),
    ]:
        assert str(complaints_on(tree)) == line, (tree, line)


def test_a_key_of_which_several_things_can_be_said_is_complained_about_once() -> None:
    assert len(complaints_on({"name": "x", "either": "z"}).found) == 1


def test_the_first_is_said_with_how_many_there_are_besides() -> None:
    complaints = complaints_on({"name": 5, "inner": {"size": "y"}, "more": 1})
    assert len(complaints.found) == 3
    assert str(complaints) == "file:1: name: 5 cannot be used: write a text, such as fox (and 2 more)"
    assert {each.key for each in complaints.found} == {"name", "inner.size", "more"}


def test_what_is_no_mapping_at_all_is_one_line_too() -> None:
    for tree in (None, 5, "text", [1]):
        assert "\n" not in str(complaints_on(tree))


def test_parts_that_are_empty_leave_no_trace() -> None:
    assert str(Complaint("file:3", "", "it is empty")) == "file:3: it is empty"
    assert str(Complaint("", "key", "is missing")) == "key: is missing"


def test_a_path_reads_as_people_write_it() -> None:
    assert dotted(("comfyui", "servers", 0)) == "comfyui.servers.0"
    assert dotted(()) == ""


def test_a_value_that_may_hold_a_password_is_not_repeated() -> None:
    for value in [
        "http://me:secret@gpu1:8188",
        "postgresql://me:secret@db/e3",
        "me:secret@gpu1",
        ["http://me:secret@gpu1:8188"],
        {"url": "http://me:secret@gpu1:8188"},
        "x" * 500 + "://secret",
    ]:
        assert shown(value) == "this value", value
        assert "secret" not in str(complaints_on({"name": "x", "inner": value})), value


def test_a_long_value_is_cut() -> None:
    assert shown("x" * LONGEST_VALUE * 9) == "'" + "x" * (LONGEST_VALUE - 2) + "…"
    assert shown("x" * (LONGEST_VALUE - 2)) == repr("x" * (LONGEST_VALUE - 2))


def test_a_value_of_several_lines_is_shown_in_one() -> None:
    assert "\n" not in str(complaints_on({"name": "x", "inner": "a\nb\x1b[31m"}))
    assert "\x1b" not in str(complaints_on({"name": "x", "inner": "a\nb\x1b[31m"}))


@pytest.mark.parametrize("key", ["amount", "share"])
@pytest.mark.parametrize("value", [True, False, float("nan"), float("inf")])
def test_what_is_no_number_is_said_with_what_would_be_right(key: str, value: Any) -> None:
    assert "write a" in str(complaints_on({"name": "x", key: value}))


def test_a_key_of_any_kind_leaves_a_complaint_of_one_short_line() -> None:
    for key in ["a\nb", "a\x1b[31mb", "k" * 5000, "http://me:secret@gpu1:8188"]:
        text = str(complaints_on({"name": "x", key: 1}))
        assert text.isprintable(), key
        assert len(text) < 1000, key
        assert "secret" not in text, key
