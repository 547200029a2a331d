"""Facts of the whole fleet. Each server is asked now and then, and what it answered last is kept while it is away."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar
from urllib.parse import quote

from comfyui_agent.clock import Clock
from comfyui_agent.comfy.address import ServerAddress
from comfyui_agent.comfy.errors import ComfyError, NoSuchRoute
from comfyui_agent.comfy.limits import MB, Limits
from comfyui_agent.comfy.shapes import expect
from comfyui_agent.comfy.tasks import end_tasks
from comfyui_agent.comfy.transport import CHUNK, Transport
from comfyui_agent.gateway.union import united_definitions, united_lists
from comfyui_agent.pools import PARSING
from comfyui_agent.wire.prompts import Json

log = logging.getLogger(__name__)

A = TypeVar("A")
U = TypeVar("U")

LIMITS = Limits(connect_seconds=2.0, answer_seconds=8.0, silent_download_seconds=8.0, retries=0)
LARGEST_FILE = 100 * MB
DEFINITIONS_SECONDS, FRESH_SECONDS = 30.0, 5.0
AGAIN_SECONDS = 2.0
"""How soon facts are asked for again if a server did not answer."""
OLD_FACTOR = 10
PATIENCE = 1.0
"""How long a caller waits for something newer than `OLD_FACTOR` times the usual age."""


class FleetAway(Exception):
    """No server of the fleet has answered yet."""


@dataclass
class Fact(Generic[A, U]):
    """What the servers say about one thing, by address, and what that makes together."""

    ask: Callable[[Transport], Awaitable[A]]
    unite: Callable[[list[A]], U]
    fresh_seconds: float = FRESH_SECONDS
    answers: dict[str, A] = field(default_factory=dict)
    together: U | None = None
    asked_at: float = -math.inf
    is_complete: bool = False
    asking: asyncio.Task[None] | None = None


class Upstream:
    """The servers of the fleet as one. `urls` tells which they are; FleetAway while none of them has ever answered."""

    def __init__(self, urls: Callable[[], Iterable[str]], clock: Clock) -> None:
        self._urls = urls
        self._clock = clock
        self._transports: dict[str, Transport] = {}
        self._definitions = Fact(_definitions, united_definitions, DEFINITIONS_SECONDS)
        self._stats = Fact(_object_at("system_stats"), _united_stats)
        self._features = Fact(_object_at("features"), lambda answers: answers[0])
        self._models = Fact(_models, united_lists)

    def start(self) -> None:
        """Ask for the definitions already, which are large."""
        self._definitions.asking = asyncio.create_task(self._ask(self._definitions))

    async def close(self) -> None:
        facts = (self._definitions, self._stats, self._features, self._models)
        await end_tasks([fact.asking for fact in facts if fact.asking is not None])
        await asyncio.gather(*(transport.close() for transport in self._transports.values()))

    @property
    def servers(self) -> int:
        """How many there are."""
        return len(self._fleet())

    async def object_info(self, node_class: str | None) -> Json:
        """The definitions of one class, of which there may be none, or of all. Do not change them."""
        known = await self._known(self._definitions)
        if node_class is None:
            return known
        return {node_class: known[node_class]} if node_class in known else {}

    async def system_stats(self) -> Json:
        """The system of the first server that answered, and the devices of all."""
        return await self._known(self._stats)

    async def features(self) -> Json:
        """What the first server that answered can do."""
        return await self._known(self._features)

    async def models(self) -> dict[str, list[str]]:
        """Model files by folder."""
        return await self._known(self._models)

    async def free(self, unload_models: bool, free_memory: bool) -> None:
        """Have every server free its memory. Those that are away have none."""
        body = {"unload_models": unload_models, "free_memory": free_memory}

        async def ask(transport: Transport) -> bool:
            await transport.change("free", body)
            return True

        if not any(await asyncio.gather(*(_answer(ask, each) for each in self._fleet().values()))):
            raise self._away()

    async def view(self, server: str, params: Mapping[str, str]) -> tuple[bytes, str] | None:
        """A file of one server and its content type. None if it is not there, too large, or the server is away."""
        transport = self._fleet().get(server)
        if transport is None:
            return None
        content = bytearray()
        with contextlib.suppress(ComfyError):
            async with transport.download("view", params) as response:
                if response.status != 200:
                    return None
                async for chunk in response.content.iter_chunked(CHUNK):
                    content += chunk
                    if len(content) > LARGEST_FILE:
                        return None
                return bytes(content), response.content_type
        return None

    async def _known(self, fact: Fact[A, U]) -> U:
        """What is known. It is asked for anew in the background; only who would get nothing, or much older, waits."""
        age = self._clock.now() - fact.asked_at
        if age >= (fact.fresh_seconds if fact.is_complete else AGAIN_SECONDS):
            if fact.asking is None or fact.asking.done():
                fact.asking = asyncio.create_task(self._ask(fact))
            if fact.together is None or age >= OLD_FACTOR * fact.fresh_seconds:
                await self._clock.first_of({fact.asking}, None if fact.together is None else PATIENCE)
        if fact.together is None:
            raise self._away()
        return fact.together

    async def _ask(self, fact: Fact[A, U]) -> None:
        """Ask every server. What one said before counts while it does not answer."""
        fleet = self._fleet()
        asked = await asyncio.gather(*(_answer(fact.ask, each) for each in fleet.values()))
        new = {address: each for address, each in zip(fleet, asked, strict=True) if each is not None}
        known = fact.answers | new
        answers = {address: known[address] for address in fleet if address in known}
        if answers:
            fact.together = await PARSING.run(_united, fact, answers)
            fact.answers = answers
        fact.is_complete = len(new) == len(fleet)
        fact.asked_at = self._clock.now()

    def _fleet(self) -> dict[str, Transport]:
        """The servers by address, in the order of the fleet."""
        addresses = {str(address): address for address in map(ServerAddress.parse, self._urls())}
        for name, address in addresses.items():
            if name not in self._transports:
                self._transports[name] = Transport(address, LIMITS)
        return {name: self._transports[name] for name in addresses}

    def _away(self) -> FleetAway:
        names = ", ".join(self._fleet())
        where = f"no ComfyUI answers at {names}: is one running there?"
        return FleetAway(where if names else "there is no ComfyUI server yet: e3 run starts those of comfyui.launch")


async def _answer(ask: Callable[[Transport], Awaitable[A]], transport: Transport) -> A | None:
    """What a server answers. None if it is away, or no ComfyUI."""
    try:
        return await ask(transport)
    except ComfyError as error:
        log.debug("%s", error)
        return None


def _united(fact: Fact[A, U], answers: dict[str, A]) -> U:
    """What the answers make together: the same object while they are the same."""
    if fact.together is not None and answers == fact.answers:
        return fact.together
    return fact.unite(list(answers.values()))


async def _definitions(transport: Transport) -> Json:
    return await transport.get_json("object_info", _object, most=transport.limits.definitions_bytes)


def _object_at(path: str) -> Callable[[Transport], Awaitable[Json]]:
    async def ask(transport: Transport) -> Json:
        try:
            return await transport.get_json(path, _object, most=transport.limits.small_answer_bytes)
        except NoSuchRoute:  # an older ComfyUI
            return {}

    return ask


async def _models(transport: Transport) -> dict[str, list[str]]:
    async def listed(path: str) -> list[str]:
        try:
            return await transport.get_json(path, _names, most=transport.limits.definitions_bytes)
        except NoSuchRoute:
            return []

    folders = await listed("models")
    files = await asyncio.gather(*(listed(f"models/{quote(folder, safe='')}") for folder in folders))
    return dict(zip(folders, files, strict=True))


def _object(document: Any) -> Json:
    return expect(dict, document, "it")


def _names(document: Any) -> list[str]:
    return [name for name in expect(list, document, "it") if isinstance(name, str)]


def _united_stats(answers: Sequence[Json]) -> Json:
    devices = [device for answer in answers for device in answer.get("devices") or ()]
    return {**answers[0], "devices": devices}
