"""The client of one ComfyUI server."""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from comfyui_agent.clock import MONOTONIC_CLOCK, Clock
from comfyui_agent.comfy import cancellation, downloads, lookup, model_files, shapes, submission, uploads
from comfyui_agent.comfy.address import ServerAddress
from comfyui_agent.comfy.answers import Freed, QueueView, SystemStats
from comfyui_agent.comfy.cancellation import Cancellation, can_interrupt_one
from comfyui_agent.comfy.definitions import NodeDefinitions
from comfyui_agent.comfy.downloads import StagedFile, Transfer
from comfyui_agent.comfy.errors import NoSuchRoute, PromptRejected
from comfyui_agent.comfy.limits import Limits
from comfyui_agent.comfy.listener import Tap
from comfyui_agent.comfy.lookup import Sighting
from comfyui_agent.comfy.model_files import ModelFile
from comfyui_agent.comfy.results import ResultFile
from comfyui_agent.comfy.transport import Transport
from comfyui_agent.comfy.uploads import Uploaded
from comfyui_agent.comfy.watch import Watch
from comfyui_agent.comfy.watches import Watches
from comfyui_agent.domain.prompts import Graph, PromptId, check_prompt_id, is_editor_format

log = logging.getLogger(__name__)

FIRST_SOCKET_SECONDS = 1.0
FREE_POLL_SECONDS = 0.25


