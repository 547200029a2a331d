"""A TCP proxy that cuts a connection at a chosen message of the client, before or after the server has heard of it."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from enum import Enum, auto

CHUNK = 65536
LATE_SECONDS = 0.3


class Cut(Enum):
    BEFORE = auto()
    """The server never hears of the message."""
    AT_ONCE = auto()
    """The message is passed on, and both connections end at that moment."""
    LATE = auto()
    """The client is cut off at once; the server hears of the message a moment later."""
    AFTER = auto()
    """The server has answered; the client does not hear of it."""


class CuttingProxy:
    """In front of a port of loopback. Connections pass unharmed until one is to be cut."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._lock = threading.Lock()
        self._left = 0
        self._cut = Cut.BEFORE
        self._pairs: list[_Pair] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, name="cutting-proxy", daemon=True).start()

    def cut(self, how: Cut, at: int) -> None:
        """Cut at the so-manyeth message from now on: 1 is the next."""
        with self._lock:
            self._cut, self._left = how, at

    @property
    def has_cut(self) -> bool:
        with self._lock:
            return self._left == 0

    def heal(self) -> None:
        with self._lock:
            self._left = 0

    def drop(self) -> None:
        """End every connection that is open now."""
        while self._pairs:
            self._pairs.pop().end()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                try:
                    server = socket.create_connection(("127.0.0.1", self._target))
                except OSError:
                    client.close()
                    continue
                self._pairs.append(_Pair(self, client, server))

    def due(self) -> Cut | None:
        """How to cut at this message, if it is the one."""
        with self._lock:
            if self._left == 0:
                return None
            self._left -= 1
            return self._cut if self._left == 0 else None


class _Pair:
    """A connection of a client, and the one to the server that belongs to it."""

    def __init__(self, proxy: CuttingProxy, client: socket.socket, server: socket.socket) -> None:
        self._proxy, self._client, self._server = proxy, client, server
        self._is_mute = False
        for pump in (self._to_server, self._to_client):
            threading.Thread(target=pump, name="cutting-proxy", daemon=True).start()

    def _to_server(self) -> None:
        with contextlib.suppress(OSError):
            while chunk := self._client.recv(CHUNK):
                how = self._proxy.due()
                if how is Cut.BEFORE:
                    break
                if how is Cut.LATE:
                    self._client.close()
                    time.sleep(LATE_SECONDS)
                self._is_mute = how is Cut.AFTER
                self._server.sendall(chunk)
                if how in (Cut.AT_ONCE, Cut.LATE):
                    break
        if not self._is_mute:
            self.end()

    def _to_client(self) -> None:
        with contextlib.suppress(OSError):
            while chunk := self._server.recv(CHUNK):
                if self._is_mute:
                    break
                self._client.sendall(chunk)
        self.end()

    def end(self) -> None:
        for each in (self._client, self._server):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()


@contextlib.contextmanager
def cutting_proxy(target: int) -> Iterator[CuttingProxy]:
    proxy = CuttingProxy(target)
    try:
        yield proxy
    finally:
        proxy.close()
