"""The axes of a batch, as they were written down."""

from __future__ import annotations

from comfyui_agent.batches.grid_layout import layout_of
from comfyui_agent.batches.sweeps import GridWish
from comfyui_agent.domain.batches import Batch, BatchKind, BatchStatus


def test_axes_that_were_written_down_by_hand_are_a_contact_sheet() -> None:
    for axes in (7, [], [7], [{"name": "seed"}], [{"name": "seed", "places": [], "values": []}]):
        batch = Batch(
            *("fox_1", "fox", BatchKind.SWEEP, BatchStatus.ACTIVE, 1, "", None, None, None, False, None, False),
            metadata={"axes": axes, "mode": "matrix"},
        )
        assert layout_of(batch, GridWish()) is None