class ComfyClient:
    """Talks to one server, which need not be up. Every call is bounded; failures are `ComfyError`s."""

    def __init__(
        self,
        url: str,
        *,
        client_id: str | None = None,
        limits: Limits | None = None,
        listen: bool = True,
        clock: Clock = MONOTONIC_CLOCK,
        tap: Tap | None = None,
    ) -> None:
        self._clock = clock
        self.address = ServerAddress.parse(url)
        self.limits = limits or Limits()
        self.client_id = client_id or f"e3-{uuid.uuid4().hex}"
        self._listens = listen
        self._transport = Transport(self.address, self.limits)
        self.definitions = NodeDefinitions(self._transport)
        self._watches = Watches(self._transport, self.definitions, self.client_id, clock, tap)
        self._warned = False
        self._entered_at = 0.0

    async def __aenter__(self) -> ComfyClient:
        self._entered_at = self._clock.now()
        self._watches.start()
        if self._listens:
            self._watches.listener.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        try:
            await self._watches.stop()
        finally:
            await self._transport.close()

    @property
    def websocket_is_open(self) -> bool:
        return self._watches.listener.is_open

    async def wait_for_websocket(self, seconds: float = FIRST_SOCKET_SECONDS) -> bool:
        """Until the websocket is open, or the time is up; whether it is."""
        return await self._watches.listener.wait_open(seconds)

    @property
    def queue_seen(self) -> tuple[float, QueueView] | None:
        """The queue as the polls saw it last, and when."""
        return self._watches.queue_seen

    @property
    def websocket_connections(self) -> int:
        """How often a websocket was opened; each beyond the first replaced one that was lost or silent."""
        return self._watches.listener.connections

    async def submit(
        self,
        graph: Graph,
        prompt_id: PromptId,
        *,
        extra_data: Mapping[str, Any] | None = None,
        expected: Iterable[str] | None = None,
        targets: Iterable[str] | None = None,
    ) -> Watch:
        """Send a prompt once, under an id of the caller, and watch it. `expected`: nodes that must leave a result.
        `targets`: the output nodes to run, if not all.

        After AcceptanceUnknown the prompt may still run: take it over by its id before making another.
        """
        check_prompt_id(prompt_id)
        if is_editor_format(graph):
            raise PromptRejected("this is a workflow as the editor saves it: export it with Workflow → Export (API)")
        watch = self._watches.add(self._new_watch(prompt_id, graph, expected))
        body: dict[str, Any] = {"prompt": graph, "prompt_id": prompt_id, "client_id": self.client_id}
        body |= {"extra_data": dict(extra_data)} if extra_data else {}
        body |= {"partial_execution_targets": list(targets)} if targets is not None else {}
        try:
            left = self._entered_at + FIRST_SOCKET_SECONDS - self._clock.now()
            if self._listens and self.websocket_connections == 0 and left > 0:
                await self._watches.listener.wait_open(left)  # so that progress is heard from the start
            watch.node_errors = await submission.send(self._transport, prompt_id, body)
        except BaseException:
            self._watches.drop(watch)
            raise
        self._watches.accepted(watch, ours=True)
        if watch.cancel_requested:  # meanwhile, when the server did not know it yet
            await self.cancel(prompt_id)
        return watch

    def take_over(
        self, prompt_id: PromptId, graph: Graph | None = None, expected: Iterable[str] | None = None
    ) -> Watch:
        """Watch a prompt that someone else sent, from the next poll on. One that the server does not know is lost."""
        known = self._watches.get(prompt_id)
        if known is not None:
            return known
        watch = self._new_watch(check_prompt_id(prompt_id), graph, expected)
        self._watches.accepted(self._watches.add(watch), ours=False)
        return watch

    def _new_watch(self, prompt_id: PromptId, graph: Graph | None, expected: Iterable[str] | None) -> Watch:
        return Watch(prompt_id, graph, None if expected is None else frozenset(expected), self._clock)

    def forget(self, watch: Watch) -> None:
        """Watch a prompt no more. It may go on, and may be taken over again."""
        self._watches.drop(watch)

    async def look_up(self, prompt_id: str) -> Sighting:
        """Where the server has a prompt, from one look at the queue and then the history."""
        return await lookup.look_up(self._transport, prompt_id)

    async def queue(self) -> QueueView:
        return await lookup.look_at_queue(self._transport)

    async def cancel(self, prompt_id: str, timeout: float = 30.0, *, interrupt: bool = True) -> Cancellation:
        """Take a prompt back alone; its watch ends as `cancelled`. Without `interrupt`, only a waiting one."""
        watch = self._watches.get(prompt_id)
        if watch is not None and interrupt:
            watch.cancel_requested = True

        async def can_interrupt() -> bool:
            return interrupt and await self._can_interrupt_one()

        result = await cancellation.cancel(self._transport, prompt_id, can_interrupt=can_interrupt, timeout=timeout)
        if watch is not None and result is Cancellation.REMOVED:
            watch.cancel_requested = True
        return result

    async def cancel_all(self, prompt_ids: Iterable[str], timeout: float = 30.0) -> frozenset[str]:
        """Take many prompts back, and touch no other; those that the server still has when the time is up."""
        wanted = list(prompt_ids)
        for watch in filter(None, map(self._watches.get, wanted)):
            watch.cancel_requested = True
        return await cancellation.cancel_all(
            self._transport, wanted, can_interrupt=self._can_interrupt_one, timeout=timeout
        )

    async def _can_interrupt_one(self) -> bool:
        can = can_interrupt_one((await self.system_stats()).version)
        if not can and not self._warned:
            self._warned = True
            log.warning(
                "%s is older than ComfyUI 0.3.57: a prompt that runs there is left to finish when it is cancelled",
                self.address,
            )
        return can

    async def download(self, result: ResultFile, folder: Path, *, owner: str = "") -> StagedFile:
        """Bring one result into a folder, checked and on disk; `publish` then names it. `owner`: see `stage`."""
        return await downloads.stage(self._transport, result, folder, owner)

    async def read_through(self, result: ResultFile) -> Transfer:
        """Fetch one result as a reader of its URL does, and keep nothing: for measuring."""
        return await downloads.read_through(self._transport, result)

    async def upload(
        self, source: Path | str | bytes, name: str, *, subfolder: str = "", overwrite: bool = False
    ) -> Uploaded:
        """Bring a picture to the server's input folder; use the `reference` of what comes back."""
        return await uploads.upload(self._transport, source, name, subfolder, overwrite)

    async def free(self, *, wanted: int | None = None, timeout: float = 30.0) -> Freed:
        """Make the server unload models and drop its cache, after its current prompt, and see whether memory came free.

        It did when `wanted` bytes are free; without `wanted`, when free memory stopped rising or nearly all is free.
        """
        before = last = (await self.system_stats()).free_memory
        await self._transport.change("free", {"unload_models": True, "free_memory": True})
        deadline = time.monotonic() + timeout
        while True:
            await asyncio.sleep(FREE_POLL_SECONDS)
            stats = await self.system_stats()
            now = stats.free_memory
            is_empty = bool(stats.devices) and all(each.vram_free >= each.vram_total * 0.9 for each in stats.devices)
            came_free = now >= wanted if wanted is not None else before < now <= last or is_empty
            if came_free or time.monotonic() > deadline:
                return Freed(before, now, came_free)
            last = now

    async def system_stats(self) -> SystemStats:
        return await self._transport.get_json("system_stats", SystemStats.read, most=self.limits.small_answer_bytes)

    async def model_facts(self) -> Mapping[str, str]:
        """What tells each model file of the server from another of its name."""
        return await model_files.model_facts(self._transport)

    async def models(self, folder: str = "checkpoints") -> list[str]:
        """The files of a model folder; empty if the server has no such folder."""
        try:
            path = f"models/{quote(folder, safe='')}"
            return await self._transport.get_json(path, _read_names, most=self.limits.definitions_bytes)
        except NoSuchRoute:
            return []

    async def model_files(self, folder: str) -> Mapping[str, ModelFile]:
        """The files of a model folder as the model library lists them; empty if the server has none."""
        return await model_files.list_models(self._transport, folder)

    async def model_preview(self, folder: str, name: str, number: int) -> bytes | None:
        """The picture beside a model file in the folder of that number."""
        return await model_files.read_preview(self._transport, folder, name, number)


def _read_names(document: Any) -> list[str]:
    return [shapes.expect(str, name, "a model name") for name in shapes.expect(list, document, "the models")]
