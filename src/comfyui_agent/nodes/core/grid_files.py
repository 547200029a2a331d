"""The grid of a batch as files of ComfyUI. Runs on Python 3.9."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from comfyui_agent.nodes.core.batch_grid import GridOrder, Member, draw_grid
from comfyui_agent.nodes.core.batch_state import BatchState, GridWish, Image
from comfyui_agent.nodes.host import LOG, ComfyUI


def save_grid(batch: BatchState, node_id: str, host: ComfyUI) -> list[Image]:
    """Draw the grid of a batch whose members have ended, and save it like any output: a picture for each page."""
    wish = batch.wishes.get(node_id, GridWish())
    source = batch.sources.get(node_id, "")
    failed = len(batch.failed)
    attention = f", {failed} need{'s' if failed == 1 else ''} attention" if failed else ""
    order = GridOrder(
        batch.combinations,
        {index: _member(batch, index, source, host) for index in range(batch.total)},
        title=wish.title.strip() or batch.batch_id,
        subtitle=f"{batch.completed_count} of {batch.total} done{attention}",
        columns=wish.columns,
        rows=wish.rows,
        cell_pixels=wish.cell_pixels,
    )
    grid = draw_grid(order)
    for warning in grid.warnings:
        LOG.warning("Batch %s: %s", batch.batch_id, warning)
    prefix = f"{wish.filename_prefix.strip('/') or 'E3/grid'}/{batch.batch_id}/grid"
    texts: Mapping[str, Any] = {**batch.texts, "e3_batch": batch.summary()}
    return [host.save(picture, prefix, "output", texts) for picture in grid]


def _member(batch: BatchState, index: int, source: str, host: ComfyUI) -> Member:
    """The first of the pictures that its source saved, or why there is none."""
    if index in batch.failed:
        return Member(state="failed", reason=batch.failed[index])
    images = batch.pictures.get(index, {}).get(source) or batch.results.get(index, {}).get("images") or []
    file = next((path for path in map(host.file_of, images) if path is not None), None)
    return Member(file=file, state="done")
