"""Writing what must not get lost, through a database that is full or away for a while."""

from __future__ import annotations

import contextlib
import logging
from dataclasses import dataclass
from typing import ParamSpec, TypeVar

from comfyui_agent.clock import Clock
from comfyui_agent.domain.events import Event, EventName
from comfyui_agent.store import operations as ops
from comfyui_agent.store.errors import DatabaseAway, DatabaseFull, StoreError
from comfyui_agent.store.operation import Operation, OperationRunner

log = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

PAUSE = 1.0


@dataclass(frozen=True)
class Recorder:
    """Runs operations again until they are written. Errors that waiting does not mend are raised."""

    store: OperationRunner
    clock: Clock

    async def write(self, operation: Operation[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        began = self.clock.now()
        trouble: StoreError | None = None
        while True:
            try:
                result = await self.store.run(operation, *args, **kwargs)
                break
            except (DatabaseAway, DatabaseFull) as error:
                if trouble is None:
                    log.error("%s. Trying again every second", error)
                trouble = error
                await self.clock.sleep(PAUSE)
        if trouble is not None:
            took = self.clock.now() - began
            await self.alert(f"{trouble}; it took {took:.0f} s until it could be written")
        return result

    async def note(self, event: Event) -> None:
        await self.write(ops.add_event, event)

    async def alert(self, message: str) -> None:
        """Tell people that the database was away, now that it is back."""
        with contextlib.suppress(StoreError):
            await self.store.run(ops.add_event, Event(EventName.ALERT_DATABASE, message=message))
