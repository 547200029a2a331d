"""What a job needs of a server: models, node classes, the size of its pictures; and what a server lacks for it."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

from comfyui_agent.domain.jobs import Template
from comfyui_agent.domain.node_classes import MODEL_ENDINGS, takes_file
from comfyui_agent.domain.prompts import Graph, class_of, inputs_of, place
from comfyui_agent.domain.texts import json_text, listed

AUTO = "auto"
"""Stands for the first model that a server offers."""
SIZES = {"width": 0, "height": 0, "batch_size": 1, "length": 1, "frames": 1, "video_frames": 1}
"""Inputs that make up the size of pictures, and what counts where a node has no number there."""
TEMPLATES_KEPT = 64
COMBINATIONS_KEPT = 4096
ANYTHING = "-"
"""The key of jobs whose needs cannot be known: any server may have them, and says what is wrong."""
BIGGER = 1.05
"""So much more memory counts as more."""
GIB = 1024**3

Offered = Mapping[str, Mapping[str, Collection[str]]]
"""The choices at a server, by node class and input. Classes that it does not have are missing."""


def choices_among(offers: Iterable[Offered], class_type: str, name: str) -> list[str]:
    """What any of some servers offers at an input of a class of nodes."""
    return sorted({choice for each in offers for choice in each.get(class_type, {}).get(name) or ()})


class ModelInput(NamedTuple):
    """A model that a graph names, with the input that names it."""

    class_type: str
    name: str
    value: str

    def is_among(self, offered: Offered) -> bool:
        choices = offered.get(self.class_type, {}).get(self.name)
        if choices is None:
            return True  # it takes any text, or there is no such node
        return self.value in choices or (self.value == AUTO and bool(choices))


@dataclass(frozen=True)
class Needs:
    """Needs that many jobs share. `workflow` is the hash of their template."""

    workflow: str
    models: tuple[ModelInput, ...]
    classes: tuple[str, ...]
    pixels: int
    memory_over: int | None = None
    """More bytes than this are needed; None if a job with these needs never ran out of memory."""

    @cached_property
    def key(self) -> str:
        return _digest([self.workflow, self.models, self.classes, self.pixels])[:16]

    @cached_property
    def model_set(self) -> str:
        """A short key of the models, the same for all workflows that load the same ones. Empty if there are none."""
        return _digest(self.models)[:8] if self.models else ""

    def lacks(self, offered: Offered, capacity: int | None = None) -> tuple[str, ...]:
        """What a server lacks for a job, in words. `capacity` is the memory that one prompt could have there."""
        found = [f"node {name}" for name in self.classes if name not in offered]
        missing = [model for model in self.models if not model.is_among(offered)]
        found += [f"model {model.value} for {model.class_type}" for model in missing]
        if self.exceeds(capacity):
            found.append(f"memory: {gigabytes(capacity)}, and more than {gigabytes(self.memory_over)} is needed")
        return tuple(found)

    def exceeds(self, capacity: int | None) -> bool:
        """Whether a job ran out of memory where there was as much."""
        return capacity is not None and self.memory_over is not None and capacity < self.memory_over * BIGGER

    def as_row(self) -> dict[str, Any]:
        """The columns of the table `needs`."""
        return {
            "key": self.key,
            "workflow": self.workflow,
            "model_set": self.model_set,
            "models": json_text(self.models),
            "classes": json_text(self.classes),
            "pixels": self.pixels,
        }


@dataclass(frozen=True)
class Timing:
    """Mean seconds of renders with certain needs at a server; `cold_seconds` where models had to be loaded."""

    needs: str
    server: str
    model_set: str
    runs: int
    seconds: float | None
    loads: int
    cold_seconds: float | None

    @property
    def load_seconds(self) -> float | None:
        """How long loading takes. None until renders with and without it were seen."""
        if self.seconds is None or self.cold_seconds is None:
            return None
        return max(0.0, self.cold_seconds - self.seconds)


def load_times(timings: Iterable[Timing]) -> dict[tuple[str, str], float]:
    """Seconds of a load by model set and server, where they were measured. Of several workflows the longest counts."""
    found: dict[tuple[str, str], float] = {}
    for each in timings:
        if each.load_seconds is not None:
            where = each.model_set, each.server
            found[where] = max(each.load_seconds, found.get(where, 0.0))
    return found


def model_names(models: Iterable[ModelInput]) -> str:
    """The models as people name them: files first, in the order of their names."""
    return " + ".join(model_files(models)) or "no model"


def model_files(models: Iterable[ModelInput]) -> list[str]:
    """The files among some models, each once."""
    values = [model.value for model in sorted(models)]
    return list(dict.fromkeys(each for each in values if _is_file(each) or each == AUTO))


def missing_everywhere(found: Mapping[str, Sequence[str]]) -> str:
    """What all servers lack for a job, and where that was looked for. Empty if one lacks nothing.

    `found` is what each server lacks, by its address.
    """
    if not found or not all(found.values()):
        return ""
    missing = list(dict.fromkeys(each for lacking in found.values() for each in lacking))
    places = ", ".join(each.partition("://")[2] for each in found)
    return f"no server has {listed(missing)}; looked for at {places}"


def missing_for(needs: Iterable[Needs], offers: Mapping[str, Offered]) -> str:
    """What some of these needs lack at all servers. `offers` is what each server has, by its address."""
    found = [{address: each.lacks(offered) for address, offered in offers.items()} for each in needs]
    unmet = [each for each in found if all(each.values())]
    return missing_everywhere({address: [lack for each in unmet for lack in each[address]] for address in offers})


def gigabytes(size: int | None) -> str:
    return "an unknown amount" if size is None else f"{size / GIB:.1f} GB"


def needs_of_template(template: Template, inputs: Mapping[str, Any]) -> Needs:
    """What a template with values at its places needs."""
    graph = _graph_of(template)
    return _needs_with(template, tuple(each for each in inputs.items() if _counts(graph, *each)))


def _is_model_input(class_type: str, name: str, value: Any) -> bool:
    """Whether an input decides which models are loaded: a model file anywhere, or any text of a loader."""
    if not isinstance(value, str) or not value or takes_file(class_type, name):
        return False
    return _is_file(value) or "Loader" in class_type


def _is_file(value: str) -> bool:
    return value.lower().endswith(MODEL_ENDINGS)


def _counts(graph: Graph, where: str, value: Any) -> bool:
    """Whether a value at a place may change what is needed."""
    node_id, _, name = where.partition(".")
    if not isinstance(value, (str, int)) or not name or not isinstance(graph.get(node_id), Mapping):
        return False
    kind, before = class_of(graph, node_id), inputs_of(graph, node_id).get(name)
    return name in SIZES or any(_is_model_input(kind, name, each) for each in (value, before))


@lru_cache(TEMPLATES_KEPT)
def _graph_of(template: Template) -> Graph:
    return template.graph()


@lru_cache(COMBINATIONS_KEPT)
def _needs_with(template: Template, changes: tuple[tuple[str, Any], ...]) -> Needs:
    graph = place(_graph_of(template), dict(changes))
    nodes = [(class_of(graph, node_id), inputs_of(graph, node_id)) for node_id in graph]
    models = {
        ModelInput(kind, name, value)
        for kind, inputs in nodes
        for name, value in inputs.items()
        if _is_model_input(kind, name, value)
    }
    classes = {kind for kind, _ in nodes} - {""}
    pixels = max((_pixels(inputs) for _, inputs in nodes), default=0)
    return Needs(template.hash, tuple(sorted(models)), tuple(sorted(classes)), pixels)


def _pixels(inputs: Mapping[str, Any]) -> int:
    """Width by height by pictures of a node that has both; 0 if it has not, or takes them from other nodes."""
    numbers = [(inputs.get(name), default) for name, default in SIZES.items()]
    factors = [each if isinstance(each, int) and 0 <= each < 2**20 else default for each, default in numbers]
    return min(math.prod(factors), 2**62)


def _digest(facts: Any) -> str:
    return hashlib.sha256(json_text(facts).encode("utf-8")).hexdigest()
