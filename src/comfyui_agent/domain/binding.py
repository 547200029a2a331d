"""Binding: from the names that people give to inputs to places in a workflow, with values that fit there.

A name is looked up in this order: the recipe's map, `${name}` placeholders in the template, an address (`6.text`,
`6_text`), an unambiguous match with the name of an input or the title of a node, and the usual inputs, such as
`prompt`, which are found by following links. Where there are several of a kind, a title tells them apart.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from comfyui_agent.domain.prompts import Graph, NoSuchPlace, class_of, inputs_of, is_link, natural_order, split_place
from comfyui_agent.domain.texts import listed, suggest
from comfyui_agent.domain.usual_inputs import usual_inputs
from comfyui_agent.domain.value_types import FALSE, TRUE, text_of

TOKEN = re.compile(r"\$\$\{|\$\{([A-Za-z_][\w.:-]*)\}")
"""A placeholder, or `$${`, which stands for `${` itself."""
MOST_CANDIDATES = 12


class Unbindable(Exception):
    """Inputs without a place, or with a value that does not fit. `problems` says what is wrong, by name."""

    def __init__(self, problems: Mapping[str, str], bound: Mapping[str, Any] | None = None) -> None:
        super().__init__("; ".join(f"{name}: {message}" for name, message in problems.items()))
        self.problems = dict(problems)
        self.bound = dict(bound or {})
        """The values of the other inputs, by place."""


@dataclass(frozen=True)
class Recipe:
    """One entry of `workflows.yaml`. `inputs` maps a name to the places of its value."""

    workflow_id: str
    template_path: str
    description: str = ""
    required_inputs: tuple[str, ...] = ()
    defaults: Mapping[str, Any] = field(default_factory=dict)
    inputs: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    purpose: str = ""
    """What else it is offered for: `upscale`."""
    reuse: str | None = None
    """Whether its jobs take recorded results, unless they say so themselves."""

    @property
    def names(self) -> dict[str, str]:
        """The names of places, by place."""
        return {place: name for name, places in self.inputs.items() for place in places}


@dataclass(frozen=True)
class Place:
    """An input of a node. `value` is what the template has there."""

    place: str
    node_id: str
    name: str
    class_type: str
    title: str
    value: Any
    is_link: bool


class Places:
    """All places of one workflow."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self.all: dict[str, Place] = {}
        self.placeholders: dict[str, list[str]] = defaultdict(list)
        self._to_fill: list[str] = []
        self._nodes = natural_order(graph)
        self._by_address: dict[str, Place] = {}
        self._by_name: dict[str, list[str]] = defaultdict(list)
        self._by_title: dict[str, list[str]] = defaultdict(list)
        for node_id in self._nodes:
            kind, title = class_of(graph, node_id), _title_of(graph, node_id)
            for name, value in inputs_of(graph, node_id).items():
                self._add(Place(f"{node_id}.{name}", node_id, name, kind, title, value, is_link(value)))

    def _add(self, place: Place) -> None:
        self.all[place.place] = place
        known = self._by_address.setdefault(address := f"{place.node_id}_{place.name}", place)
        if len(place.node_id) < len(known.node_id):
            self._by_address[address] = place
        tokens = _tokens_in(place.value)
        if tokens:
            self._to_fill.append(place.place)
        for name in dict.fromkeys(tokens):
            if name:
                self.placeholders[name].append(place.place)
        if not place.is_link:
            self._by_name[_plain(place.name)].append(place.place)
            if _plain(place.title):
                self._by_title[_plain(place.title)].append(place.place)

    def find(self, name: str, recipe: Recipe | None = None) -> list[str]:
        """The places that a name stands for, none for a placeholder. NoSuchPlace suggests other names."""
        found = self.known(name, recipe)
        if found is None:
            raise NoSuchPlace(self._misnamed(name, self._matching(name), recipe))
        return found

    def known(self, name: str, recipe: Recipe | None = None) -> list[str] | None:
        """`find`, but None where a name fits nothing or several places."""
        if recipe is not None and name in recipe.inputs:
            return [self.addressed(place) for place in recipe.inputs[name]]
        if name in self.placeholders:
            return []
        if (address := self._address(name)) is not None:
            return [address]
        matches = self._matching(name, 2)
        if len(matches) == 1:
            return matches
        if name in self.usual:
            return list(self.usual[name])
        titled = self.titled.get(_key(name), [])
        return list(titled[0]) if len(titled) == 1 else None

    @cached_property
    def usual(self) -> dict[str, tuple[str, ...]]:
        """The places of the inputs that people think of, by name."""
        return usual_inputs(self._graph)

    @cached_property
    def titled(self) -> dict[str, list[tuple[str, ...]]]:
        """Numbered inputs whose node has a title of its own, by name and title: `seed_upscale_sampler`."""
        found: dict[str, list[tuple[str, ...]]] = defaultdict(list)
        for name, places in self.usual.items():
            base, _, number = name.rpartition("_")
            node = self.all[places[0]]
            title, kind = _key(node.title), _key(node.class_type).replace("_", "")
            letters = title.replace("_", "")
            if number.isdigit() and letters and letters not in kind and kind not in letters:
                found[f"{base}_{title}"].append(places)
        return found

    @cached_property
    def usual_names(self) -> dict[str, list[str]]:
        """By place: the names of the usual inputs that go there."""
        found: dict[str, list[str]] = defaultdict(list)
        titled = [(name, groups[0]) for name, groups in self.titled.items() if len(groups) == 1]
        for name, places in [*self.usual.items(), *titled]:
            for place in places:
                found[place].append(name)
        return found

    def reached(self, name: str, recipe: Recipe) -> list[str]:
        """All places that a name sets, also by its placeholder. Empty if there are none."""
        try:
            return self.find(name, recipe) or self.placeholders.get(name, [])
        except NoSuchPlace:
            return []

    def filled(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """The values of all places with placeholders, filled in."""
        return {place: _filled(self.all[place].value, values) for place in self._to_fill}

    def addressed(self, text: str) -> str:
        """Check a place such as `6.text`. NoSuchPlace suggests other nodes or inputs."""
        node_id, name = split_place(text)
        if text in self.all:
            return text
        if node_id not in self._nodes:
            raise NoSuchPlace(f"{text!r}: the workflow has no node {node_id!r}; {suggest(node_id, self._nodes)}")
        own = [place.name for place in self.all.values() if place.node_id == node_id]
        raise NoSuchPlace(f"{text!r}: node {node_id} has no input {name!r}; {suggest(name, own)}")

    def _address(self, name: str) -> str | None:
        """The place of `6.text` or `6_text` if there is a node 6, else None."""
        node_id, dot, _ = name.partition(".")
        if dot and node_id in self._nodes:
            return self.addressed(name)
        found = self._by_address.get(name)
        return found.place if found else None

    def _matching(self, name: str, most: int | None = None) -> list[str]:
        """The places whose input or node has this name; of each kind at most so many."""
        plain = _plain(name)
        known = (self._by_name.get(plain, []), self._by_title.get(plain, [])) if plain else ()
        return list(dict.fromkeys(place for places in known for place in places[:most]))

    def _misnamed(self, name: str, matches: list[str], recipe: Recipe | None) -> str:
        """What is wrong with a name that fits no place, or several."""
        titled = self.titled.get(_key(name), [])
        usual = self.usual.items()
        numbered = {places: each for each, places in usual if each.rpartition("_")[0] == name or places in titled}
        if numbered:
            shown = [f"{each} ({self._described(places[0])})" for places, each in numbered.items()]
            return f"{_short(name)} fits several places: {listed(shown, MOST_CANDIDATES)}. Name one of them"
        if matches:
            candidates = listed([self._described(place) for place in matches], MOST_CANDIDATES)
            return f"{_short(name)} fits several places: {candidates}. Name one, such as {matches[0]}"
        known = {place.name for place in self.all.values() if not place.is_link}
        known |= {*self.placeholders, *self._by_title, *self.usual, *self.titled}
        known |= {*recipe.inputs, *recipe.required_inputs} if recipe else set()
        return f"{_short(name)} has no place in the workflow; {suggest(name[:60], known)}"

    def _described(self, place: str) -> str:
        return f"{place} ({self.all[place].title or self.all[place].class_type})"


def bind(places: Places, recipe: Recipe, given: Mapping[str, Any]) -> dict[str, Any]:
    """Values by place: the given ones, and defaults for the others. Unbindable names everything that is wrong."""
    problems: dict[str, str] = {}
    values = {**recipe.defaults, **given}
    for name in recipe.required_inputs:
        if values.get(name) is None:
            wanted = ", ".join(recipe.required_inputs)
            problems[name] = f"is missing: {recipe.workflow_id} needs {wanted}"
    bound: dict[str, Any] = {}
    owners: dict[str, str] = {}
    for name in given:
        for place in places.placeholders.get(name, ()):
            owners[place] = name
    for name, value in values.items():
        if name in problems or (value is None and name not in given):
            continue
        try:
            for place in places.find(name, recipe):
                if owners.get(place, name) != name and owners[place] in given and name in given:
                    raise NoSuchPlace(f"{name!r} and {owners[place]!r} both go to {place}: give one of them")
                if place not in owners or name in given:
                    bound[place], owners[place] = fitting(places.all[place], value), name
        except (NoSuchPlace, ValueError) as error:
            problems[name] = str(error)
    for name in places.placeholders:
        if values.get(name) is None and name not in problems and not bound.keys() >= set(places.placeholders[name]):
            problems[name] = f"is missing: the template has ${{{name}}} and no default for it"
    if problems:
        raise Unbindable(problems, bound)
    return {**places.filled(values), **bound}


def fitting(place: Place, value: Any) -> Any:
    """The value in the type that the template has at a place. ValueError if it does not fit."""
    now = place.value
    if value is None and now is not None:
        raise ValueError("nothing does not fit: write a value, or leave the line out")
    if is_link(now) or is_link(value) or now is None or (isinstance(now, str) and TOKEN.search(now)):
        return value
    takes = f"{place.place} ({place.class_type}) takes"
    if isinstance(now, bool):
        word = str(value).lower()
        if isinstance(value, bool) or word in TRUE | FALSE:
            return value if isinstance(value, bool) else word in TRUE
        raise ValueError(f"{_short(value)} does not fit: {takes} true or false")
    if isinstance(now, (int, float)):
        return _number(value, isinstance(now, int), takes)
    if isinstance(now, str):
        if isinstance(value, str):
            return value
        if isinstance(value, int) and not isinstance(value, bool):
            return str(value)
        raise ValueError(f"{_short(value)} does not fit: {takes} a text; put it in quotes")
    return value


def _number(value: Any, wants_whole: bool, takes: str) -> int | float:
    number = value
    if isinstance(value, str):
        try:
            number = int(value)
        except ValueError:
            with suppress(ValueError):
                number = float(value)
    is_finite = isinstance(number, int) or (isinstance(number, float) and math.isfinite(number))
    if not is_finite or isinstance(number, bool):
        raise ValueError(f"{_short(value)} does not fit: {takes} {'a whole number' if wants_whole else 'a number'}")
    return int(number) if isinstance(number, float) and wants_whole and number.is_integer() else number


def literal(value: Any) -> Any:
    """Values in which nothing is a placeholder: each `${name}` stands for itself when they are filled in."""
    if isinstance(value, str):
        return TOKEN.sub(lambda token: f"$${{{token[1]}}}" if token[1] else "$$${", value)
    if isinstance(value, list):
        return [literal(part) for part in value]
    if isinstance(value, dict):
        return {key: literal(part) for key, part in value.items()}
    return value


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:59] + "…"


