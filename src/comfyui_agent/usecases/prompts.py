"""What results were made with: the text that reached the samplers, the seed and the size. And their index of texts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from comfyui_agent.domain.jobs import JobId
from comfyui_agent.domain.prompts import Graph, inputs_of
from comfyui_agent.domain.usual_inputs import usual_inputs
from comfyui_agent.pools import REQUESTS
from comfyui_agent.store import operations as ops
from comfyui_agent.store.prompts import PromptSource
from comfyui_agent.store.rows import parsed_object
from comfyui_agent.store.store import Store

LONGEST_PROMPT = 500
KEPT = 256
INDEXED_AT_ONCE = 100
LAG_SECONDS = 1.0

Values = Mapping[str, Any]
"""Values by place, in the order of the places."""
NOTHING: Values = {}


@dataclass(frozen=True)
class Made:
    """What a result was made with, as far as its template says."""

    prompt: str = ""
    seed: int | None = None
    size: tuple[int, int] | None = None


@dataclass(frozen=True)
class _Places:
    """The places of a template that tell what its results are, with the values that it has itself there."""

    prompt: Values
    seed: Values
    width: Values
    height: Values

    @property
    def all(self) -> set[str]:
        return {*self.prompt, *self.seed, *self.width, *self.height}

    def made(self, inputs: Values) -> Made:
        texts = [" ".join(value.split()) for value in _values(self.prompt, inputs) if isinstance(value, str)]
        numbers = [
            next((value for value in _values(places, inputs) if type(value) is int), None)
            for places in (self.seed, self.width, self.height)
        ]
        seed, width, height = numbers
        size = (width, height) if width and height and width > 0 and height > 0 else None
        return Made(" / ".join(dict.fromkeys(filter(None, texts)))[:LONGEST_PROMPT], seed, size)


UNKNOWN = _Places(NOTHING, NOTHING, NOTHING, NOTHING)


class Prompts:
    """Reads what jobs are made with. Places of templates are kept, and values that batches share."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._templates: dict[str, _Places] = {}
        self._shared: dict[tuple[str, str], Values] = {}

    async def made(self, jobs: Sequence[JobId]) -> dict[JobId, Made]:
        """What some jobs are made with. A job that is gone is left out."""
        return await self._read(await self._store.run(ops.prompt_sources, jobs))

    async def index(self, most: int = INDEXED_AT_ONCE, lag: float = LAG_SECONDS) -> int:
        """Index the prompts of the next results that ended more than `lag` seconds ago. Returns how many."""
        found = await self._store.run(ops.next_prompts, most, lag)
        if found is None:
            return 0
        made = await self._read(found.results)
        return await self._store.run(ops.add_prompts, found, [(job, each.prompt) for job, each in made.items()])

    async def _read(self, sources: Iterable[PromptSource]) -> dict[JobId, Made]:
        known = [(each, await self._places(each), await self._shared_values(each)) for each in sources]
        return await REQUESTS.run(
            lambda: {each.id: places.made({**shared, **parsed_object(each.inputs)}) for each, places, shared in known}
        )

    async def _places(self, source: PromptSource) -> _Places:
        key = source.template_hash
        if key is None:
            return UNKNOWN
        if key not in self._templates:
            template = await self._store.run(ops.find_template, key)
            _make_room(self._templates)
            found = await REQUESTS.run(places_of, parsed_object(template.text)) if template is not None else UNKNOWN
            self._templates[key] = found
        return self._templates[key]

    async def _shared_values(self, source: PromptSource) -> Values:
        """What its batch keeps for all members, as far as it tells something."""
        if source.batch_id is None or source.template_hash is None:
            return NOTHING
        key = source.batch_id, source.template_hash
        if key not in self._shared:
            batch = await self._store.run(ops.find_batch, source.batch_id)
            shared = batch.metadata.get("shared") if batch else None
            values = shared.get(source.template_hash) if isinstance(shared, dict) else None
            wanted = (await self._places(source)).all
            _make_room(self._shared)
            self._shared[key] = {place: values[place] for place in wanted & values.keys()} if values else NOTHING
        return self._shared[key]


def places_of(graph: Graph) -> _Places:
    """Where the prompt, the seed and the size stand in a template."""
    usual = usual_inputs(graph)

    def at(name: str, groups: int) -> Values:
        named = [places for key, places in usual.items() if key == name or key.startswith(f"{name}_")][:groups]
        return {place: _value(graph, place) for places in named for place in places}

    return _Places(at("prompt", len(usual)), at("seed", 1), at("width", 1), at("height", 1))


def _value(graph: Graph, place: str) -> Any:
    node_id, _, name = place.partition(".")
    value = inputs_of(graph, node_id).get(name)
    return value[: 4 * LONGEST_PROMPT] if isinstance(value, str) else value


def _values(places: Values, inputs: Values) -> Iterable[Any]:
    return (inputs.get(place, own) for place, own in places.items())


def _make_room(kept: dict[Any, Any]) -> None:
    if len(kept) >= KEPT:
        kept.clear()
