"""Prompts of ours that no open run owns: their posts arrived too late, and they are deleted on sight."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Protocol

from comfyui_agent.clock import Clock
from comfyui_agent.comfy.answers import QueueView
from comfyui_agent.comfy.cancellation import Cancellation
from comfyui_agent.comfy.errors import ComfyError
from comfyui_agent.comfy.tasks import BackgroundTasks
from comfyui_agent.fleet.server import FleetServer
from comfyui_agent.store import operations as ops
from comfyui_agent.store.operation import OperationRunner

log = logging.getLogger(__name__)

CANCEL_SECONDS = 10.0
CANCEL_AGAIN_SECONDS = 30.0


class SettingAside(Protocol):
    """What deleting needs of the fleet."""

    def set_aside(self, server: FleetServer, prompt_id: str, reason: str) -> None: ...


@dataclass(frozen=True)
class Stopping:
    """A prompt that was told to stop and has not yet."""

    server: str
    since: float
    cancelled_at: float


@dataclass(frozen=True)
class StopPatience:
    """Seconds after which a prompt that does not stop makes its server stuck: if interrupted, and if left to end."""

    interrupted: float
    left: float


class UnownedPrompts:
    """Looks at each view of a queue."""

    def __init__(
        self, store: OperationRunner, fleet: SettingAside, clock: Clock, client_prefix: str, patience: StopPatience
    ) -> None:
        """Prompts are ours if their client id starts with `client_prefix`."""
        self._store = store
        self._fleet = fleet
        self._clock = clock
        self._client_prefix = client_prefix
        self._patience = patience
        self._deleting: set[str] = set()
        self._stopping: dict[str, Stopping] = {}
        self._tasks = BackgroundTasks("deleting unowned prompts")

    def see_queue(self, server: FleetServer, view: QueueView) -> None:
        ours = {
            prompt.prompt_id
            for prompt in (*view.running, *view.pending)
            if prompt.client_id.startswith(self._client_prefix) and prompt.prompt_id not in server.at_work
        }
        for prompt_id, each in list(self._stopping.items()):
            if each.server == server.name and prompt_id not in ours:
                del self._stopping[prompt_id]
        fresh = {each for each in ours - self._deleting if self._is_due(each)}
        if fresh:
            self._deleting |= fresh
            self._tasks.start(self._delete(server, fresh))

    async def stop(self) -> None:
        await self._tasks.stop()

    def _is_due(self, prompt_id: str) -> bool:
        stopping = self._stopping.get(prompt_id)
        return stopping is None or self._clock.now() - stopping.cancelled_at > CANCEL_AGAIN_SECONDS

    async def _delete(self, server: FleetServer, prompt_ids: set[str]) -> None:
        try:
            for prompt_id in prompt_ids - set(await self._store.run(ops.owned_prompts)):
                if prompt_id not in self._stopping and prompt_id not in server.stuck:
                    log.warning("%s: prompt %s is of a run that was given up, and is deleted", server.name, prompt_id)
                await self._cancel(server, prompt_id)
        except ComfyError as error:
            log.info("%s: %s", server.name, error.message)
        finally:
            self._deleting -= prompt_ids

    async def _cancel(self, server: FleetServer, prompt_id: str) -> None:
        """Delete or interrupt a prompt. One that does not stop for too long makes its server stuck."""
        known = self._stopping.get(prompt_id)
        since = known.since if known else self._clock.now()
        result = await server.client.cancel(prompt_id, timeout=CANCEL_SECONDS)
        if not result.runs_on:
            self._stopping.pop(prompt_id, None)
            return
        self._stopping[prompt_id] = Stopping(server.name, since, self._clock.now())
        is_interrupted = result is Cancellation.STILL_RUNNING
        patience = self._patience.interrupted if is_interrupted else self._patience.left
        if prompt_id in server.stuck or self._clock.now() - since > patience:
            reason = "it does not stop" if is_interrupted else "it does not end"
            self._fleet.set_aside(server, prompt_id, reason)
            await self._store.run(ops.note_stuck, server.name, prompt_id, reason)
