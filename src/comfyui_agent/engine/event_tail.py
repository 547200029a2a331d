"""Following the events in the database: to the metrics log, once each, and to subscribers in this process."""

from __future__ import annotations

import logging

from comfyui_agent.clock import Clock
from comfyui_agent.engine.thread_pools import RECORDING
from comfyui_agent.events.bus import Bus
from comfyui_agent.events.log import MetricsLog
from comfyui_agent.store import operations as ops
from comfyui_agent.store.errors import StoreError
from comfyui_agent.store.operation import OperationRunner

log = logging.getLogger(__name__)

PAUSE = 0.2
AT_ONCE = 500
PRUNE_EVERY = 3_000


class EventTail:
    """Reads the events of all processes in the order of their commits."""

    def __init__(self, store: OperationRunner, metrics: MetricsLog, bus: Bus, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._metrics = metrics
        self._bus = bus
        self._told = 0
        self._rounds = 0
        self._log_trouble = ""

    async def begin(self) -> int:
        """Subscribers hear what happens from here on; the number of the last event before."""
        self._told = await self._store.run(ops.newest_event)
        return self._told

    async def follow(self) -> None:
        while True:
            self._rounds += 1
            try:
                await self.catch_up()
                if self._rounds % PRUNE_EVERY == 1:
                    while await self._store.run(ops.prune_events):
                        log.debug("old events were forgotten")
            except StoreError as error:
                log.warning("events cannot be followed: %s", error)
            except Exception:
                log.exception("following the events failed")
            await self._clock.sleep(PAUSE)

    async def catch_up(self) -> None:
        """Tell and write everything that is there by now."""
        while events := await self._store.run(ops.events_after, self._told, AT_ONCE):
            for event in events:
                self._bus.tell(event)
            self._told = events[-1].id
        await self._write_log()

    async def _write_log(self) -> None:
        try:
            if not await RECORDING.run(self._metrics.try_open):
                return
            while self._metrics.last_id < self._told:
                events = await self._store.run(ops.events_after, self._metrics.last_id, AT_ONCE)
                if not events:
                    break
                await RECORDING.run(self._metrics.write, events)
            self._log_trouble = ""
        except OSError as error:
            if str(error) != self._log_trouble:
                self._log_trouble = str(error)
                log.error("the metrics log %s cannot be written: %s", self._metrics.path, error.strerror)

    def close(self) -> None:
        self._metrics.close()
