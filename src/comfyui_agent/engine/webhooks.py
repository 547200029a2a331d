"""Telling programs of events: messages are written down behind the events, and couriers bring them."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from comfyui_agent.clock import Clock
from comfyui_agent.comfy.tasks import end_tasks
from comfyui_agent.config.sealing import CannotOpen, SecretBox
from comfyui_agent.config.workspace import Workspace
from comfyui_agent.domain.events import Event, EventName
from comfyui_agent.domain.webhooks import Webhook, body_of, checked_secret, subject_of
from comfyui_agent.engine.recorder import Recorder
from comfyui_agent.engine.webhook_courier import Courier
from comfyui_agent.engine.webhook_receiver import ANSWER_SECONDS, Receiver
from comfyui_agent.pools import OBJECTS
from comfyui_agent.store import operations as ops
from comfyui_agent.store.agent_lock import AgentLock
from comfyui_agent.store.errors import StoreError
from comfyui_agent.store.liveness import bury_dead

log = logging.getLogger(__name__)

PAUSE, QUIET_SECONDS, HELD_SECONDS, FORGET_SECONDS = 0.5, 20.0, 60.0, 3600.0
EVENTS_AT_ONCE, MOST_WAITING = 500, 10_000
"""While so many wait for one receiver, events wait where they are."""
AUDIT = "audit.webhook."


@dataclass
class Webhooks:
    """Looks for events when one is heard that a webhook wants. Without webhooks it looks now and then for one.

    Of several agents, one at a time delivers to a webhook; one whose secret it cannot open it leaves to others.
    """

    recorder: Recorder
    workspace: Workspace
    clock: Clock
    lock: AgentLock
    identity: str
    chance: Callable[[], float]
    connect: Callable[[str, Mapping[str, Any]], Receiver] = Receiver
    _due: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _couriers: dict[int, tuple[Courier, asyncio.Task[None]]] = field(default_factory=dict, init=False)
    _looking: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)
    _opened: dict[str, Mapping[str, Any] | None] = field(default_factory=dict, init=False)
    """What is sealed, by its sealed text. None: with another key."""

    def see_event(self, event: Event) -> None:
        is_asked = event.name.startswith(AUDIT)
        if is_asked or any(each.webhook.wants(event) for each, _ in self._couriers.values()):
            self._due.set()
        for courier, _ in self._couriers.values() if is_asked else ():
            courier.wake(is_asked=True)

    async def finish(self) -> None:
        """Deliver what there is before the agent ends. No receiver that is away is waited for."""
        async with self._looking:
            await self._look()
        await asyncio.gather(*(courier.rested.wait() for courier, _ in self._couriers.values()))

    async def follow(self) -> None:
        is_configured, forget_at = False, self.clock.now()
        try:
            while True:
                self._due.clear()
                try:
                    is_configured = is_configured or await self._configure()
                    async with self._looking:
                        await self._look()
                    if self.clock.now() >= forget_at and not await self.recorder.store.run(ops.forget_deliveries):
                        forget_at = self.clock.now() + FORGET_SECONDS
                except StoreError as error:
                    log.warning("webhooks wait: %s", error)
                except Exception:
                    log.exception("looking at webhooks failed")
                await self.clock.wait_for(self._due, QUIET_SECONDS)
                await self.clock.sleep(PAUSE)
        finally:
            await end_tasks(task for _, task in self._couriers.values())

    async def _configure(self) -> bool:
        """Make the webhooks of the configuration what it says, and remove those that it does not name any more."""
        found = await self.recorder.store.run(ops.list_webhooks)
        known = {hook.name: hook for hook in found if hook.name and await self._open(hook.sealed) is not None}
        for each in self.workspace.settings.webhooks:
            secret = each.secret.get_secret_value()
            if secret.startswith("env:"):
                secret = os.environ.get(secret.removeprefix("env:"), "")
            before = known.pop(each.name, None)
            try:
                content = {"secret": checked_secret(secret), "allow": list(each.allow)}
            except ValueError as error:
                log.error("webhook %s is not told: %s", each.name, error)
                continue
            is_same = before is not None and await self._open(before.sealed) == content
            if before is None or not is_same or (before.url, before.events) != (each.url, each.events):
                sealed = await OBJECTS.run(SecretBox(self.workspace.secrets_key).seal, content)
                await self.recorder.store.run(ops.put_webhook, each.url, each.events, sealed, name=each.name)
        for hook in known.values():
            await self.recorder.store.run(ops.remove_webhook, hook.id)
        return True

    async def _look(self) -> None:
        """Deliver to the webhooks that no other agent has, and write down what happened since."""
        found = await self.recorder.store.run(ops.list_webhooks)
        ours = {hook.id: hook for hook in found if await self._open(hook.sealed) is not None}
        asked_at, held = self.clock.now(), frozenset[int]()
        if ours.keys() - self._couriers.keys():  # they may be those of an agent that was killed
            await bury_dead(self.recorder.store, self.lock.host)
        if ours:
            facts = self.lock.worker, self.lock.host, list(ours), HELD_SECONDS
            held = await self.recorder.store.run(ops.hold_webhooks, *facts)
        for id_, (courier, task) in list(self._couriers.items()):
            now = ours.get(id_) if id_ in held else None
            if now is None or (now.sealed, now.url) != (courier.webhook.sealed, courier.webhook.url):
                await end_tasks([task])
                del self._couriers[id_]
        for id_ in held:
            hook = ours[id_]
            if id_ not in self._couriers:
                parts = self.recorder, self.clock, self.lock.worker, self.identity, self.chance
                courier = Courier(hook, self.connect(hook.url, self._opened[hook.sealed] or {}), *parts)
                self._couriers[id_] = courier, asyncio.create_task(courier.work())
            courier, _ = self._couriers[id_]
            courier.webhook, courier.until = hook, asked_at + HELD_SECONDS - ANSWER_SECONDS
            if await self._write(hook):
                courier.wake()

    async def _write(self, hook: Webhook) -> bool:
        """Write messages down for what happened since, with how far that is. Returns whether there were any."""
        store, has_written = self.recorder.store, False
        while True:
            events = await store.run(ops.events_after, hook.last_event, EVENTS_AT_ONCE)
            wanted = [event for event in events if hook.wants(event)]
            is_last = len(events) < EVENTS_AT_ONCE
            if (is_last and not wanted) or await store.run(ops.count_waiting, hook.id, MOST_WAITING) == MOST_WAITING:
                return has_written
            until, messages = events[-1].id, await self._messages(wanted)
            if not await store.run(ops.add_deliveries, hook, self.lock.worker, until, messages):
                return has_written
            hook, has_written = replace(hook, last_event=until), has_written or bool(wanted)
            if is_last:
                return has_written

    async def _messages(self, events: Sequence[Event]) -> list[tuple[int, str, str]]:
        store = self.recorder.store
        jobs = await store.run(ops.results_of_jobs, list({event.job_id for event in events if event.job_id}))
        ids = {event.batch_id for event in events if event.batch_id and event.job_id is None}
        batches = {id_: await store.run(ops.find_batch, id_) for id_ in ids}
        made = []
        for event in events:
            external_id, results = jobs.get(event.job_id or 0, (None, []))
            told = replace(event, message=event.message and self.workspace.without_root(event.message))
            kept = results if event.name == EventName.JOB_DONE else []
            body = body_of(told, external_id=external_id, results=kept, batch=batches.get(event.batch_id or ""))
            made.append((event.id, subject_of(event), body))
        return made

    async def _open(self, sealed: str) -> Mapping[str, Any] | None:
        if sealed not in self._opened:
            try:
                self._opened[sealed] = await OBJECTS.run(SecretBox(self.workspace.secrets_key).open, sealed)
            except CannotOpen as error:
                log.error("a webhook is left to other agents: %s", error)
                self._opened[sealed] = None
        return self._opened[sealed]
