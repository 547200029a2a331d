"""Following the events in the database: to the metrics log, once each, and to subscribers in this process."""

from __future__ import annotations

import itertools
import logging
from dataclasses import dataclass, field

from comfyui_agent.clock import Clock
from comfyui_agent.domain.events import Event
from comfyui_agent.engine.staleness import Staleness
from comfyui_agent.events.bus import Bus
from comfyui_agent.events.log import MetricsLog
from comfyui_agent.pools import RECORDING
from comfyui_agent.store import operations as ops
from comfyui_agent.store.errors import StoreError
from comfyui_agent.store.store import Store

log = logging.getLogger(__name__)

PAUSE = 0.2
AT_ONCE = 500
PRUNE_EVERY = 3_000


@dataclass
class EventTail:
    """Reads the events of all processes in the order of their commits."""

    store: Store
    metrics: MetricsLog
    bus: Bus
    clock: Clock
    _last_id: int = field(default=0, init=False)
    """Of the last event that subscribers have heard."""
    _log_trouble: str = field(default="", init=False)

    async def begin(self) -> int:
        """Subscribers hear what happens from here on; the number of the last event before."""
        self._last_id = await self.store.run(ops.newest_event)
        self.metrics.earlier_sources = await self.store.run(ops.earlier_identities)
        return self._last_id

    async def follow(self) -> None:
        events = Staleness(self.store, self.clock)
        for number in itertools.count():
            try:
                if events.is_stale():
                    await self.catch_up()
                if number % PRUNE_EVERY == 0:
                    while await self.store.run(ops.prune_events):
                        log.debug("old events were forgotten")
            except StoreError as error:
                log.warning("events cannot be followed: %s", error)
            except Exception:
                log.exception("following the events failed")
            await self.clock.sleep(PAUSE)

    async def catch_up(self) -> None:
        """Pass on and write everything that is there by now."""
        while events := await self.store.run(ops.events_after, self._last_id, AT_ONCE):
            for event in events:
                self.bus.tell(event)
            before, self._last_id = self._last_id, events[-1].id
            await self._write_log(events, before)
        await self._write_log([], self._last_id)

    async def _write_log(self, known: list[Event], before: int) -> None:
        """Write what is not in the log yet. `known`: the events that follow the one with the id `before`."""
        if 0 < self._last_id <= self.metrics.last_id:
            return
        try:
            if not await RECORDING.run(self.metrics.try_open):
                return
            while self.metrics.last_id < self._last_id:
                events = known if before <= self.metrics.last_id else []
                events = events or await self.store.run(ops.events_after, self.metrics.last_id, AT_ONCE)
                if not events:
                    break
                await RECORDING.run(self.metrics.write, events)
            self._log_trouble = ""
        except OSError as error:
            if str(error) != self._log_trouble:
                self._log_trouble = str(error)
                log.error("the metrics log %s cannot be written: %s", self.metrics.path, error.strerror)
