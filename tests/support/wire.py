"""ComfyUI's HTTP and websocket surface, raw: requests, answers and frames, with nothing interpreted."""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, NamedTuple, TypeAlias

import aiohttp

from support.versions import Version, version

Graph: TypeAlias = dict[str, dict[str, Any]]
Frame: TypeAlias = "dict[str, Any] | bytes"


class Answer(NamedTuple):
    """An HTTP answer; the body is parsed when it is JSON, text when it is text, and bytes otherwise."""

    status: int
    body: Any
    headers: Mapping[str, str]


class Recorder:
    """Every frame one websocket receives, in order; text frames as dicts, binary frames as bytes."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.socket = socket
        self.frames: list[Frame] = []
        self._arrival = asyncio.Event()
        self._reader = asyncio.create_task(self._read())

    async def _read(self) -> None:
        async for message in self.socket:
            self.frames.append(json.loads(message.data) if message.type is aiohttp.WSMsgType.TEXT else message.data)
            self._arrival.set()
        self._arrival.set()

    async def until(self, predicate: Callable[[Frame], bool], timeout: float = 60) -> Frame:
        """The first frame the predicate accepts, waiting for it if it has not come yet."""
        deadline = time.monotonic() + timeout
        seen = 0
        while True:
            self._arrival.clear()
            for frame in self.frames[seen:]:
                seen += 1
                if predicate(frame):
                    return frame
            if self._reader.done():
                raise AssertionError(f"the socket closed before the frame came; received: {self.types()}")
            try:
                await asyncio.wait_for(self._arrival.wait(), deadline - time.monotonic())
            except asyncio.TimeoutError:
                raise AssertionError(f"no such frame within {timeout} s; received: {self.types()}") from None

    async def event(self, kind: str, prompt_id: str | None = None, **data: Any) -> dict[str, Any]:
        """The data of the first text frame of this kind, for this prompt, with these values."""
        wanted = data if prompt_id is None else {"prompt_id": prompt_id, **data}
        absent = object()

        def accepts(frame: Frame) -> bool:
            if isinstance(frame, bytes) or frame["type"] != kind:
                return False
            return all(frame["data"].get(key, absent) == value for key, value in wanted.items())

        frame = await self.until(accepts)
        assert isinstance(frame, dict)
        found: dict[str, Any] = frame["data"]
        return found

    async def last_frame_of(self, prompt_id: str) -> None:
        """Waits for the frame that ends a prompt: an executing without a node."""
        await self.event("executing", prompt_id, node=None)

    async def idle_after(self, kind: str) -> None:
        """Waits for a status of an empty queue that follows a frame of this kind."""
        await self.until(lambda _: "idle" in self._tail_after(kind))

    def _tail_after(self, kind: str) -> list[str]:
        kinds = self.types()
        if kind not in kinds:
            return []
        return [
            "idle"
            for frame in self.frames[kinds.index(kind) :]
            if isinstance(frame, dict)
            and frame["type"] == "status"
            and frame["data"]["status"]["exec_info"]["queue_remaining"] == 0
        ]

    def types(self) -> list[str]:
        """The kinds of the frames so far; a binary frame reads as binary-<event number>."""
        return [
            f"binary-{int.from_bytes(frame[:4], 'big')}" if isinstance(frame, bytes) else str(frame["type"])
            for frame in self.frames
        ]

    def events(self, kind: str) -> list[dict[str, Any]]:
        return [frame["data"] for frame in self.frames if isinstance(frame, dict) and frame["type"] == kind]

    def binaries(self) -> list[bytes]:
        return [frame for frame in self.frames if isinstance(frame, bytes)]

    async def lost(self) -> int | None:
        """Waits until the server is gone; the code the socket closed with."""
        await asyncio.wait_for(asyncio.shield(self._reader), 30)
        return self.socket.close_code

    async def close(self) -> None:
        await self.socket.close()
        self._reader.cancel()
        with suppress(asyncio.CancelledError):
            await self._reader


class Wire:
    """One server seen raw, and the prompts a test gave it, so that the test can leave the server as it found it."""

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self.session = session
        self.url = url
        self.client_id = uuid.uuid4().hex
        self.submitted: list[str] = []
        self.version: Version = ()

    async def learn_version(self) -> Version:
        stats = (await self.get("/system_stats")).body
        self.version = version(stats["system"]["comfyui_version"])
        return self.version

    def since(self, first: str) -> bool:
        """Whether the server, whose version is known, is of that version or a later one."""
        return self.version >= version(first)

    async def request(self, method: str, path: str, **options: Any) -> Answer:
        async with self.session.request(method, self.url + path, **options) as response:
            raw = await response.read()
            kind = response.content_type
            body: Any = raw
            if kind == "application/json":
                body = json.loads(raw) if raw else None
            elif kind.startswith("text/"):
                body = raw.decode()
            return Answer(response.status, body, response.headers.copy())

    async def get(self, path: str, **options: Any) -> Answer:
        return await self.request("GET", path, **options)

    async def post(self, path: str, body: Any = None, **options: Any) -> Answer:
        if body is not None:
            options["json"] = body
        return await self.request("POST", path, **options)

    async def offer(self, graph: Graph, **body: Any) -> Answer:
        """POST /prompt with a client id unless client_id=None, whatever the answer will be."""
        content = {"prompt": graph, "client_id": self.client_id, **body}
        if content["client_id"] is None:
            del content["client_id"]
        answer = await self.post("/prompt", content)
        if answer.status == 200:
            self.submitted.append(answer.body["prompt_id"])
        return answer

    async def submit(self, graph: Graph, **body: Any) -> str:
        """The id of a prompt the server took."""
        answer = await self.offer(graph, **body)
        assert answer.status == 200, answer.body
        prompt_id: str = answer.body["prompt_id"]
        return prompt_id

    async def finished(self, prompt_id: str, timeout: float = 60) -> dict[str, Any]:
        """The history entry of a prompt, as soon as there is one."""
        deadline = time.monotonic() + timeout
        while True:
            history = (await self.get(f"/history/{prompt_id}")).body
            if prompt_id in history:
                entry: dict[str, Any] = history[prompt_id]
                return entry
            assert time.monotonic() < deadline, f"prompt {prompt_id} is not in the history after {timeout} s"
            await asyncio.sleep(0.01)

    async def run(self, graph: Graph, **body: Any) -> dict[str, Any]:
        """The history entry of a prompt that succeeded."""
        entry = await self.finished(await self.submit(graph, **body))
        assert entry["status"]["status_str"] == "success", entry["status"]
        return entry

    async def queue(self) -> tuple[list[list[Any]], list[list[Any]]]:
        body = (await self.get("/queue")).body
        return body["queue_running"], body["queue_pending"]

    async def running(self, prompt_id: str, timeout: float = 60) -> None:
        """Waits until this prompt is the one that runs."""
        await self._poll(lambda running, _: prompt_id in [item[1] for item in running], timeout)

    async def idle(self, timeout: float = 60) -> None:
        """Waits until nothing runs and nothing waits."""
        await self._poll(lambda running, pending: not running and not pending, timeout)

    async def _poll(self, holds: Callable[[list[Any], list[Any]], bool], timeout: float) -> None:
        deadline = time.monotonic() + timeout
        while not holds(*await self.queue()):
            assert time.monotonic() < deadline, f"the queue did not get there within {timeout} s"
            await asyncio.sleep(0.01)

    async def interrupt(self, prompt_id: str) -> None:
        assert (await self.post("/interrupt", {"prompt_id": prompt_id})).status == 200

    async def stop(self, prompt_ids: Collection[str], timeout: float = 60) -> None:
        """Interrupts these until none of them runs: a prompt that begins forgets an interrupt from just before."""
        deadline = time.monotonic() + timeout
        while running := {item[1] for item in (await self.queue())[0]}.intersection(prompt_ids):
            assert time.monotonic() < deadline, f"{running} still run after {timeout} s"
            for prompt_id in running:
                await self.interrupt(prompt_id)
            await asyncio.sleep(0.1)

    async def leave(self) -> None:
        """Takes back what this test submitted and is not finished."""
        await self.post("/queue", {"delete": self.submitted})
        await self.stop(self.submitted)
        await self.idle()

    @asynccontextmanager
    async def socket(
        self, client_id: str | None = None, flags: dict[str, Any] | None = None
    ) -> AsyncIterator[Recorder]:
        """A websocket of this client (the wire's own unless told; "" for none), past its first frame."""
        name = self.client_id if client_id is None else client_id
        address = f"{self.url}/ws" + (f"?clientId={name}" if name else "")
        async with self.session.ws_connect(address, max_msg_size=0) as socket:
            recorder = Recorder(socket)
            try:
                if flags is not None:
                    await socket.send_json({"type": "feature_flags", "data": flags})
                    await recorder.event("feature_flags")
                await recorder.event("status")
                yield recorder
            finally:
                await recorder.close()


def told_steps(wire: Wire, server_kind: str, found: list[int], steps: int, reported: int | None = None) -> list[int]:
    """The steps that are to be told, as far as that is certain. A real server since 0.33 leaves out what comes within a
    tenth of a second of the one before, but neither the first step nor the last."""
    may_skip = server_kind.startswith("real") and wire.since("0.33")
    every = range(1, (steps if reported is None else reported) + 1)
    return [step for step in every if not may_skip or step in (1, steps, *found)]
