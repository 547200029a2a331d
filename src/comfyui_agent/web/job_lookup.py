"""Which job an address means."""

from __future__ import annotations

from comfyui_agent.domain.jobs import Job, JobId
from comfyui_agent.store import operations as ops
from comfyui_agent.store.store import Store

LONGEST_ID = 19


async def job_named(store: Store, name: str) -> Job | None:
    """A job by its id, else by its name. Digits are an id first: the page links to ids."""
    found = None
    if name.isascii() and name.isdigit() and len(name) < LONGEST_ID:
        found = await store.run(ops.find_job_by_id, JobId(int(name)))
    return found or await store.run(ops.find_job_by_name, name)
