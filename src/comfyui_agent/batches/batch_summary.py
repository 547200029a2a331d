"""How a batch stands, in words."""

from __future__ import annotations

from comfyui_agent.domain.batches import Batch
from comfyui_agent.domain.pace import duration_of, rate_of
from comfyui_agent.domain.texts import attention


def sentence(batch: Batch, per_second: float | None = None) -> str:
    """How it stands, in one line."""
    needy = f", {attention(batch.attention)}" if batch.attention else ""
    words = f"{batch.done} of {batch.total} done{needy}"
    left = batch.pending + batch.processing
    if per_second and left:
        words += f", {rate_of(per_second)}, about {duration_of(left / per_second)} left"
    if batch.is_paused:
        words += ", paused"
    if batch.status.has_ended:
        words += f", {batch.status}" + (f": {batch.reason}" if batch.reason else "")
        words += ", making the grid" if batch.is_grid_due else ""
    return words
