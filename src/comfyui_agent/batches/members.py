"""What tells one member of a batch from another."""

from __future__ import annotations

from typing import Any

from comfyui_agent.domain.jobs import Job
from comfyui_agent.store.port import parsed_object


def settings_of(job: Job) -> dict[str, Any]:
    """What makes it the one that it is: its combination, or the inputs that people gave."""
    metadata = parsed_object(job.metadata)
    settings = metadata.get("combination")
    if not isinstance(settings, dict):
        settings = metadata.get("inputs")
    return settings if isinstance(settings, dict) else {}


def label_of(job: Job) -> str:
    """Its settings in one line; its name where it has none."""
    return ", ".join(f"{name} = {value}" for name, value in settings_of(job).items()) or job.config_name
