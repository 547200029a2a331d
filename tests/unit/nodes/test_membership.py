"""Which member of which batch a prompt is: what its marks say, and nothing that leads out of the output folder."""

from __future__ import annotations

import os
from pathlib import PurePosixPath
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from comfyui_agent.domain.batches import mint_batch_id
from comfyui_agent.nodes.core.prompt_rewriting import BATCH, INDEX, TOTAL, VALUES
from comfyui_agent.nodes.membership import Membership, membership_of

LONGEST_NAME = 255


def marks(batch: Any = "batch_0a1b2c3d", index: Any = 4, total: Any = 90, values: Any = None) -> dict[str, Any]:
    inputs: dict[str, Any] = {"enabled": True, "mode": "matrix", "batch_name": "batch", "param_1": ["5", 0]}
    return {**inputs, BATCH: batch, INDEX: index, TOTAL: total, VALUES: {"seed": 7} if values is None else values}


def test_the_marks_say_which_member_it_is() -> None:
    assert membership_of(marks()) == Membership("batch_0a1b2c3d", 4, 90, {"seed": 7})


@pytest.mark.parametrize("missing", [BATCH, INDEX, TOTAL])
def test_without_marks_there_is_no_batch(missing: str) -> None:
    inputs = marks()
    del inputs[missing]
    assert membership_of(inputs) is None
    assert membership_of({}) is None


@pytest.mark.parametrize("values", [[], "seed", 5, [["seed", 7]]])
def test_values_that_are_no_names_and_values_are_none(values: Any) -> None:
    found = membership_of(marks(values=values))
    assert found is not None
    assert found.values == {}


def test_a_batch_that_no_one_here_named_is_none() -> None:
    names = [
        "",
        ".",
        "..",
        "../..",
        "../evil_0a1b2c3d",
        "/etc",
        "/batch_0a1b2c3d",
        "a/b_0a1b2c3d",
        "a\\b_0a1b2c3d",
        "C:evil",
        "batch_0a1b2c3d/",
        "batch\n",
        "batch\0",
        "batch %year%",
        "b\u00e4tch_0a1b2c3d",
        "batch_0a1b2c3d ",
        None,
        5,
        True,
        ["batch"],
        {"a": 1},
    ]
    assert [batch for batch in names if membership_of(marks(batch=batch)) is not None] == []


@pytest.mark.parametrize("number", ["4", 4.0, None, [4], "../4"])
def test_numbers_that_are_none_make_no_membership(number: Any) -> None:
    assert membership_of(marks(index=number)) is None
    assert membership_of(marks(total=number)) is None


@settings(deadline=None)
@given(st.text(max_size=100))
def test_every_id_that_a_name_leads_to_is_understood(name: str) -> None:
    batch_id = mint_batch_id(name, "batch")
    found = membership_of(marks(batch=batch_id))
    assert found is not None
    assert found.batch_id == batch_id


def test_files_have_a_folder_for_the_batch_and_a_name_that_tells_the_values() -> None:
    member = Membership("cats_0a1b2c3d", 4, 90, {"3.seed": 7, "prompt text": "a cat, red"})
    assert member.prefix("E3/image") == "E3/image/cats_0a1b2c3d/0005_seed-7_prompt_text-a_cat_red"
    assert member.prefix("E3/image/") == member.prefix("E3/image")


def test_names_sort_as_the_members_go() -> None:
    few = [Membership("b", index, 90).prefix("x") for index in range(90)]
    many = [Membership("b", index, 12_345).prefix("x") for index in (0, 9, 99, 1_999, 9_999, 12_344)]
    assert few == sorted(few)
    assert many == sorted(many)
    assert (few[0], many[-1]) == ("x/b/0001", "x/b/12345")


def test_without_a_prefix_the_folder_of_the_batch_stands_in_the_output_folder() -> None:
    prefix = Membership("b_0a1b2c3d", 0, 2).prefix("")
    assert not PurePosixPath(prefix).is_absolute()
    assert PurePosixPath(prefix).parts[-2:] == ("b_0a1b2c3d", "0001")


HOSTILE = st.text(max_size=20) | st.sampled_from(
    ["..", "/", "../../x", "/etc/passwd", "a\0b", "\\..\\", "x" * 400, "%year%", "...", "C:\\x", "\n"]
)


@settings(max_examples=150, deadline=None)
@given(
    batch=HOSTILE | st.integers() | st.none(),
    index=st.integers() | st.just(10**300),
    total=st.integers() | st.just(10**300),
    values=st.dictionaries(HOSTILE, HOSTILE | st.integers() | st.none() | st.lists(HOSTILE, max_size=2), max_size=4),
)
def test_no_mark_leads_out_of_the_folder_that_people_chose(
    batch: Any, index: int, total: int, values: dict[str, Any]
) -> None:
    member = membership_of(marks(batch, index, total, values))
    if member is None:
        return
    path = os.path.normpath(f"/output/{member.prefix('E3/image')}")
    assert path == f"/output/{member.prefix('E3/image')}"
    folder, name = PurePosixPath(path).parts[:-1], PurePosixPath(path).name
    assert folder == ("/", "output", "E3", "image", batch)
    assert 0 < len(name) <= LONGEST_NAME - len("_00001_.png.part")
    assert name.isascii()
    assert not set(name) & set("/\\:%\0\n")
