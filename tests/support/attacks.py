"""What hostile clients do to a page, over plain sockets; and what an honest one sees meanwhile."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

ANSWER = b"GET /openapi.json HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
"""Asks for an answer of some size that costs nothing."""


def post(path: str, body: Any, *, token: str = "") -> bytes:
    """A request, byte for byte."""
    data = json.dumps(body).encode()
    access = f"Authorization: Bearer {token}\r\n" if token else ""
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n{access}"
    return f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data


def blank_axes(workflow: str, name: str, count: int = 40, values: str = "1..1000000") -> dict[str, Any]:
    """A sweep whose axes differ only by blanks."""
    return {"workflow": workflow, "dry_run": True, "set": {" " * n + name: values for n in range(count)}}


def connected(url: str, source: str = "127.0.0.1") -> socket.socket:
    address = urlsplit(url)
    assert address.hostname is not None
    return socket.create_connection((address.hostname, address.port or 80), 5, (source, 0))


def send_and_leave(url: str, request: bytes, times: int, source: str = "127.0.0.1") -> None:
    """So many requests, each by a client that is gone before it is answered."""
    for _ in range(times):
        with contextlib.suppress(OSError), connected(url, source) as client:
            client.sendall(request)


def slow_reader(url: str, source: str = "127.0.0.1") -> socket.socket:
    client = connected(url, source)
    client.setblocking(False)
    client.send(ANSWER * 50)
    return client


def is_cut(client: socket.socket) -> bool:
    """Whether the other side has closed it: then nothing more can be sent."""
    try:
        client.send(ANSWER)
    except OSError as error:
        return not isinstance(error, BlockingIOError)
    return False


@contextlib.contextmanager
def slow_readers(url: str, count: int, source: str = "127.0.0.1") -> Iterator[list[socket.socket]]:
    """Connections that ask again and again and never read: those that could be opened."""
    held: list[socket.socket] = []
    try:
        for _ in range(count):
            with contextlib.suppress(OSError):
                held.append(slow_reader(url, source))
        yield held
    finally:
        for client in held:
            client.close()


def healthz(url: str, timeout: float = 5.0) -> float:
    """How long the probe takes, on a connection of its own."""
    began = time.monotonic()
    with contextlib.closing(http.client.HTTPConnection(urlsplit(url).netloc, timeout=timeout)) as asking:
        asking.request("GET", "/healthz")
        assert asking.getresponse().read() == b'{"status":"ok"}'
    return time.monotonic() - began


class Prober:
    """Asks for the probe again and again in a thread; `seconds` has what each took, a failure the whole timeout."""

    def __init__(self, url: str, every: float = 0.05) -> None:
        self.seconds: list[float] = []
        self.failures: list[str] = []
        self._url = url
        self._every = every
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._probe, daemon=True)

    def __enter__(self) -> Prober:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join()

    def _probe(self) -> None:
        while True:
            try:
                self.seconds.append(healthz(self._url))
            except (OSError, http.client.HTTPException) as error:
                self.failures.append(repr(error))
                self.seconds.append(5.0)
            if self._ends.wait(self._every):
                return


def memory_mb(pid: int) -> float:
    """What a process has in memory now."""
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS")) / 1024
