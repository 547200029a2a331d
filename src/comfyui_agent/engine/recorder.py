"""Writing what must not get lost, through a database that is full or away for a while."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, ParamSpec, TypeVar

from comfyui_agent.clock import Clock
from comfyui_agent.domain.events import Event, EventName
from comfyui_agent.files.port import FilesAway
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

    async def outlast(self, work: Callable[[], Awaitable[T]], waiting: str, **about: Any) -> T:
        """Do what needs an object store, as soon as that is there. `waiting` says what waits, once."""
        is_told = False
        while True:
            try:
                return await work()
            except FilesAway as error:
                if not is_told:
                    message = f"{waiting}: {error.strerror}. Trying again"
                    log.error("%s", message)
                    await self.note(Event(EventName.ALERT_DISK, message=message, **about))
                is_told = True
                await self.clock.sleep(PAUSE)

    async def alert(self, message: str) -> None:
        """Tell people that the database was away, now that it is back."""
        with contextlib.suppress(StoreError):
            await self.store.run(ops.add_event, Event(EventName.ALERT_DATABASE, message=message))