def _plain(name: str) -> str:
    return re.sub(r"[\W_]+", " ", name).strip().lower()


def _key(name: str) -> str:
    return _plain(name).replace(" ", "_")


def _title_of(graph: Graph, node_id: str) -> str:
    node = graph.get(node_id)
    meta = node.get("_meta") if isinstance(node, Mapping) else None
    title = meta.get("title") if isinstance(meta, Mapping) else None
    return title if isinstance(title, str) else ""


def _tokens_in(value: Any) -> list[str]:
    """The names of placeholders, and an empty text for each escaped one."""
    if isinstance(value, str):
        return TOKEN.findall(value)
    if isinstance(value, list):
        return [name for part in value for name in _tokens_in(part)]
    if isinstance(value, dict):
        return [name for part in value.values() for name in _tokens_in(part)]
    return []


def _filled(value: Any, values: Mapping[str, Any]) -> Any:
    """A value of the template with its placeholders filled in. A text that is one placeholder keeps the type."""
    if isinstance(value, str):
        whole = TOKEN.fullmatch(value)
        if whole and whole[1]:
            return values.get(whole[1])
        return TOKEN.sub(lambda match: text_of(values.get(match[1])) if match[1] else "${", value)
    if isinstance(value, list):
        return [_filled(part, values) for part in value]
    if isinstance(value, dict):
        return {key: _filled(part, values) for key, part in value.items()}
    return value
