"""What a frame is told about its job: the shape of the picture, its prompt, its model, and what a sweep varied."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from comfyui_agent.domain.jobs import Job, JobId, Template
from comfyui_agent.domain.needs import AUTO
from comfyui_agent.domain.states import JobStatus
from comfyui_agent.domain.texts import parsed, whole
from comfyui_agent.domain.usual_inputs import usual_inputs, value_at
from comfyui_agent.pools import FILES
from comfyui_agent.store import operations as ops
from comfyui_agent.store.rows import parsed_object
from comfyui_agent.store.store import Store
from comfyui_agent.web.outputs import Outputs, version_of

LONGEST = 300
LONGEST_SIDE, FLATTEST = 32_768, 4
"""Frames are at most four times as wide as high, or the reverse."""
KEPT = 20_000
SHOWN = ("prompt", "checkpoint", "width", "height")
Size = tuple[int, int]


@dataclass(frozen=True)
class Facts:
    """`settings` are the values that a sweep gave the job, such as `seed 3, cfg 7`."""

    shape: Size = (1, 1)
    prompt: str = ""
    model: str = ""
    settings: str = ""


class CellFacts:
    """Templates are read once, and so is the size of each picture."""

    def __init__(self, store: Store, outputs: Outputs) -> None:
        self._store = store
        self._outputs = outputs
        self._usual: dict[str, Mapping[str, tuple[str, Any]]] = {}
        """By the hash of a template: the place of each usual input, and its value in the template."""
        self._sizes: dict[tuple[JobId, str], Size | None] = {}
        self._latest: dict[str, Size] = {}
        """The size of the picture that was looked at last, by workflow."""

    async def of(self, jobs: Iterable[Job]) -> dict[JobId, Facts]:
        jobs = list(jobs)
        for hash_ in {job.template_hash for job in jobs if job.template_hash} - self._usual.keys():
            template = await self._store.run(ops.find_template, hash_)
            _keep(self._usual, hash_, await FILES.run(_places_in, template) if template else {})
        return await FILES.run(self._look, jobs)

    def _look(self, jobs: list[Job]) -> dict[JobId, Facts]:
        sizes = {job.id: self._size(job) for job in jobs}
        return {job.id: self._facts(job, sizes[job.id]) for job in jobs}

    def _size(self, job: Job) -> Size | None:
        """The size of its result. Each file is opened once."""
        if job.status is not JobStatus.DONE or not job.outputs:
            return None
        key = job.id, version_of(job)
        if key not in self._sizes:
            _keep(self._sizes, key, self._outputs.size(job))
        size = self._sizes[key]
        if size:
            _keep(self._latest, job.workflow_id, size)
        return size

    def _facts(self, job: Job, size: Size | None) -> Facts:
        inputs = parsed_object(job.inputs)
        is_known = job.inputs is not None or not job.is_shortened
        usual = self._usual.get(job.template_hash or "", {}) if is_known else {}
        found = {name: inputs.get(place, value) for name, (place, value) in usual.items()}
        asked = found.get("width"), found.get("height")
        return Facts(
            shape=_flat(size or _size_of(*asked) or self._latest.get(job.workflow_id) or (1, 1)),
            prompt=_line(found.get("prompt")),
            model="" if found.get("checkpoint") == AUTO else _line(found.get("checkpoint")),
            settings=settings_line(job),
        )


def settings_line(job: Job) -> str:
    """The values that a sweep gave a job. Empty for any other."""
    metadata = parsed(job.metadata)
    values = metadata.get("combination") if isinstance(metadata, dict) else None
    return (
        whole(", ".join(f"{name} {value}" for name, value in values.items()), LONGEST)
        if isinstance(values, dict)
        else ""
    )


def _places_in(template: Template) -> dict[str, tuple[str, Any]]:
    graph = template.graph()
    places = usual_inputs(graph)
    found = {name: places.get(name) or places.get(f"{name}_1") for name in SHOWN}
    return {name: (here[0], value_at(graph, here[0])) for name, here in found.items() if here}


def _keep(known: dict[Any, Any], key: Any, value: Any) -> None:
    if len(known) >= KEPT:
        known.clear()
    known[key] = value


def _line(value: Any) -> str:
    return whole(" ".join(value.split()), LONGEST) if isinstance(value, str) else ""


def _size_of(width: Any, height: Any) -> Size | None:
    is_size = all(type(side) is int and 0 < side <= LONGEST_SIDE for side in (width, height))
    return (width, height) if is_size else None


def _flat(size: Size) -> Size:
    width, height = size
    return min(width, FLATTEST * height), min(height, FLATTEST * width)
