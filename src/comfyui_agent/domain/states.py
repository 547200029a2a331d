"""The states of jobs."""

from __future__ import annotations

from comfyui_agent.domain.texts import TextEnum


class JobStatus(TextEnum):
    """The four states that users see in the database."""

    PENDING = "pending"
    PROCESSING = "processing"
    DONE = "done"
    FAILED = "failed"
