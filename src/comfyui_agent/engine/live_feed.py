"""Frames about prompts that clients posted, from the agents that run them to gateways on the same machine.

An agent serves them on a port of loopback. A file beside its lock says which, and has the key that a reader must send
first. Nothing depends on a frame: how a prompt ended is in the store.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import re
import secrets
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

from comfyui_agent.comfy.tasks import BackgroundTasks, end_tasks
from comfyui_agent.store.agent_lock import living
from comfyui_agent.store.posted_prompts import ClientPrompt

log = logging.getLogger(__name__)

FEED = ".feed.json"
HOST = "127.0.0.1"
PREVIEWS = (1, 4)
MOST_WAITING = 4 * 1024 * 1024
"""Bytes that a slow reader may leave: then it misses previews; with four times as many, it is dropped."""
LARGEST_FRAME = 64 * 1024 * 1024
LOOK_SECONDS = 0.25
KEY_SECONDS = 5.0
EVENT = re.compile(r'\{\s*"type":\s*"(\w+)"')
NEWEST_ONLY = ("progress", "progress_state", "executing")
"""Events that a newer one of the same kind replaces, for who comes late."""
MOST_KEPT = 200


class FrameKind(Enum):
    """What a frame of the feed is: something its server sent, or what became of the run."""

    SENT = "sent"
    REPLAYED = "replayed"
    """Sent before this reader came. It may have heard it at another time."""
    ACCEPTED = "accepted"
    ENDED = "ended"


@dataclass(frozen=True)
class FeedFrame:
    """A frame about one run of a posted prompt. `data` is what its server sent."""

    prompt_id: str
    run_id: str
    client_id: str | None
    data: str | bytes
    kind: FrameKind = FrameKind.SENT


@dataclass
class LiveRun:
    """A run and what its server has said so far."""

    client: ClientPrompt
    said: list[tuple[str, str]] = field(default_factory=list)

    def note(self, text: str) -> None:
        event = EVENT.match(text)
        if event is not None:
            name = event[1]
            self.said = [each for each in self.said if each[0] != name or name not in NEWEST_ONLY][-MOST_KEPT:]
            self.said.append((name, text))


@dataclass
class LiveFeed:
    """Sorts the frames of an agent's servers by the posted prompts that run there.

    While there are any that somebody listens to, `hurry` is called: what becomes of them is not to wait.
    """

    hurry: Callable[[], None] = lambda: None
    _runs: dict[str, dict[str, LiveRun]] = field(default_factory=dict)
    _executing: dict[str, str] = field(default_factory=dict)
    """The run that a server's last text frame spoke of: some frames name none."""
    _hears: set[Callable[[FeedFrame], None]] = field(default_factory=set)

    def subscribe(self, hear: Callable[[FeedFrame], None]) -> Callable[[], None]:
        """Have a function called with what was said of open runs, then with every frame, until unsubscribed.

        Returns the function that unsubscribes.
        """
        self._hears.add(hear)
        for runs in self._runs.values():
            for run_id, run in runs.items():
                for _, text in run.said:
                    hear(_frame(run_id, run, text, FrameKind.REPLAYED))
        return lambda: self._hears.discard(hear)

    def begin(self, server: str, run_id: str, client: ClientPrompt) -> None:
        """From now on there may be frames about this run."""
        self._runs.setdefault(server, {})[run_id] = LiveRun(client)

    def accepted(self, server: str, run_id: str) -> None:
        """The server has the prompt."""
        run = self._runs.get(server, {}).get(run_id)
        if run is not None:
            self._publish(_frame(run_id, run, "", FrameKind.ACCEPTED))

    def end(self, server: str, run_id: str) -> None:
        run = self._runs.get(server, {}).pop(run_id, None)
        if run is not None:
            self._publish(_frame(run_id, run, "", FrameKind.ENDED))

    def hear(self, server: str, data: str | bytes) -> None:
        runs = self._runs.get(server)
        if not runs:
            return
        if isinstance(data, str):
            found = next((run_id for run_id in runs if run_id in data), None)
            self._executing[server] = found or self._executing.get(server, "")
            if found is not None:
                runs[found].note(data)
        else:
            head = data[: 8 + struct.unpack_from(">I", data, 4)[0]] if _kind(data) == 4 else b""
            found = next((run_id for run_id in runs if run_id.encode() in head), self._executing.get(server))
        if found in runs:
            self._publish(_frame(found, runs[found], data))

    def _publish(self, frame: FeedFrame) -> None:
        if self._hears:
            self.hurry()
        for hear in list(self._hears):
            hear(frame)


def _frame(run_id: str, run: LiveRun, data: str | bytes, kind: FrameKind = FrameKind.SENT) -> FeedFrame:
    return FeedFrame(run.client.prompt_id, run_id, run.client.client_id, data, kind)


