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


class ObjectServer:
    """A store as a process. It can be killed and started again at its port; `rclone` still has its objects then."""

    def __init__(self, kind: str, folder: Path, address: str = "127.0.0.1") -> None:
        self.kind = kind
        self._folder, self._address, self._port = folder, address, free_port()
        self._process: subprocess.Popen[bytes] | None = None
        (folder / kind / BUCKET).mkdir(parents=True)

    @property
    def endpoint(self) -> str:
        return f"http://{self._address}:{self._port}"

    def start(self) -> ObjectServer:
        programs, log_file = Path(sys.executable).parent, self._folder / f"{self.kind}.log"
        if self.kind == "moto":
            command = [str(programs / "moto_server"), "-H", self._address, "-p", str(self._port)]
        else:
            command = [str(programs / "rclone"), "serve", "s3", str(self._folder / self.kind)]
            command += ["--addr", f"{self._address}:{self._port}", "--auth-key", f"{KEY},{SECRET}"]
            command += ["--config", os.devnull]
        with log_file.open("ab") as log:
            process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
        self._process = process
        keep(process)
        deadline = time.monotonic() + 60
        while not self._listens():
            is_in_time = process.poll() is None and time.monotonic() < deadline
            assert is_in_time, log_file.read_text()
            time.sleep(0.02)
        if self.kind == "moto":
            request = urllib.request.Request(f"{self.endpoint}/{BUCKET}", method="PUT")
            urllib.request.urlopen(request, timeout=30).close()
        return self

    def stop(self) -> None:
        """kill -9."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(60)

    def _listens(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection((self._address, self._port), 1):
            return True
        return False


class ObjectStores:
    """Each is started on first use and shared by all tests of a process."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._started: dict[str, ObjectServer] = {}

    def bucket(self, kind: str) -> Bucket:
        if kind not in self._started:
            self._started[kind] = ObjectServer(kind, self._folder).start()
        return Bucket(kind, self._started[kind].endpoint)

    def stop(self) -> None:
        for server in self._started.values():
            server.stop()


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
