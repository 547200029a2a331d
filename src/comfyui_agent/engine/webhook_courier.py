"""Bringing the messages of one webhook to its receiver: in the order of each subject, again until they arrive."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from comfyui_agent.clock import Clock
from comfyui_agent.domain.events import Event, EventName
from comfyui_agent.domain.webhooks import (
    AWAY,
    AWAY_BACKOFF,
    BACKOFF,
    Answer,
    Delivery,
    Webhook,
    pause_after,
)
from comfyui_agent.engine.recorder import Recorder
from comfyui_agent.engine.webhook_receiver import AT_ONCE, Receiver
from comfyui_agent.store import operations as ops
from comfyui_agent.store.errors import StoreError

log = logging.getLogger(__name__)

QUIET_SECONDS, TROUBLE_SECONDS = 60.0, 1.0
GONE = 410


@dataclass
class Courier:
    """Sends the oldest message of each subject, some at a time. What was answered well is noted before it goes on.

    A receiver that is away gets one message at a time, until it takes one: then all others follow at once.
    """

    webhook: Webhook
    receiver: Receiver
    recorder: Recorder
    clock: Clock
    worker: str
    identity: str
    chance: Callable[[], float]
    until: float = 0.0
    """When another agent might deliver: nothing is sent from then on."""
    rested: asyncio.Event = field(default_factory=asyncio.Event)
    """Set while nothing is due, or the receiver is away."""
    _due: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _failures: int = field(default=0, init=False)
    """In a row, while it is away."""

    def wake(self, *, is_asked: bool = False) -> None:
        """There may be new messages. A receiver that is away is tried for them only if a person asks."""
        if is_asked:
            self._failures = 0
        if not self._failures:
            self._due.set()
            self.rested.clear()

    async def work(self) -> None:
        try:
            while True:
                self._due.clear()
                pause = TROUBLE_SECONDS
                try:
                    pause = await self._deliver() if self.clock.now() < self.until else pause
                except StoreError as error:
                    log.warning("messages of webhook %s wait: %s", self.webhook.label, error)
                except Exception:
                    log.exception("delivering to webhook %s failed", self.webhook.label)
                if pause and not self._due.is_set():
                    self.rested.set()
                    await self.clock.wait_for(self._due, pause)
        finally:
            await self.receiver.close()

    async def _deliver(self) -> float:
        """Send what is due. Returns after how many seconds to look again at the latest."""
        found = await self.recorder.store.run(ops.next_deliveries, self.webhook.id, 1 if self._failures else AT_ONCE)
        due = [delivery for delivery, wait in found if wait <= 0]
        if not due:
            self._failures = 0
            return min(found[0][1], QUIET_SECONDS) if found else QUIET_SECONDS
        answers = await asyncio.gather(*map(self._send, due))
        if any(answer.status == GONE for answer in answers):
            await self._leave()
            return QUIET_SECONDS
        is_away = all(answer.status in AWAY for answer in answers)
        for delivery, answer in zip(due, answers, strict=True):
            if not answer.is_success:
                pause = None if is_away else pause_after(BACKOFF, delivery.attempts + 1, self.chance())
                await self.recorder.write(ops.note_undelivered, delivery, self.worker, answer.words, pause)
        if is_away and not self._failures:
            log.warning("webhook %s does not take messages: %s", self.webhook.label, answers[0].words)
        self._failures = self._failures + 1 if is_away else 0
        return pause_after(AWAY_BACKOFF, self._failures, self.chance()) if is_away else 0.0

    async def _send(self, delivery: Delivery) -> Answer:
        name = f"e3_{self.identity}_{delivery.webhook_id}_{delivery.event_id}"  # the same however often it is sent
        answer = await self.receiver.send(name, delivery.body)
        if answer.is_success:
            await self.recorder.write(ops.note_delivered, delivery.id)
        return answer

    async def _leave(self) -> None:
        """It said that it is gone for good."""
        if await self.recorder.write(ops.remove_webhook, self.webhook.id):
            words = f"webhook {self.webhook.label} answered that it is gone (HTTP 410), and was removed"
            log.error("%s", words)
            await self.recorder.note(Event(EventName.ALERT_WEBHOOK, message=words))
