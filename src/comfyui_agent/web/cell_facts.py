"""What a frame is told about its job: the shape of the picture, its prompt, its model, and what a sweep varied."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from comfyui_agent.domain.jobs import Job, JobId, Template
from comfyui_agent.domain.needs import AUTO
from comfyui_agent.domain.states import JobStatus
from comfyui_agent.domain.texts import whole
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
Usual = Mapping[str, tuple[str, Any]]
"""The place of each usual input of a template, and its value there."""


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
        self._size = lru_cache(KEPT)(outputs.size)
        self._usual: dict[str, Usual] = {}
        self._latest: dict[str, Size] = {}
        """The size of the picture that was looked at last, by workflow."""

    async def of(self, jobs: Iterable[Job]) -> dict[JobId, Facts]:
        jobs = list(jobs)
        usual = {hash_: await self._usual_of(hash_) for hash_ in {job.template_hash or "" for job in jobs}}
        return await FILES.run(self._look, jobs, usual)

    async def _usual_of(self, template_hash: str) -> Usual:
        if template_hash not in self._usual:
            template = await self._store.run(ops.find_template, template_hash)
            if len(self._usual) >= KEPT:
                self._usual.clear()
            self._usual[template_hash] = await FILES.run(_places_in, template) if template else {}
        return self._usual[template_hash]

    def _look(self, jobs: Sequence[Job], usual: Mapping[str, Usual]) -> dict[JobId, Facts]:
        sizes = {job.id: self._size(job.outputs[0], version_of(job)) for job in jobs if _is_done(job)}
        self._latest |= {job.workflow_id: size for job in jobs if (size := sizes.get(job.id))}
        return {job.id: self._facts(job, sizes.get(job.id), usual[job.template_hash or ""]) for job in jobs}

    def _facts(self, job: Job, size: Size | None, usual: Usual) -> Facts:
        inputs = parsed_object(job.inputs)
        is_known = job.inputs is not None or not job.is_shortened
        found = {name: inputs.get(place, value) for name, (place, value) in usual.items()} if is_known else {}
        asked = _size_of(found.get("width"), found.get("height"))
        combination = parsed_object(job.metadata).get("combination")
        settings = combination.items() if isinstance(combination, dict) else ()
        return Facts(
            shape=_flat(size or asked or self._latest.get(job.workflow_id) or (1, 1)),
            prompt=_line(found.get("prompt")),
            model="" if found.get("checkpoint") == AUTO else _line(found.get("checkpoint")),
            settings=whole(", ".join(f"{name} {value}" for name, value in settings), LONGEST),
        )


def _is_done(job: Job) -> bool:
    return job.status is JobStatus.DONE and bool(job.outputs)


def _places_in(template: Template) -> Usual:
    graph = template.graph()
    places = usual_inputs(graph)
    found = {name: places.get(name) or places.get(f"{name}_1") for name in SHOWN}
    return {name: (here[0], value_at(graph, here[0])) for name, here in found.items() if here}


def _line(value: Any) -> str:
    return whole(" ".join(value.split()), LONGEST) if isinstance(value, str) else ""


def _size_of(width: Any, height: Any) -> Size | None:
    is_size = all(type(side) is int and 0 < side <= LONGEST_SIDE for side in (width, height))
    return (width, height) if is_size else None


def _flat(size: Size) -> Size:
    width, height = size
    return min(width, FLATTEST * height), min(height, FLATTEST * width)
