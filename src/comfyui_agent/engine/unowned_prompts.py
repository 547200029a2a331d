"""Prompts of ours that no open run owns: their posts arrived too late, and they are deleted on sight."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import Protocol

from comfyui_agent.clock import Clock
from comfyui_agent.comfy.answers import QueueView
from comfyui_agent.comfy.cancellation import Cancellation
from comfyui_agent.comfy.errors import ComfyError
from comfyui_agent.comfy.tasks import BackgroundTasks
from comfyui_agent.engine.patience import PatienceLimits
from comfyui_agent.fleet.server import FleetServer
from comfyui_agent.store import operations as ops
from comfyui_agent.store.operation import OperationRunner

log = logging.getLogger(__name__)

CANCEL_SECONDS = 10.0
CANCEL_AGAIN_SECONDS = 30.0


@dataclass(frozen=True)
class Stopping:
    """A prompt that was cancelled and has not stopped yet."""

    server: str
    since: float
    cancelled_at: float


class SettingAside(Protocol):
    """What deleting needs of the fleet."""

    def set_aside(self, server: FleetServer, prompt_id: str, reason: str) -> None: ...


@dataclass
class UnownedPrompts:
    """Looks at each view of a queue. Prompts are ours if their client id starts with `client_prefix`."""

    store: OperationRunner
    fleet: SettingAside
    clock: Clock
    client_prefix: str
    limits: PatienceLimits
    _deleting: set[str] = field(default_factory=set, init=False)
    _stopping: dict[str, Stopping] = field(default_factory=dict, init=False)
    tasks: BackgroundTasks = field(default_factory=lambda: BackgroundTasks("deleting unowned prompts"), init=False)

    def see_queue(self, server: FleetServer, view: QueueView) -> None:
        ours = {
            prompt.prompt_id
            for prompt in (*view.running, *view.pending)
            if prompt.client_id.startswith(self.client_prefix) and prompt.prompt_id not in server.at_work
        }
        for prompt_id, each in list(self._stopping.items()):
            if each.server == server.name and prompt_id not in ours:
                del self._stopping[prompt_id]
        recently_cancelled = {
            prompt_id
            for prompt_id, each in self._stopping.items()
            if self.clock.now() - each.cancelled_at <= CANCEL_AGAIN_SECONDS
        }
        fresh = ours - self._deleting - recently_cancelled
        if fresh:
            self._deleting |= fresh
            self.tasks.start(self._delete(server, fresh))

    async def _delete(self, server: FleetServer, prompt_ids: set[str]) -> None:
        try:
            for prompt_id in prompt_ids - set(await self.store.run(ops.owned_prompts)):
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
        since = known.since if known else self.clock.now()
        result = await server.client.cancel(prompt_id, timeout=CANCEL_SECONDS)
        if not result.runs_on:
            self._stopping.pop(prompt_id, None)
            return
        self._stopping[prompt_id] = Stopping(server.name, since, self.clock.now())
        is_interrupted = result is Cancellation.STILL_RUNNING
        patience = self.limits.stall if is_interrupted else self.limits.timeout
        if prompt_id in server.stuck or self.clock.now() - since > patience:
            reason = "it does not stop" if is_interrupted else "it does not end"
            self.fleet.set_aside(server, prompt_id, reason)
            await self.store.run(ops.note_stuck, server.name, prompt_id, reason)
