"""The states of jobs. docs/state_machine.md draws what leads from one to the next."""

from __future__ import annotations

from comfyui_agent.domain.text_enum import TextEnum


class JobStatus(TextEnum):
    """The four states that users see in the database."""

    PENDING = "pending"
    PROCESSING = "processing"
    DONE = "done"
    FAILED = "failed"
