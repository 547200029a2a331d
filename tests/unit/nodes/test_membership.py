"""The marks of a member are read back, and no mark leads out of the output folder."""

from __future__ import annotations

import os
from pathlib import PurePosixPath
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from comfyui_agent.domain.batches import mint_batch_id
from comfyui_agent.nodes.core.prompt_rewriting import BATCH, INDEX, TOTAL, VALUES
from comfyui_agent.nodes.node_classes import Membership, membership_of

LONGEST_NAME = 255


def marks(batch: Any = "batch_0a1b2c3d", index: Any = 4, total: Any = 90, values: Any = None) -> dict[str, Any]:
    return {
        "enabled": True,
        BATCH: batch,
        INDEX: index,
        TOTAL: total,
        VALUES: {"seed": 7} if values is None else values,
    }


def test_marks_say_which_member_a_prompt_is() -> None:
    assert membership_of(marks()) == Membership("batch_0a1b2c3d", 4, 90, {"seed": 7})
    for values in ([], "seed", 5, [["seed", 7]]):
        assert membership_of(marks(values=values)) == Membership("batch_0a1b2c3d", 4, 90, {})


@pytest.mark.parametrize(
    "batch",
    ["", ".", "..", "../evil_0a1b2c3d", "/etc", "a/b_0a1b2c3d", "a\\b", "C:x", "b\n", "b\0", "b %y%", "bä", 5, None],
)
def test_a_batch_id_that_e3_did_not_mint_is_no_membership(batch: Any) -> None:
    assert membership_of(marks(batch=batch)) is None


@pytest.mark.parametrize("number", ["4", 4.0, None, [4]])
def test_numbers_must_be_integers(number: Any) -> None:
    assert membership_of(marks(index=number)) is None
    assert membership_of(marks(total=number)) is None
    assert membership_of({}) is None


@settings(deadline=None)
@given(st.text(max_size=100))
def test_every_minted_id_is_understood(name: str) -> None:
    batch_id = mint_batch_id(name, "batch")
    assert membership_of(marks(batch=batch_id)) == Membership(batch_id, 4, 90, {"seed": 7})


def test_files_have_a_folder_for_the_batch_and_a_name_with_the_values() -> None:
    member = Membership("cats_0a1b2c3d", 4, 90, {"3.seed": 7, "prompt text": "a cat, red"})
    assert member.prefix("E3/image") == "E3/image/cats_0a1b2c3d/0005_seed-7_prompt_text-a_cat_red"
    assert member.prefix("E3/image/") == member.prefix("E3/image")
    assert member.prefix("") == "cats_0a1b2c3d/0005_seed-7_prompt_text-a_cat_red"


def test_names_sort_like_the_members() -> None:
    names = [Membership("b", index, 12_345).prefix("x") for index in (0, 9, 99, 1_999, 9_999, 12_344)]
    assert names == sorted(names)
    assert (Membership("b", 0, 90).prefix("x"), names[-1]) == ("x/b/0001", "x/b/12345")


HOSTILE = st.text(max_size=20) | st.sampled_from(
    ["..", "/", "../../x", "/etc/passwd", "a\0b", "\\..\\", "x" * 400, "%year%", "...", "C:\\x", "\n"]
)


@settings(max_examples=100, deadline=None)
@given(
    batch=HOSTILE | st.integers() | st.none(),
    index=st.integers() | st.just(10**300),
    total=st.integers() | st.just(10**300),
    values=st.dictionaries(HOSTILE, HOSTILE | st.integers() | st.none() | st.lists(HOSTILE, max_size=2), max_size=4),
)
def test_no_mark_leads_out_of_the_folder(batch: Any, index: int, total: int, values: dict[str, Any]) -> None:
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
