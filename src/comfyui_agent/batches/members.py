"""What a member of a batch is made with, and what tells one from another."""

from __future__ import annotations

from typing import Any

from comfyui_agent.domain.batches import Batch
from comfyui_agent.domain.jobs import Job
from comfyui_agent.store.port import parsed_object


def effective_inputs(job: Job, batch: Batch | None) -> dict[str, Any]:
    """The values by place that go into a job's prompt: its own, and those that its batch keeps for all members."""
    shared = batch.metadata.get("shared") if batch else None
    values = shared.get(job.template_hash) if isinstance(shared, dict) else None
    return {**(values if isinstance(values, dict) else {}), **parsed_object(job.inputs)}


def settings_of(job: Job, batch: Batch) -> dict[str, Any]:
    """What makes it the one that it is: its combination, or the inputs that people gave for it and for its book."""
    metadata = parsed_object(job.metadata)
    for key in ("combination", "inputs"):
        if isinstance(metadata.get(key), dict):
            return dict(metadata[key])
    given, own = batch.metadata.get("inputs"), metadata.get("overrides")
    return {**given, **own} if isinstance(given, dict) and isinstance(own, dict) else {}


def label_of(job: Job, batch: Batch) -> str:
    """Its settings in one line; its name where it has none."""
    return ", ".join(f"{name} = {value}" for name, value in settings_of(job, batch).items()) or job.config_name
