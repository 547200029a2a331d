"""The store: runs named operations, each in one transaction."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from comfyui_agent.store.operation import Operation, OperationKind
from comfyui_agent.store.port import Driver

P = ParamSpec("P")
T = TypeVar("T")
HURRY_SECONDS = 2.0
EAGER_SECONDS = 0.02


class Store:
    """The durable queue over any driver. `comfyui_agent.store.operations` lists what it can run."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self.identity = driver.identity
        self._listeners: list[Callable[[], None]] = []
        self.gathers = False
        """Whether what an agent records may wait some milliseconds to share a commit: that saves processor time."""
        self._hurried_until = 0.0

    @property
    def version(self) -> int:
        """A number that grows with every commit, here or in another process. Reading it costs nothing."""
        return self.driver.version

    async def run(self, operation: Operation[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run one operation. What returns is committed; what raises has changed nothing."""
        result = await self._run(operation, *args, **kwargs)
        if operation.kind is OperationKind.COMMAND:
            self.wake()
        return result

    async def run_eagerly(self, operation: Operation[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a command. Listeners are called before it is committed, so that what they write shares its transaction,
        and again some moments after: they may have read what was there before."""
        loop = asyncio.get_running_loop()
        running = loop.create_task(self._run(operation, *args, **kwargs))
        await asyncio.sleep(0)
        self.wake()
        try:
            return await running
        finally:
            loop.call_later(EAGER_SECONDS, self.wake)

    async def _run(self, operation: Operation[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        if operation.kind is OperationKind.QUERY:
            return await self.driver.read(lambda session: operation(session, *args, **kwargs))
        is_command = operation.kind is OperationKind.COMMAND
        can_wait = self.gathers and not is_command and time.monotonic() > self._hurried_until
        return await self.driver.write(
            lambda session: operation.work(session, *args, **kwargs), can_wait=can_wait, wakes=is_command
        )

    def hurry(self) -> None:
        """Somebody waits for what is recorded in the next seconds: it does not wait to share a commit."""
        self._hurried_until = time.monotonic() + HURRY_SECONDS

    def on_change(self, call: Callable[[], None]) -> None:
        """Call this in the event loop soon after a command here, or any commit of another process."""
        self._listeners.append(call)
        self.driver.on_change(call)

    def wake(self) -> None:
        """Call every listener now."""
        for call in self._listeners:
            call()

    async def close(self, *, timeout: float | None = None) -> None:
        await self.driver.close(timeout=timeout)
