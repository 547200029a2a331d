"""Which members of a batch are on a screen: what the address asks for, and never too many."""

from __future__ import annotations

from typing import Any, cast
from urllib.parse import parse_qsl

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from comfyui_agent.domain.batches import Batch, BatchKind, BatchStatus
from comfyui_agent.domain.tokens import Role
from comfyui_agent.web.context import Context
from comfyui_agent.web.pages.grid_view import MOST_CELLS, ON_A_SHEET, GridView, grid_view_of
from comfyui_agent.web.screens import View

LONGEST = 1_000_000


def batch_of(axes: dict[str, int] | None, total: int | None = None, **facts: Any) -> Batch:
    """A batch whose axes have so many values each."""
    said = [{"name": name, "places": [name], "values": list(range(count))} for name, count in (axes or {}).items()]
    metadata: dict[str, Any] = {"axes": said, "mode": "matrix"} if axes is not None else {}
    count = 1
    for length in (axes or {}).values():
        count *= length
    usual = ("fox_1", "fox", BatchKind.SWEEP, BatchStatus.COLLECTING, 1, "", None, None, None, False, None, False)
    pending = (count if total is None else total) - facts.get("done", 0)
    return Batch(*usual, metadata=metadata, pending=pending, **facts)


def window(batch: Batch, query: str = "") -> GridView:
    asked = tuple(parse_qsl(query.removeprefix("/batches/fox_1").removeprefix("?"), keep_blank_values=True))
    view = View(cast("Context", None), Role.USER, "/batches/fox_1", {"batch_id": "fox_1"}, asked)
    return grid_view_of(view, batch)


def test_a_small_matrix_is_on_one_screen_with_its_headings() -> None:
    found = window(batch_of({"cfg": 3, "seed": 4}))
    assert found.columns == ("seed = 0", "seed = 1", "seed = 2", "seed = 3")
    assert found.rows == ("cfg = 0", "cfg = 1", "cfg = 2")
    assert found.lines[1] == ("cfg = 1", (4, 5, 6, 7))
    assert not found.words
    assert not any((found.before, found.after, found.above, found.below, found.front))


def test_other_axes_make_pages_that_are_chosen_one_by_one() -> None:
    batch = batch_of({"model": 2, "prompt": 3, "cfg": 2, "seed": 2})
    found = window(batch, "?page=5")
    assert [(name, [is_chosen for _, _, is_chosen in values]) for name, values in found.axes.items()] == [
        ("model", [False, True]),
        ("prompt", [False, True, False]),
    ]
    assert found.indexes == tuple(range(16, 20))
    _, elsewhere, _ = found.axes["model"][0]
    assert window(batch, f"?page={elsewhere}").indexes == tuple(range(4, 8)), "the same prompt of the other model"


def test_people_lay_it_out_in_another_way() -> None:
    batch = batch_of({"cfg": 2, "seed": 3})
    [(x, y)] = [(x, y) for x, y, is_chosen in window(batch).layouts if not is_chosen]
    found = window(batch, f"?x={x}&y={y}")
    assert (found.columns, found.indexes) == (("cfg = 0", "cfg = 1"), (0, 3, 1, 4, 2, 5))
    assert (found.wanted.x, found.wanted.y) == ("cfg", "seed")


def test_an_axis_that_is_not_there_is_said_and_the_usual_layout_shown() -> None:
    found = window(batch_of({"cfg": 2, "seed": 3}), "?x=nothing")
    assert found.problem
    assert found.indexes == tuple(range(6))


def test_a_contact_sheet_goes_on_from_part_to_part_until_its_end() -> None:
    batch = batch_of(None, total=3 * ON_A_SHEET + 5)
    seen: list[int] = []
    found = window(batch)
    while True:
        seen += [index for index in found.indexes if index < batch.total]
        if not found.after:
            break
        found = window(batch, found.after)
    assert seen == list(range(batch.total))
    assert window(batch, found.before).indexes[0] == 2 * ON_A_SHEET


def test_a_large_matrix_goes_on_in_rows_and_columns_until_its_end() -> None:
    batch = batch_of({"cfg": 90, "seed": 70})
    seen: set[int] = set()
    row = window(batch)
    while True:
        part = row
        while True:
            seen |= set(part.indexes)
            if not part.after:
                break
            part = window(batch, part.after)
        if not row.below:
            break
        row = window(batch, row.below)
    assert seen == set(range(6300))


@pytest.mark.parametrize(
    "axes", [{"cfg": 3, "seed": 2_000}, {"cfg": 2_000, "seed": 3}, {"cfg": 1, "seed": 9_000, "a": 2}]
)
def test_a_row_or_column_that_is_too_long_is_cut(axes: dict[str, int]) -> None:
    found = window(batch_of(axes))
    assert len(found.indexes) <= MOST_CELLS
    assert found.after or found.below


def test_one_link_leads_to_where_the_work_is() -> None:
    for batch in (batch_of({"cfg": 100, "seed": 100}, done=8_765), batch_of(None, total=10_000, done=8_765)):
        found = window(batch, window(batch).front)
        assert 8_765 in found.indexes
        assert not found.front


def test_no_link_leads_to_work_where_there_is_none() -> None:
    batch = batch_of({"cfg": 100, "seed": 100})
    assert window(batch, "?row=50").front
    ended = Batch(**{**vars(batch), "status": BatchStatus.CANCELLED})
    assert not window(ended, "?row=50").front


@settings(deadline=None, max_examples=40)
@given(
    st.dictionaries(st.sampled_from(["a", "b", "c"]), st.integers(1, 70), min_size=1),
    st.dictionaries(
        st.sampled_from(["page", "row", "column", "from", "x", "y"]),
        st.one_of(st.integers(-5, LONGEST).map(str), st.text(max_size=12), st.sampled_from(["a", "b", "c"])),
    ),
)
def test_whatever_is_asked_for_there_are_at_most_600_cells_and_all_are_members(
    axes: dict[str, int], asked: dict[str, str]
) -> None:
    batch = batch_of(axes)
    view = View(cast("Context", None), Role.USER, "/batches/fox_1", {}, tuple(asked.items()))
    found = grid_view_of(view, batch)
    assert 0 < len(found.indexes) <= MOST_CELLS
    assert len(set(found.indexes)) == len(found.indexes)
    if found.is_matrix:
        assert len(found.indexes) == len(found.rows) * len(found.columns)
        assert all(0 <= index < batch.total for index in found.indexes)
    else:
        assert 0 <= found.indexes[0] < max(1, batch.total)


@pytest.mark.parametrize("query", ["?from=²", "?from=99999999999999999999", "?from=-1", "?from=1e9", "?from="])
def test_what_is_no_number_is_the_first_part(query: str) -> None:
    assert window(batch_of(None, total=1_000), query).indexes[0] == 0
