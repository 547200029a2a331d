"""Batches as values: their states, their counts, the keys scripts read, and names that are safe in paths."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from comfyui_agent.domain.batches import (
    LONGEST_MEMBER_NAME,
    LONGEST_NAME,
    Batch,
    BatchKind,
    BatchStatus,
    NewBatch,
    member_name,
    mint_batch_id,
    slug,
)

SAFE = re.compile(r"[A-Za-z0-9._-]*")


def batch(status: BatchStatus = BatchStatus.COLLECTING, **counts: int) -> Batch:
    return Batch(
        id="fox_1a2b3c4d",
        name="fox",
        kind=BatchKind.SWEEP,
        status=status,
        generation=2,
        created_at="2025-01-02 03:04:05.678",
        completed_at=None,
        grid="jobs/finished/image/fox_1a2b3c4d/grid.png",
        reason="by request",
        is_paused=True,
        grid_problem=None,
        is_grid_due=False,
        metadata={"axes": []},
        **counts,
    )


def test_the_words_are_those_that_users_read() -> None:
    assert [str(status) for status in BatchStatus] == [
        "pending",
        "active",
        "collecting",
        "complete",
        "cancelled",
        "expired",
    ]
    assert [str(kind) for kind in BatchKind] == ["sweep", "burst", "book", "files", "client"]


def test_three_states_are_ends() -> None:
    ended = [status.value for status in BatchStatus if status.has_ended]
    assert ended == ["complete", "cancelled", "expired"]


def test_the_json_has_exactly_the_keys_that_scripts_rely_on() -> None:
    found = batch(pending=4, processing=3, done=2, failed=1).as_json()
    assert found == {
        "id": "fox_1a2b3c4d",
        "name": "fox",
        "kind": "sweep",
        "status": "collecting",
        "total": 10,
        "pending": 4,
        "processing": 3,
        "done": 2,
        "failed": 1,
        "created_at": "2025-01-02 03:04:05.678",
        "completed_at": None,
        "generation": 2,
        "grid": "jobs/finished/image/fox_1a2b3c4d/grid.png",
    }
    assert type(found["status"]) is str
    assert type(found["kind"]) is str


@given(st.fixed_dictionaries({key: st.integers(0, 10**6) for key in ("pending", "processing", "done", "failed")}))
def test_every_member_is_counted_once(counts: dict[str, int]) -> None:
    found = batch(**counts)
    assert found.total == sum(counts.values())
    assert found.ended == counts["done"] + counts["failed"]


def test_a_name_becomes_a_part_of_a_path() -> None:
    for text, name in [
        ("fox", "fox"),
        ("A red Fox, asleep", "A_red_Fox_asleep"),
        ("Füchse & Bären", "Fuchse_Baren"),
        ("../../etc/passwd", "etc_passwd"),
        ("a/b\\c", "a_b_c"),
        (".hidden", "hidden"),
        ("v1.5-turbo_x", "v1.5-turbo_x"),
        ("狐", ""),
        ("🦊🦊", ""),
        ("...", ""),
        ("", ""),
        ("new\nline\x00", "new_line"),
    ]:
        assert slug(text) == name, (text, name)


@given(st.text(max_size=300))
def test_any_text_is_safe_in_a_path(text: str) -> None:
    name = slug(text)
    assert SAFE.fullmatch(name)
    assert len(name) <= LONGEST_NAME
    assert not name.startswith((".", "-"))
    assert not name.endswith(".")
    assert slug(name) == name


@given(st.text(max_size=100))
def test_an_id_is_the_name_and_eight_hex_digits(text: str) -> None:
    assert re.fullmatch(rf"{re.escape(slug(text) or 'sweep')}_[0-9a-f]{{8}}", mint_batch_id(text, "sweep"))


def test_no_two_ids_are_alike() -> None:
    assert len({mint_batch_id("fox", "sweep") for _ in range(100)}) == 100


def test_the_name_of_a_member_says_what_is_different_about_it() -> None:
    for values, varying, name in [
        ({"3.seed": 7, "3.cfg": 6.5}, ["3.seed", "3.cfg"], "0012_seed-7_cfg-6.5"),
        ({"3.seed": 7, "3.cfg": 6.5}, ["3.cfg"], "0012_cfg-6.5"),
        ({"seed": 7}, [], "0012"),
        ({"text": "a red fox/.."}, ["text"], "0012_text-a_red_fox"),
        ({"text": "狐"}, ["text"], "0012_text"),
        ({"a name that is rather long": True}, ["a name that is rather long"], "0012_a_name_that_is_rathe-True"),
    ]:
        assert member_name("0012", values, varying) == name, (values, varying, name)


@given(st.dictionaries(st.text(max_size=40), st.text(max_size=100), max_size=6))
def test_the_name_of_a_member_is_safe_in_a_path(values: dict[str, str]) -> None:
    name = member_name("0012", values, list(values))
    assert SAFE.fullmatch(name)
    assert name.startswith("0012")
    assert len(name) <= LONGEST_MEMBER_NAME
    assert not name.endswith(".")


def test_a_new_batch_runs_in_parallel_and_has_no_grid_by_default() -> None:
    made = NewBatch("fox_1", "fox", BatchKind.BOOK)
    assert (made.is_serial, made.wants_grid, dict(made.metadata)) == (False, False, {})
