"""The inputs that people think of, such as the prompt and the seed, found by following links from the samplers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from comfyui_agent.domain.prompts import Graph, class_of, inputs_of, is_link, natural_order

Places = tuple[str, ...]

TEXTS = ("text", "prompt", "text_g", "text_l", "clip_l", "clip_g", "t5xxl", "llama", "bert", "mt5xl", "tags", "lyrics")
PRIMITIVES = ("value", "string", "text", "prompt", "seed", "int", "float", "number")
"""Inputs of nodes that only hold a value."""
SETTINGS: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "seed": (("seed", "noise_seed"), ("noise",)),
    "steps": (("steps",), ("sigmas",)),
    "cfg": (("cfg",), ("guider",)),
    "sampler": (("sampler_name",), ("sampler",)),
    "scheduler": (("scheduler",), ("sigmas",)),
    "denoise": (("denoise",), ("sigmas",)),
}
"""By usual name: what the input is called at a sampler, and the links of a sampler that may lead to it."""
LATENTS: Mapping[str, tuple[str, ...]] = {
    "width": ("width",),
    "height": ("height",),
    "batch": ("batch_size",),
    "frames": ("length", "video_frames", "num_frames", "frames"),
}
CHECKPOINTS = ("ckpt_name", "unet_name", "model_name", "gguf_name")
LORAS = ("lora_name",)
RATES = ("fps", "frame_rate")
TO_LATENT = ("latent_image", "latent", "samples", "positive", "negative")
"""Links towards the node that says how large the picture is: of films, it makes the conditioning as well."""
MOST_SAMPLERS = 16
ORDER = ("prompt", "negative_prompt", *SETTINGS, *LATENTS, "checkpoint", "loras", "image", "fps")


def usual_inputs(graph: Graph) -> dict[str, Places]:
    """The places of the usual inputs, by name. Where there are several of a kind they are numbered: `seed_1`, `seed_2`.

    One value may go to several places, such as the two texts of a node that takes the prompt twice.
    """
    found = _Search(graph).run()
    named: dict[str, Places] = {}
    for name in ORDER:
        groups = found.get(name, {})
        for number, places in enumerate(groups, 1):
            named[name if len(groups) == 1 else f"{name}_{number}"] = places
    return named


def usual_values(graph: Graph) -> dict[str, Any]:
    """The values of the usual inputs in a prompt, by name. What is set nowhere is left out."""
    values = {name: value_at(graph, places[0]) for name, places in usual_inputs(graph).items()}
    return {name: value for name, value in values.items() if value is not None and value != ""}


def value_at(graph: Graph, place: str) -> Any:
    """The value at a place such as `6.text`. None if a link or nothing is there."""
    node_id, _, name = place.rpartition(".")
    value = inputs_of(graph, node_id).get(name)
    return None if is_link(value) else value


@dataclass
class _Search:
    graph: Graph
    found: dict[str, dict[Places, None]] = field(default_factory=dict)

    def run(self) -> dict[str, dict[Places, None]]:
        nodes = natural_order(self.graph)
        samplers = [node_id for node_id in nodes if self._is_sampler(node_id)][:MOST_SAMPLERS]
        for sampler in sorted(samplers, key=lambda each: len({*self._walk(each)}.intersection(samplers))):
            self._of_sampler(sampler)
        prompts, negative = self.found.get("prompt", {}), self.found.get("negative_prompt", {})
        self.found["negative_prompt"] = {each: None for each in negative if each not in prompts}
        for node_id in nodes:
            if class_of(self.graph, node_id).startswith("LoadImage"):
                self._note("image", self._places(node_id, ("image",)))
            self._note("fps", self._places(node_id, RATES)[:1])
        return self.found

    def _of_sampler(self, sampler: str) -> None:
        for name, role in (("prompt", "positive"), ("negative_prompt", "negative")):
            for places in self._texts(sampler, role):
                self._note(name, places)
        for name, (called, links) in SETTINGS.items():
            behind = self._walk(sampler, links, ("sigmas", "noise", "sampler", "guider"))
            found = (self._places(node_id, called) for node_id in chain([sampler], behind))
            self._note(name, next(filter(None, found), ()))
        for node_id in self._walk(sampler, TO_LATENT, TO_LATENT):
            if self._is_sampler(node_id):
                break  # its picture is taken on from there
            if self._places(node_id, ("width",)):
                for name, called in LATENTS.items():
                    self._note(name, self._places(node_id, called)[:1])
                break
        for node_id in self._walk(sampler, ("model", "guider"), ("model", "guider")):
            self._note("loras", self._places(node_id, LORAS))
            self._note("checkpoint", self._places(node_id, CHECKPOINTS))

    def _is_sampler(self, node_id: str) -> bool:
        linked = {name for name, value in inputs_of(self.graph, node_id).items() if is_link(value)}
        return "guider" in linked or linked >= {"model", "positive"}

    def _note(self, name: str, places: Places) -> None:
        if places:
            self.found.setdefault(name, {})[places] = None

    def _source(self, node_id: str, name: str) -> tuple[str, Any] | None:
        """The node and the output that an input is connected to."""
        value: Any = inputs_of(self.graph, node_id).get(name)
        return (value[0], value[1]) if is_link(value) and value[0] in self.graph else None

    def _walk(self, node_id: str, first: tuple[str, ...] = (), then: tuple[str, ...] = ()) -> Iterator[str]:
        """Nodes upstream, the nearest first: through `first` from the node itself, through `then` from the others.

        Without names, through all inputs.
        """
        seen, waiting = {node_id}, [(node_id, first)]
        while waiting:
            current, names = waiting.pop(0)
            for name in names or inputs_of(self.graph, current):
                source = self._source(current, name)
                if source is not None and source[0] not in seen:
                    seen.add(source[0])
                    waiting.append((source[0], then))
                    yield source[0]

    def _texts(self, sampler: str, role: str) -> Iterator[Places]:
        """The texts that reach a sampler as its positive or negative conditioning."""
        seen, waiting = set[tuple[str, str]](), [(sampler, role)]
        while waiting:
            node_id, role = waiting.pop(0)
            inputs = inputs_of(self.graph, node_id)
            if (node_id, role) in seen or "ZeroOut" in class_of(self.graph, node_id):
                continue
            seen.add((node_id, role))
            texts = self._places(node_id, TEXTS) if node_id != sampler else ()
            if texts:
                yield texts
                continue
            if role in inputs or "guider" in inputs:
                names = [role if role in inputs else "guider"]
            elif role == "negative" and "model" in inputs:  # a guider without one
                names = []
            else:
                names = [name for name in inputs if name.startswith("conditioning")]
            for name in names:
                source = self._source(node_id, name)
                if source is not None:
                    waiting.append((source[0], self._role(source, role)))

    def _role(self, source: tuple[str, Any], role: str) -> str:
        """Nodes that take both conditionings give the positive one first."""
        if {"positive", "negative"} <= inputs_of(self.graph, source[0]).keys() and source[1] in (0, 1):
            return ("positive", "negative")[int(source[1])]
        return role

    def _places(self, node_id: str, names: tuple[str, ...]) -> Places:
        """Where the values of these inputs can be set: at the node, or at the one that holds the value for it."""
        inputs = inputs_of(self.graph, node_id)
        found = [self._place(node_id, name) for name in names if name in inputs]
        return tuple(dict.fromkeys(place for place in found if place is not None))

    def _place(self, node_id: str, name: str) -> str | None:
        seen = set[str]()
        while (source := self._source(node_id, name)) is not None and source[0] not in seen:
            node_id = source[0]
            seen.add(node_id)
            held = [each for each in PRIMITIVES if each in inputs_of(self.graph, node_id)]
            if len(held) != 1:
                return None
            name = held[0]
        return None if is_link(inputs_of(self.graph, node_id).get(name)) else f"{node_id}.{name}"
