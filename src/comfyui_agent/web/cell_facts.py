"""What a frame is told about its job: the shape of the picture, its prompt, its model, and what a sweep varied."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from comfyui_agent.domain.jobs import Job, JobId
from comfyui_agent.domain.states import JobStatus
from comfyui_agent.domain.texts import whole
from comfyui_agent.pools import FILES
from comfyui_agent.store.rows import parsed_object
from comfyui_agent.usecases.prompts import Made, Prompts
from comfyui_agent.web.outputs import Outputs, version_of

LONGEST = 300
FLATTEST = 4
"""Frames are at most four times as wide as high, or the reverse."""
KEPT = 20_000
Size = tuple[int, int]


@dataclass(frozen=True)
class Facts:
    """`settings` are the values that a sweep gave the job, such as `seed 3, cfg 7`."""

    shape: Size = (1, 1)
    prompt: str = ""
    model: str = ""
    settings: str = ""


class CellFacts:
    """The size of each picture is read once."""

    def __init__(self, prompts: Prompts, outputs: Outputs) -> None:
        self._prompts = prompts
        self._size = lru_cache(KEPT)(outputs.size)
        self._latest: dict[str, Size] = {}
        """The size of the picture that was looked at last, by workflow."""

    async def of(self, jobs: Iterable[Job]) -> dict[JobId, Facts]:
        jobs = list(jobs)
        made = await self._prompts.read(job for job in jobs if job.inputs is not None or not job.is_shortened)
        return await FILES.run(self._look, jobs, made)

    def _look(self, jobs: Sequence[Job], made: Mapping[JobId, Made]) -> dict[JobId, Facts]:
        sizes = {job.id: self._size(job.outputs[0], version_of(job)) for job in jobs if _is_done(job)}
        self._latest |= {job.workflow_id: size for job in jobs if (size := sizes.get(job.id))}
        return {job.id: self._facts(job, sizes.get(job.id), made.get(job.id, Made())) for job in jobs}

    def _facts(self, job: Job, size: Size | None, made: Made) -> Facts:
        combination = parsed_object(job.metadata).get("combination")
        settings = combination.items() if isinstance(combination, dict) else ()
        return Facts(
            shape=_flat(size or made.size or self._latest.get(job.workflow_id) or (1, 1)),
            prompt=whole(made.prompt, LONGEST),
            model=whole(made.model, LONGEST),
            settings=whole(", ".join(f"{name} {value}" for name, value in settings), LONGEST),
        )


def _is_done(job: Job) -> bool:
    return job.status is JobStatus.DONE and bool(job.outputs)


def _flat(size: Size) -> Size:
    width, height = size
    return min(width, FLATTEST * height), min(height, FLATTEST * width)
