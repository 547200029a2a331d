"""The progress of a batch as a sentence."""

from __future__ import annotations

from comfyui_agent.domain.batches import Batch
from comfyui_agent.domain.pace import outlook, rate_of
from comfyui_agent.domain.texts import attention


def sentence(batch: Batch, per_minute: float | None = None, seconds_left: float | None = None) -> str:
    text = f"{batch.done} of {batch.total} done"
    if batch.attention:
        text += f", {attention(batch.attention)}"
    left = batch.pending + batch.processing
    if per_minute and left:
        text += f", {rate_of(per_minute)}"
    text += outlook(seconds_left)
    if batch.is_paused:
        text += ", paused"
    if batch.status.has_ended:
        text += f", {batch.status}" + (f": {batch.reason}" if batch.reason else "")
        text += ", making the grid" if batch.is_grid_due else ""
    return text
