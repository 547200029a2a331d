"""How the results of a batch are laid out in its grid, drawn or on a screen: as people wish, or said with the sweep."""

from __future__ import annotations

from collections.abc import Mapping

from comfyui_agent.batches.sweeps import GridAxes
from comfyui_agent.domain.batches import Batch
from comfyui_agent.domain.combinations import Axis, BadAxes, Combinations, Mode
from comfyui_agent.domain.grid_layout import GridLayout, layout_by_axes


class BadLayout(ValueError):
    """Axes that cannot be laid out as people wish: why, and which there are."""


def layout_of(batch: Batch, wish: GridAxes) -> GridLayout | None:
    """By axes where there are two to lay out, or people named some; else None: a contact sheet.

    BadLayout if people name axes that cannot be laid out so.
    """
    combinations = combinations_of(batch)
    if combinations is None:
        if wish != GridAxes():
            raise BadLayout(f"the batch {batch.id} has no axes: leave out --x, --y and --pages")
        return None
    said = batch.metadata.get("grid")
    known = [axis.name for axis in combinations.axes]
    chosen = dict(said) if isinstance(said, Mapping) and wish == GridAxes() else {}
    chosen |= {key: value for key, value in vars(wish).items() if value}
    for key, name in chosen.items():
        if name not in known:
            raise BadLayout(f"--{key} {name!r} is no axis of {batch.id}; there are {', '.join(known)}")
    if len(set(chosen.values())) < len(chosen):
        raise BadLayout("--x, --y and --pages need different axes")
    return layout_by_axes(combinations, chosen.get("x", ""), chosen.get("y", ""), chosen.get("pages", ""))


def combinations_of(batch: Batch) -> Combinations | None:
    """The axes of a sweep, as they were written down; None for another batch."""
    axes = batch.metadata.get("axes")
    if not isinstance(axes, list):
        return None
    try:
        read = [Axis(str(each["name"]), tuple(each["places"]), tuple(each["values"])) for each in axes]
        return Combinations(read, Mode(batch.metadata.get("mode", Mode.MATRIX.value)))
    except (BadAxes, KeyError, TypeError, ValueError):
        return None