class FeedServer:
    """Serves the feed of one agent, to other processes by a socket."""

    def __init__(self, feed: LiveFeed, folder: Path, worker: str) -> None:
        self._feed = feed
        self._path = folder / f"{worker}{FEED}"
        self._key = secrets.token_hex(16)
        self._server: asyncio.Server | None = None
        self._readers: set[asyncio.Task[Any]] = set()
        self._ended = asyncio.Event()

    async def serve_here(self, hear: Callable[[FeedFrame], None]) -> None:
        """Serve a reader in this process, until the end."""
        unsubscribe = self._feed.subscribe(hear)
        try:
            await self._ended.wait()
        finally:
            unsubscribe()

    async def start(self) -> None:
        HERE[str(self._path)] = self
        self._server = await asyncio.start_server(self._serve, HOST, 0)
        facts = {"port": self._server.sockets[0].getsockname()[1], "key": self._key}
        await asyncio.to_thread(_write_private, self._path, json.dumps(facts))

    async def stop(self) -> None:
        HERE.pop(str(self._path), None)
        self._ended.set()
        self._path.unlink(missing_ok=True)
        if self._server is not None:
            self._server.close()
        await end_tasks(self._readers)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._readers.add(task)
        try:
            key = await asyncio.wait_for(reader.readline(), KEY_SECONDS)
            if secrets.compare_digest(key.strip(), self._key.encode()):
                unsubscribe = self._feed.subscribe(lambda frame: _send(writer, frame))
                try:
                    await reader.read()  # until it leaves
                finally:
                    unsubscribe()
        except (OSError, ValueError, asyncio.TimeoutError, asyncio.CancelledError):
            log.debug("a reader of live frames left, or sent no key")
        finally:
            self._readers.discard(task)
            writer.transport.abort()
            with contextlib.suppress(OSError):
                await writer.wait_closed()


def _write_private(path: Path, text: str) -> None:
    path.parent.mkdir(0o700, parents=True, exist_ok=True)
    with open(path, "w", encoding="ascii", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
        file.write(text)


def _send(writer: asyncio.StreamWriter, frame: FeedFrame) -> None:
    waiting = writer.transport.get_write_buffer_size()
    if waiting > 4 * MOST_WAITING:
        writer.transport.abort()
    elif waiting < MOST_WAITING or not (isinstance(frame.data, bytes) and _kind(frame.data) in PREVIEWS):
        is_text = isinstance(frame.data, str)
        data = frame.data.encode() if isinstance(frame.data, str) else frame.data
        head = json.dumps([frame.prompt_id, frame.run_id, frame.client_id, frame.kind.value, is_text]).encode()
        writer.write(struct.pack(">II", len(head), len(data)) + head + data)


HERE: dict[str, FeedServer] = {}
"""The agents of this process, by the files that tell others of their feeds."""


class FeedReader:
    """Reads the feeds of all living agents on this machine."""

    def __init__(self, folder: Path, hear: Callable[[FeedFrame], None]) -> None:
        self._folder = folder
        self._hear = hear
        self._tasks = BackgroundTasks("reading what agents have at work")
        self._reading: dict[str, asyncio.Task[None]] = {}

    @property
    def is_connected(self) -> bool:
        """Whether any agent is heard."""
        return bool(self._reading)

    def start(self) -> None:
        self._tasks.start(self._look())

    async def stop(self) -> None:
        await self._tasks.stop()
        await end_tasks(list(self._reading.values()))

    async def _look(self) -> None:
        while True:
            for worker in await asyncio.to_thread(living, self._folder):
                if worker not in self._reading:
                    task = self._reading[worker] = asyncio.create_task(self._read(worker))
                    task.add_done_callback(lambda _, worker=worker: self._reading.pop(worker, None))  # type: ignore[misc]
            await asyncio.sleep(LOOK_SECONDS)

    async def _read(self, worker: str) -> None:
        path = self._folder / f"{worker}{FEED}"
        if (here := HERE.get(str(path))) is not None:
            await here.serve_here(self._hear)
            return
        with contextlib.suppress(OSError, ValueError, KeyError, asyncio.IncompleteReadError):
            facts = json.loads(path.read_text(encoding="ascii"))
            reader, writer = await asyncio.open_connection(HOST, facts["port"])
            try:
                writer.write(facts["key"].encode() + b"\n")
                while True:
                    self._hear(await _receive(reader))
            finally:
                writer.close()


async def _receive(reader: asyncio.StreamReader) -> FeedFrame:
    sizes = struct.unpack(">II", await reader.readexactly(8))
    if max(sizes) > LARGEST_FRAME:
        raise ValueError("a frame is too large")
    prompt_id, run_id, client_id, kind, is_text = json.loads(await reader.readexactly(sizes[0]))
    data = await reader.readexactly(sizes[1])
    return FeedFrame(prompt_id, run_id, client_id, data.decode() if is_text else data, FrameKind(kind))


def _kind(data: bytes) -> int:
    return int.from_bytes(data[:4], "big") if len(data) >= 8 else 0
