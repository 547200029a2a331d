"""The inputs, settings and label of a member of a batch."""

from __future__ import annotations

from typing import Any

from comfyui_agent.domain.batches import Batch
from comfyui_agent.domain.jobs import Job
from comfyui_agent.store.rows import parsed_object


def effective_inputs(job: Job, batch: Batch | None) -> dict[str, Any]:
    """The values by place in a job's prompt: its own, and those that its batch stores for all members."""
    shared = batch.metadata.get("shared") if batch else None
    values = shared.get(job.template_hash) if isinstance(shared, dict) else None
    return {**(values if isinstance(values, dict) else {}), **parsed_object(job.inputs)}


def settings_of(job: Job, batch: Batch) -> dict[str, Any]:
    """Its combination in a sweep, or the inputs given for it and its book."""
    metadata = parsed_object(job.metadata)
    for key in ("combination", "inputs"):
        if isinstance(metadata.get(key), dict):
            return dict(metadata[key])
    given, own = batch.metadata.get("inputs"), metadata.get("overrides")
    return {**given, **own} if isinstance(given, dict) and isinstance(own, dict) else {}


def label_of(job: Job, batch: Batch) -> str:
    """Its settings in one line, or its name if it has none."""
    return ", ".join(f"{name} = {value}" for name, value in settings_of(job, batch).items()) or job.config_name
