"""The layout of a batch in its grid: by the chosen axes, or by those of the sweep."""

from __future__ import annotations

from collections.abc import Mapping

from comfyui_agent.batches.sweep_request import GridAxes
from comfyui_agent.domain.batches import Batch
from comfyui_agent.domain.combinations import Axis, BadAxes, Combinations, Mode
from comfyui_agent.domain.grid_layout import GridLayout, layout_by_axes


class BadLayout(ValueError):
    """Axes that cannot be laid out as chosen. The message names those that exist."""


def layout_of(batch: Batch, axes: GridAxes) -> GridLayout | None:
    """A layout by axes if there are two to lay out or some were chosen. None means a contact sheet.

    BadLayout if the chosen axes cannot be laid out.
    """
    combinations = combinations_of(batch)
    chosen = axes.chosen()
    if combinations is None:
        if chosen:
            raise BadLayout(f"the batch {batch.id} has no axes: leave out --x, --y and --pages")
        return None
    of_sweep = batch.metadata.get("grid")
    if not chosen and isinstance(of_sweep, Mapping):
        chosen = dict(of_sweep)
    known = [axis.name for axis in combinations.axes]
    for key, name in chosen.items():
        if name not in known:
            raise BadLayout(f"--{key} {name!r} is no axis of {batch.id}; there are {', '.join(known)}")
    if len(set(chosen.values())) < len(chosen):
        raise BadLayout("--x, --y and --pages need different axes")
    return layout_by_axes(combinations, chosen.get("x", ""), chosen.get("y", ""), chosen.get("pages", ""))


def combinations_of(batch: Batch) -> Combinations | None:
    """The recorded axes of a sweep. None for another batch."""
    axes = batch.metadata.get("axes")
    if not isinstance(axes, list):
        return None
    try:
        read = [Axis(str(each["name"]), tuple(each["places"]), tuple(each["values"])) for each in axes]
        return Combinations(read, Mode(batch.metadata.get("mode", Mode.MATRIX.value)))
    except (BadAxes, KeyError, TypeError, ValueError):
        return None
