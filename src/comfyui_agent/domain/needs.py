"""What a job needs of a server: the models its graph names, its node classes, the size of its pictures."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, Protocol

from comfyui_agent.domain.jobs import Template
from comfyui_agent.domain.node_classes import MODEL_ENDINGS, takes_file
from comfyui_agent.domain.prompts import Graph, NoSuchPlace, class_of, inputs_of, split_place
from comfyui_agent.domain.texts import json_text

AUTO = "auto"
"""Stands for the first model that a server offers."""
COUNTS = ("batch_size", "length", "frames", "video_frames")
TEMPLATES_KEPT = 64
COMBINATIONS_KEPT = 4096
ANYTHING = "-"
"""The key of jobs whose needs cannot be known: any server may have them, and says what is wrong."""


@dataclass(frozen=True, order=True)
class ModelInput:
    """A model that a graph names, with the input that names it."""

    class_type: str
    name: str
    value: str

    @property
    def is_file(self) -> bool:
        return self.value.lower().endswith(MODEL_ENDINGS)


@dataclass(frozen=True)
class Needs:
    """Needs that many jobs share. `workflow` is the hash of their template."""

    workflow: str
    models: tuple[ModelInput, ...]
    classes: tuple[str, ...]
    pixels: int

    @cached_property
    def key(self) -> str:
        return _digest([self.workflow, self._listed_models, self.classes, self.pixels])[:16]

    @cached_property
    def model_set(self) -> str:
        """A short key of the models, the same for all workflows that load the same ones. Empty if there are none."""
        return _digest(self._listed_models)[:8] if self.models else ""

    @property
    def _listed_models(self) -> list[list[str]]:
        return [[model.class_type, model.name, model.value] for model in self.models]

    def as_row(self) -> dict[str, Any]:
        """The columns of the table `needs`."""
        return {
            "key": self.key,
            "workflow": self.workflow,
            "model_set": self.model_set,
            "models": json_text(self._listed_models),
            "classes": json_text(self.classes),
            "pixels": self.pixels,
        }


@dataclass(frozen=True)
class KnownNeeds:
    """Needs as they are stored. With `memory_over`, more bytes than that are needed."""

    needs: Needs
    memory_over: int | None = None


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


def model_names(models: Iterable[ModelInput]) -> str:
    """The models as people name them: files first, in the order of their names."""
    names = dict.fromkeys(model.value for model in sorted(models) if model.is_file or model.value == AUTO)
    return " + ".join(names) or "no model"


class Rendering(Protocol):
    """A job with the values at the places of its template, whatever else it is."""

    @property
    def template(self) -> Template | None: ...

    @property
    def inputs(self) -> Mapping[str, Any]: ...


def needs_of(job: Rendering) -> Needs | None:
    """The needs of a job. None if it names its workflow by id only."""
    return None if job.template is None else needs_of_template(job.template, job.inputs)


def needs_of_template(template: Template, inputs: Mapping[str, Any]) -> Needs:
    """What a template with values at its places needs."""
    facts = _facts_of(template)
    changes = tuple((where, value) for where, value in inputs.items() if _counts(facts, where, value))
    return _combined(template, changes)


def needs_of_graph(graph: Graph) -> Needs:
    return needs_of_template(Template.of(graph), {})


def is_model_input(class_type: str, name: str, value: Any) -> bool:
    """Whether an input decides which models are loaded: a model file anywhere, or any text of a loader."""
    if not isinstance(value, str) or not value or takes_file(class_type, name):
        return False
    return value.lower().endswith(MODEL_ENDINGS) or "Loader" in class_type


@dataclass(frozen=True)
class _Facts:
    graph: Graph
    models: Mapping[str, ModelInput]
    """By place."""
    classes: tuple[str, ...]


def _counts(facts: _Facts, where: str, value: Any) -> bool:
    """Whether a value at a place changes what is needed."""
    if where in facts.models or where.endswith((".width", ".height", *(f".{name}" for name in COUNTS))):
        return isinstance(value, (str, int))
    if not isinstance(value, str):
        return False
    try:
        node_id, name = split_place(where)
    except NoSuchPlace:
        return False
    return is_model_input(class_of(facts.graph, node_id), name, value)


@lru_cache(TEMPLATES_KEPT)
def _facts_of(template: Template) -> _Facts:
    graph = template.graph()
    models = {
        f"{node_id}.{name}": ModelInput(class_of(graph, node_id), name, value)
        for node_id in graph
        for name, value in inputs_of(graph, node_id).items()
        if is_model_input(class_of(graph, node_id), name, value)
    }
    classes = {class_of(graph, node_id) for node_id in graph} - {""}
    return _Facts(graph, models, tuple(sorted(classes)))


@lru_cache(COMBINATIONS_KEPT)
def _combined(template: Template, changes: tuple[tuple[str, Any], ...]) -> Needs:
    facts = _facts_of(template)
    models = dict(facts.models)
    sizes: dict[str, dict[str, Any]] = {}
    for where, value in changes:
        node_id, name = split_place(where)
        if isinstance(value, str):
            models[where] = ModelInput(class_of(facts.graph, node_id), name, value)
        else:
            sizes.setdefault(node_id, {})[name] = value
    pixels = [_pixels({**inputs_of(facts.graph, node_id), **sizes.get(node_id, {})}) for node_id in facts.graph]
    return Needs(template.hash, tuple(sorted(set(models.values()))), facts.classes, max(pixels, default=0))


def _pixels(inputs: Mapping[str, Any]) -> int:
    """Width by height by pictures of a node that has both; 0 if it has not, or takes them from other nodes."""
    pixels = 1
    for name in ("width", "height", *COUNTS):
        value = inputs.get(name, 1 if name in COUNTS else 0)
        pixels *= value if isinstance(value, int) and 0 <= value < 2**20 else 1 if name in COUNTS else 0
    return min(pixels, 2**62)


def _digest(facts: Any) -> str:
    return hashlib.sha256(json_text(facts).encode("utf-8")).hexdigest()
