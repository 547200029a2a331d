"""Real object stores as child processes: `moto` honours conditional puts, `rclone serve s3` ignores them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import subprocess
import sys
import time
import urllib.request
import uuid
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import obstore
import pytest
from obstore.store import S3Store

from comfyui_agent.domain.locations import Location
from comfyui_agent.lab.fault_proxy import Fault
from support.children import keep
from support.servers import free_port
from support.threaded_proxy import ThreadedProxy

STORES = ("moto", "rclone")
BUCKET = "e3-tests"
KEY, SECRET = "e3-tests-key", "e3-tests-secret-key"


@dataclass
class Bucket:
    """A prefix of its own in a bucket, and how programs are told of it."""

    kind: str
    endpoint: str
    url: str = field(default_factory=lambda: f"s3://{BUCKET}/{uuid.uuid4().hex[:8]}")

    @property
    def environment(self) -> dict[str, str]:
        return credentials(self.endpoint)

    def settings(self) -> dict[str, str]:
        """The environment of an agent that keeps its results here."""
        return {**self.environment, "E3_PATHS__RESULTS": self.url}

    def location(self, folder: Path, most_bytes: int = 10**9) -> Location:
        return Location(folder / "nowhere", self.url, folder / "memory", most_bytes)

    def objects(self) -> dict[str, bytes]:
        """Everything that is there, by its name."""
        store = self._store()
        names = [each["path"] for chunk in obstore.list(store) for each in chunk]
        return {name: bytes(obstore.get(store, name).bytes()) for name in names}

    def put(self, name: str, data: bytes) -> None:
        obstore.put(self._store(), name, data)

    def _store(self) -> S3Store:
        config: Any = {key.lower(): value for key, value in self.environment.items() if key != "AWS_ALLOW_HTTP"}
        return S3Store(BUCKET, prefix=self.url.rpartition("/")[2], config=config, client_options={"allow_http": True})

    def through(self, endpoint: str) -> Bucket:
        """The same objects by another way."""
        return Bucket(self.kind, endpoint, self.url)


def credentials(endpoint: str) -> dict[str, str]:
    return {
        "AWS_ENDPOINT": endpoint,
        "AWS_ACCESS_KEY_ID": KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_REGION": "us-east-1",
        "AWS_ALLOW_HTTP": "true",
    }


class ObjectStores:
    """Each is started on first use and shared by all tests of a process."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._started: dict[str, tuple[subprocess.Popen[bytes], str]] = {}

    def bucket(self, kind: str) -> Bucket:
        if kind not in self._started:
            self._started[kind] = self._start(kind)
        return Bucket(kind, self._started[kind][1])

    def _start(self, kind: str) -> tuple[subprocess.Popen[bytes], str]:
        port, programs = free_port(), Path(sys.executable).parent
        (self._folder / kind / BUCKET).mkdir(parents=True)
        if kind == "moto":
            command = [str(programs / "moto_server"), "-H", "127.0.0.1", "-p", str(port)]
        else:
            command = [str(programs / "rclone"), "serve", "s3", str(self._folder / kind), "--addr", f"127.0.0.1:{port}"]
            command += ["--auth-key", f"{KEY},{SECRET}", "--config", os.devnull]
        with (self._folder / f"{kind}.log").open("wb") as log:
            process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
        keep(process)
        deadline = time.monotonic() + 60
        while not _listens(port):
            is_in_time = process.poll() is None and time.monotonic() < deadline
            assert is_in_time, (self._folder / f"{kind}.log").read_text()
            time.sleep(0.02)
        url = f"http://127.0.0.1:{port}"
        if kind == "moto":
            urllib.request.urlopen(urllib.request.Request(f"{url}/{BUCKET}", method="PUT"), timeout=30).close()
        return process, url

    def stop(self) -> None:
        for process, _ in self._started.values():
            process.kill()
            process.wait(20)


def _listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


@pytest.fixture(scope="session")
def object_stores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStores]:
    stores = ObjectStores(tmp_path_factory.mktemp("object-stores"))
    yield stores
    stores.stop()


@pytest.fixture
def moto(object_stores: ObjectStores) -> Bucket:
    """A store that honours conditional puts."""
    return object_stores.bucket("moto")


@pytest.fixture
def rclone(object_stores: ObjectStores) -> Bucket:
    """A store that does not."""
    return object_stores.bucket("rclone")


@pytest.fixture(params=STORES)
def bucket(request: pytest.FixtureRequest, object_stores: ObjectStores) -> Bucket:
    return object_stores.bucket(request.param)


class Status(Fault):
    """Answers with a status line in place of what the server says."""

    def __init__(self, status: str) -> None:
        self._answer = f"HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode()

    async def answer(self, chunk: bytes, passed: int) -> AsyncIterator[bytes]:  # noqa: ARG002
        if passed == 0:
            yield self._answer


class CutUpload(Fault):
    """Passes the first part of a request on, and resets both sides in the middle of its body."""

    def __init__(self, proxy: ThreadedProxy) -> None:
        self._proxy = proxy

    async def request(self) -> None:
        asyncio.get_running_loop().call_soon(self._proxy.cut_all, "PUT")
