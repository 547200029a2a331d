"""The fault proxy in a thread of its own, for tests that are not asynchronous, and posts that are held back."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import TypeVar
from urllib.parse import urlsplit

from comfyui_agent.lab.fault_proxy import Cut, Fault, FaultProxy

T = TypeVar("T")


class Hold(Fault):
    """Keeps a request back until the test lets it go, or drops it."""

    def __init__(self) -> None:
        self._decided = asyncio.Event()
        self._dropped = False
        self.waiting = 0

    async def request(self) -> None:
        self.waiting += 1
        await self._decided.wait()
        if self._dropped:
            raise Cut

    def decide(self, *, dropped: bool) -> None:
        self._dropped = dropped
        self._decided.set()


class _Timed(FaultProxy):
    """Remembers when each request came."""

    def __init__(self, host: str, port: int) -> None:
        super().__init__(host, port)
        self.seen: list[tuple[float, str]] = []

    def rule_for(self, request: str) -> Fault | None:
        self.seen.append((time.monotonic(), request))
        return super().rule_for(request)


class ThreadedProxy:
    """A fault proxy to be used from the outside of its loop."""

    def __init__(self, proxy: _Timed, loop: asyncio.AbstractEventLoop) -> None:
        self._proxy = proxy
        self._loop = loop
        self.url = proxy.url

    def call(self, work: Callable[[], T]) -> T:
        async def run() -> T:
            return work()

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(10)

    def inject(self, fault: Fault, on: str = "", times: int | None = 1) -> None:
        self.call(lambda: self._proxy.inject(fault, on, times))

    def hold(self, on: str) -> Hold:
        """The next request of this kind waits here."""
        held = self.call(Hold)
        self.inject(held, on)
        return held

    def deliver(self, held: Hold, on: str) -> None:
        """Pass a held request on to the server; its sender is gone."""
        self.call(lambda: self._proxy.abandon_all(on))
        self.release(held)

    def release(self, held: Hold) -> None:
        """Let a held request go on its way."""
        self.call(lambda: held.decide(dropped=False))

    def drop(self, held: Hold) -> None:
        self.call(lambda: held.decide(dropped=True))

    def cut_all(self, on: str) -> None:
        """Reset open connections. To be called on the proxy's own loop."""
        self._proxy.cut_all(on)

    def heal(self) -> None:
        self.call(self._proxy.heal)

    def times(self, request: str) -> list[float]:
        """When requests came whose first line contains this."""
        return [at for at, seen in list(self._proxy.seen) if request in seen]


@contextlib.contextmanager
def threaded_proxy(url: str) -> Iterator[ThreadedProxy]:
    """In front of the server with this address."""
    target = urlsplit(url)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="fault-proxy")
    thread.start()
    proxy = _Timed(target.hostname or "", target.port or 0)
    try:
        asyncio.run_coroutine_threadsafe(proxy.__aenter__(), loop).result(10)
        yield ThreadedProxy(proxy, loop)
    finally:
        asyncio.run_coroutine_threadsafe(proxy.__aexit__(None, None, None), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()
