"""The axes of a batch, as they were written down and as people wish to see them."""

from __future__ import annotations

import pytest

from comfyui_agent.batches.grids import layout_of
from comfyui_agent.batches.sweep_request import GridAxes
from comfyui_agent.domain.batches import Batch, BatchKind, BatchStatus


def batch_of(axes: object, **metadata: object) -> Batch:
    return Batch(
        *("fox_1", "fox", BatchKind.SWEEP, BatchStatus.ACTIVE, 1, "", None, None, None, False, None, False),
        metadata={"axes": axes, "mode": "matrix", **metadata},
    )


@pytest.mark.parametrize("is_said_with_it", [False, True])
@pytest.mark.parametrize(
    ("key", "across", "down"), [("x", "seed", "steps"), ("y", "steps", "seed"), ("pages", "steps", "cfg")]
)
def test_an_axis_that_is_named_goes_where_it_was_named(key: str, across: str, down: str, is_said_with_it: bool) -> None:
    axes = [{"name": name, "places": [name], "values": [1, 2]} for name in ("cfg", "seed", "steps")]
    wish = {key: "seed"}
    batch = batch_of(axes, grid=wish if is_said_with_it else {})
    layout = layout_of(batch, GridAxes() if is_said_with_it else GridAxes(**wish))
    assert layout is not None
    assert (layout.x, layout.y) == (across, down)


def test_axes_that_were_written_down_by_hand_are_a_contact_sheet() -> None:
    for axes in (7, [], [7], [{"name": "seed"}], [{"name": "seed", "places": [], "values": []}]):
        assert layout_of(batch_of(axes), GridAxes()) is None
