"""Making a prompt fit the server that runs it: its input pictures are brought there, `auto` becomes a model it has."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from comfyui_agent.clock import Clock
from comfyui_agent.comfy.definitions import choices_of
from comfyui_agent.comfy.errors import ComfyError
from comfyui_agent.config.workspace import Workspace
from comfyui_agent.domain.failures import FailureClass
from comfyui_agent.domain.locations import Location
from comfyui_agent.domain.needs import AUTO
from comfyui_agent.domain.node_classes import MODEL_ENDINGS
from comfyui_agent.domain.prompts import Graph, class_of, inputs_of, place
from comfyui_agent.domain.texts import nearest
from comfyui_agent.files.connect import open_files
from comfyui_agent.files.local_cache import digest_of_file
from comfyui_agent.fleet.server import FleetServer
from comfyui_agent.pools import OBJECTS

REMEMBERED_SECONDS = 60.0
MOST_REMEMBERED = 10_000
FOLDER = "e3_inputs"


class Unfit(Exception):
    """This server cannot run the prompt; the message says what it lacks."""

    def __init__(self, kind: FailureClass, message: str) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message


class ServerInputs:
    """Remembers what each server has been given and offers, so that a thousand jobs with one picture upload it once."""

    def __init__(self, workspace: Workspace, clock: Clock) -> None:
        self._clock = clock
        self._workspace = workspace
        self._uploaded: dict[tuple[str, str], str] = {}
        self._uploading: dict[tuple[str, str], asyncio.Lock] = {}
        self._offers: dict[tuple[str, str, str], tuple[float, list[str] | None]] = {}
        self.on_forget: Callable[[str], None] = lambda _: None
        """Called with a server that may have other models than before."""

    async def fit(self, graph: Graph, pictures: str | None, server: FleetServer) -> Graph:
        """The graph for this server. Unfit if it lacks something, ComfyError if it cannot be asked."""
        placed = {where: await self._upload(name, server) for where, name in uploads_of(pictures).items()}
        graph = place(graph, placed) if placed else graph
        chosen: dict[str, str] = {}
        for node_id in graph:
            for name, value in inputs_of(graph, node_id).items():
                if value == AUTO:
                    model = await self._first_model(server, class_of(graph, node_id), name, f"{node_id}.{name}")
                    chosen |= {f"{node_id}.{name}": model} if model is not None else {}
        return place(graph, chosen) if chosen else graph

    def forget(self, server: str) -> None:
        """The server may have lost what it was given: give it again."""
        self._uploaded = {key: value for key, value in self._uploaded.items() if key[0] != server}
        self._offers = {key: value for key, value in self._offers.items() if key[0] != server}
        self.on_forget(server)

    async def _upload(self, name: str, server: FleetServer) -> str:
        """What the server calls a kept input file, which is brought there once."""
        key = server.name, name
        async with self._uploading.setdefault(key, asyncio.Lock()):
            if key not in self._uploaded:
                file = await self._kept_file(Path(name).name)
                uploaded = await server.client.upload(file, name, subfolder=FOLDER)
                if len(self._uploaded) >= MOST_REMEMBERED:
                    self._uploaded.clear()
                    self._uploading = {key: self._uploading[key]}
                self._uploaded[key] = uploaded.reference
            return self._uploaded[key]

    async def _kept_file(self, name: str) -> Path:
        """A kept input file on this machine. Another agent may have kept it: then it is fetched. FilesAway."""
        file = self._workspace.kept_inputs / name
        if file.is_file():
            return file
        with suppress(FileNotFoundError):
            if self._workspace.inputs.url:
                return await OBJECTS.run(_fetch, self._workspace.inputs, name)
        place = f"{self._workspace.inputs.url}/{name}" if self._workspace.inputs.url else file
        raise Unfit(FailureClass.INVALID, f"its input file {place} is gone: submit the job again")

    async def remedy(self, server: FleetServer, class_type: str, name: str, value: str) -> str:
        """What may have been meant by a value that a server does not offer; empty if nothing is near it."""
        try:
            choices = choices_of(await server.client.definitions.of(class_type), name)
        except ComfyError:
            return ""
        near = nearest(value, choices or ())
        return "" if near is None else f": did you mean {near}?"

    async def _first_model(self, server: FleetServer, class_type: str, name: str, where: str) -> str | None:
        """The first model that the server offers at an input; None if `auto` is a choice, or no model is meant."""
        key = server.name, class_type, name
        known = self._offers.get(key)
        if known is None or self._clock.now() - known[0] > REMEMBERED_SECONDS:
            known = self._clock.now(), choices_of(await server.client.definitions.of(class_type), name)
            self._offers[key] = known
        try:
            return first_model(known[1])
        except LookupError:
            message = f"{where} is auto, and {server.name} has no model for {class_type}.{name}"
            raise Unfit(FailureClass.MISSING, message) from None


def _fetch(inputs: Location, name: str) -> Path:
    """A local copy with the bytes that its name is the digest of. FileNotFoundError if it has others."""
    file = open_files(inputs).local(name)
    if digest_of_file(file) != name.partition(".")[0]:
        raise FileNotFoundError(f"{name} has other bytes than it had")
    return file


def first_model(choices: list[str] | None) -> str | None:
    """What `auto` means; None if it is itself a choice, or no model is meant. LookupError if there is no model."""
    if choices is None or AUTO in choices:
        return None
    if not choices:
        raise LookupError("no model is offered")
    return next((choice for choice in choices if choice.lower().endswith(MODEL_ENDINGS)), None)


def uploads_of(text: str | None) -> dict[str, str]:
    """The kept input files of a job, by the place where their names go."""
    try:
        found = json.loads(text) if text else {}
    except (ValueError, RecursionError):
        return {}
    if not isinstance(found, dict):
        return {}
    return {str(where): name for where, name in found.items() if isinstance(name, str)}
