"""What results were made with: the text that reached the samplers, the seed and the size. And their index of texts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from comfyui_agent.domain.jobs import Job, JobId
from comfyui_agent.domain.needs import AUTO
from comfyui_agent.domain.prompts import DIGITS, Graph, inputs_of
from comfyui_agent.domain.usual_inputs import usual_inputs
from comfyui_agent.pools import REQUESTS
from comfyui_agent.store import operations as ops
from comfyui_agent.store.prompts import PromptSource
from comfyui_agent.store.rows import parsed_object
from comfyui_agent.store.store import Store

LONGEST_PROMPT = 500
KEPT = 256
INDEXED_AT_ONCE = 100
LONGEST_SIDE = 32_768
TOLD = ("prompt", "seed", "width", "height", "checkpoint")
LAG_SECONDS = 1.0

Source = Job | PromptSource
Values = Mapping[str, Any]
"""Values by place, in the order of the places."""
NOTHING: Values = {}
Places = Mapping[str, Values]
"""The places of a template that tell what its results are, by usual name, with the values that it has itself there."""


@dataclass(frozen=True)
class Made:
    """What a result was made with, as far as its template says."""

    prompt: str = ""
    seed: int | None = None
    size: tuple[int, int] | None = None
    model: str = ""


class Prompts:
    """Reads what jobs are made with. Places of templates are kept, and values that batches share."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._templates: dict[str, Places] = {}
        self._shared: dict[tuple[str, str], Values] = {}

    async def made(self, jobs: Sequence[JobId]) -> dict[JobId, Made]:
        """What some jobs are made with. A job that is gone is left out."""
        return await self.read(await self._store.run(ops.prompt_sources, jobs))

    async def index(self, most: int = INDEXED_AT_ONCE, lag: float = LAG_SECONDS) -> int:
        """Index the prompts of the next results that ended more than `lag` seconds ago. Returns how many."""
        found = await self._store.run(ops.next_prompts, most, lag)
        if found is None:
            return 0
        made = await self.read(found.results)
        return await self._store.run(ops.add_prompts, found, [(job, each.prompt) for job, each in made.items()])

    async def read(self, sources: Iterable[Source]) -> dict[JobId, Made]:
        """What jobs are made with whose rows are at hand."""
        known = [(each, await self._places(each), await self._shared_values(each)) for each in sources]
        return await REQUESTS.run(
            lambda: {each.id: _made(places, {**shared, **parsed_object(each.inputs)}) for each, places, shared in known}
        )

    async def _places(self, source: Source) -> Places:
        key = source.template_hash
        if key is None:
            return {}
        if key not in self._templates:
            template = await self._store.run(ops.find_template, key)
            _make_room(self._templates)
            found = await REQUESTS.run(places_of, parsed_object(template.text)) if template is not None else {}
            self._templates[key] = found
        return self._templates[key]

    async def _shared_values(self, source: Source) -> Values:
        """What its batch keeps for all members, as far as it tells something."""
        if source.batch_id is None or source.template_hash is None:
            return NOTHING
        key = source.batch_id, source.template_hash
        if key not in self._shared:
            batch = await self._store.run(ops.find_batch, source.batch_id)
            shared = batch.metadata.get("shared") if batch else None
            values = shared.get(source.template_hash) if isinstance(shared, dict) else None
            wanted = set().union(*(await self._places(source)).values())
            _make_room(self._shared)
            self._shared[key] = {place: values[place] for place in wanted & values.keys()} if values else NOTHING
        return self._shared[key]


def places_of(graph: Graph) -> Places:
    """Where the prompt, the seed, the size and the model stand in a template."""
    found: dict[str, dict[str, Any]] = {name: {} for name in TOLD}
    for numbered, places in usual_inputs(graph).items():
        if (name := numbered.rstrip(DIGITS).rstrip("_")) in found:
            found[name] |= {place: _value(graph, place) for place in places}
    return found


def _made(places: Places, inputs: Values) -> Made:
    values = {name: [inputs.get(place, own) for place, own in here.items()] for name, here in places.items()}
    prompts, models = [_texts(values.get(name, ())) for name in ("prompt", "checkpoint")]
    numbers = [next((each for each in values.get(name, ()) if type(each) is int), 0) for name in ("width", "height")]
    return Made(
        " / ".join(prompts)[:LONGEST_PROMPT],
        next((each for each in values.get("seed", ()) if type(each) is int), None),
        (numbers[0], numbers[1]) if all(0 < each <= LONGEST_SIDE for each in numbers) else None,
        models[0] if models and models[0] != AUTO else "",
    )


def _texts(values: Iterable[Any]) -> list[str]:
    """Each text once, on one line."""
    return list(dict.fromkeys(filter(None, (" ".join(each.split()) for each in values if isinstance(each, str)))))


def _value(graph: Graph, place: str) -> Any:
    node_id, _, name = place.partition(".")
    value = inputs_of(graph, node_id).get(name)
    return value[: 4 * LONGEST_PROMPT] if isinstance(value, str) else value


def _make_room(kept: dict[Any, Any]) -> None:
    if len(kept) >= KEPT:
        kept.clear()
