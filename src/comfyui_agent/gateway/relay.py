"""The websockets of clients: each hears of its own prompts, in order, and of each end once.

Frames of a run are passed on as they come. How a prompt ended is told from the store, when the job has ended there: so
the history has it before its client hears of it, whatever was killed meanwhile. What a client missed is told when it
connects again.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import struct
import time
from collections import OrderedDict
from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import Any

from comfyui_agent.comfy.tasks import BackgroundTasks
from comfyui_agent.domain.jobs import JobId
from comfyui_agent.domain.prompts import Graph
from comfyui_agent.domain.texts import json_text
from comfyui_agent.engine.live_feed import FeedFrame, FrameKind
from comfyui_agent.gateway.live_prompt import LivePrompt
from comfyui_agent.gateway.names import Entries
from comfyui_agent.gateway.outbox import Outbox
from comfyui_agent.gateway.presentation import FINAL, RunNames
from comfyui_agent.store import operations as ops
from comfyui_agent.store.errors import StoreError
from comfyui_agent.store.posted_prompts import PostedPrompt
from comfyui_agent.store.store import Store
from comfyui_agent.wire.frames import FORMATS, PREVIEW, PREVIEW_WITH_METADATA, event_frame
from comfyui_agent.wire.prompts import Json
from comfyui_agent.wire.sockets import Client

log = logging.getLogger(__name__)

MOST_HEARD = 2_000
STEPS = ("progress_state", "progress")
TOLD_WITHIN = 3600.0
LOOK_SECONDS = 1.0
MOST_ENDS = 200
MOST_POSTED = 1_000


class Relay:
    """Knows who is connected, what runs, and what is still to be told."""

    def __init__(self, store: Store, entries: Entries) -> None:
        self._store = store
        self._entries = entries
        self._outboxes: dict[str, list[Outbox]] = {}
        self._senders: dict[Client, asyncio.Task[None]] = {}
        self._live: dict[str, LivePrompt] = {}
        self._posted: OrderedDict[str, tuple[JobId, Graph]] = OrderedDict()
        """Prompts that came a moment ago, so that they need not be looked up when they start."""
        self._heard: asyncio.Queue[FeedFrame] = asyncio.Queue()
        self._verdicts: dict[str, asyncio.Future[None]] = {}
        self._tasks = BackgroundTasks("telling clients")
        self._wake = asyncio.Event()
        self._count = -1

    def start(self) -> None:
        self._tasks.start(self._relay_forever())
        self._tasks.start(self._tell_forever())
        self._store.on_change(self.wake)

    async def stop(self) -> None:
        await self._tasks.stop()
        for task in list(self._senders.values()):
            task.cancel()

    def expect(self, prompt_id: str, job_id: JobId, graph: Graph) -> None:
        """A prompt was posted here."""
        self._posted[prompt_id] = job_id, graph
        if len(self._posted) > MOST_POSTED:
            self._posted.popitem(last=False)

    def wake(self) -> None:
        """Something was submitted, or has ended."""
        self._wake.set()

    # Sockets.

    def join(self, client: Client) -> None:
        outbox = Outbox(client)
        self._outboxes.setdefault(client.sid, []).append(outbox)
        self._senders[client] = asyncio.create_task(outbox.send_all())

    def leave(self, client: Client) -> None:
        boxes = [box for box in self._outboxes.get(client.sid, []) if box.client is not client]
        if boxes:
            self._outboxes[client.sid] = boxes
        else:
            self._outboxes.pop(client.sid, None)
        task = self._senders.pop(client, None)
        if task is not None:
            task.cancel()

    def negotiate(self, client: Client, flags: Json) -> None:
        box = self._box_of(client)
        if box is not None:
            box.has_metadata = flags.get("supports_preview_metadata") is True

    async def reply(self, client: Client, event: str, data: Json) -> None:
        box = self._box_of(client)
        if box is not None:
            box.put(event_frame(event, data))

    def greet(self, client_id: str) -> list[tuple[str, Json]]:
        """What a client that connects has missed of prompts that run. Ends are told soon after."""
        self._wake.set()
        missed = [each for live in self._live.values() if live.client_id == client_id for each in live.frames]
        return [(event, json.loads(frame)["data"]) for event, frame in missed]

    def send(self, client_id: str, frame: str | bytes) -> None:
        for box in self._outboxes.get(client_id, ()):
            box.put(frame)

    def _box_of(self, client: Client) -> Outbox | None:
        return next((box for box in self._outboxes.get(client.sid, ()) if box.client is client), None)

    # What runs.

    def hear(self, frame: FeedFrame) -> None:
        """A frame of an agent, about a run of a posted prompt."""
        verdict = self._verdicts.get(frame.prompt_id)
        if verdict is not None and not verdict.done():
            verdict.set_result(None)
        if frame.kind is FrameKind.ENDED:
            self._wake.set()
        if frame.kind is FrameKind.ENDED or self._heard.qsize() < MOST_HEARD:
            self._heard.put_nowait(frame)

    @contextlib.contextmanager
    def awaiting_verdict(self, prompt_id: str) -> Iterator[asyncio.Future[None]]:
        """A future that is done when a server has taken or refused a prompt, as far as it is heard here."""
        if prompt_id in self._verdicts:  # posted twice at the same moment
            yield self._verdicts[prompt_id]
            return
        verdict = self._verdicts[prompt_id] = asyncio.get_running_loop().create_future()
        try:
            yield verdict
        finally:
            self._verdicts.pop(prompt_id, None)
            self._wake.set()

    def started(self, prompt_id: str) -> int | None:
        """When a server began to execute a prompt that runs, as far as anyone here has heard."""
        live = self._live.get(prompt_id)
        return None if live is None or live.is_over else live.started

    async def _relay_forever(self) -> None:
        while True:
            frame = await self._heard.get()
            live = self._live.get(frame.prompt_id)
            if frame.kind is FrameKind.ENDED and live is not None:
                live.is_over = live.names.run_id == frame.run_id
            elif isinstance(frame.data, bytes):
                self._relay_binary(frame, frame.data)
            elif frame.data:
                with contextlib.suppress(StoreError):  # it is told from the store when it has ended
                    await self._relay_text(frame, frame.data)

    async def _live_prompt(self, frame: FeedFrame) -> LivePrompt | None:
        live = self._live.get(frame.prompt_id)
        if live is None:
            posted = self._posted.pop(frame.prompt_id, None)
            if posted is None:
                prompt = await self._store.run(ops.find_prompt, frame.prompt_id)
                if prompt is None or prompt.ended_at is not None:
                    return None
                posted = prompt.job_id, prompt.graph
            job_id, graph = posted
            names = RunNames(frame.prompt_id, frame.run_id, graph)
            live = self._live[frame.prompt_id] = LivePrompt(job_id, frame.client_id or "", names)
        elif live.names.run_id != frame.run_id:
            live.names = replace(live.names, run_id=frame.run_id)
        return live

    async def _relay_text(self, frame: FeedFrame, text: str) -> None:
        try:
            message = json.loads(text)
            event, data = message["type"], message["data"]
        except (ValueError, KeyError, TypeError):
            return
        if not isinstance(event, str) or not isinstance(data, dict):
            return
        if event in FINAL or event == "status" or (event == "executing" and data.get("node") is None):
            return  # the end is told from the store
        live = await self._live_prompt(frame)
        if live is None:
            return
        said = data
        if event == "executed" and isinstance(data.get("output"), dict):
            outputs = {str(data.get("node")): data["output"]}
            live.names = await self._entries.named(live.names, live.job_id, outputs)
            data = {**data, "output": live.names.outputs(data["output"])}
        shown = event_frame(event, data).replace(frame.run_id, frame.prompt_id)
        if frame.kind is FrameKind.REPLAYED and (event, shown) in live.frames:
            return
        live.see(event, said)
        live.note(event, shown)
        if event == "execution_start" and self._count >= 0:
            self._broadcast(status_frame(self._count))  # a server says so when it takes a prompt from its queue
        boxes = self._outboxes.get(live.client_id, ())
        for box in boxes if event not in STEPS else ():
            box.release()
        self.send(live.client_id, shown)
        for box in boxes if event == "progress" else ():
            box.release()

    def _relay_binary(self, frame: FeedFrame, data: bytes) -> None:
        boxes = self._outboxes.get(frame.client_id or "", ())
        if not boxes or len(data) < 8:
            return
        kind, length = struct.unpack_from(">II", data)
        described = plain = data
        if kind == PREVIEW_WITH_METADATA:
            metadata = data[8 : 8 + length].replace(frame.run_id.encode(), frame.prompt_id.encode())
            described = struct.pack(">II", kind, len(metadata)) + metadata + data[8 + length :]
            with contextlib.suppress(ValueError):
                image_type = json.loads(metadata).get("image_type", "image/jpeg")
                plain = struct.pack(">II", PREVIEW, FORMATS.get(image_type, 1)) + data[8 + length :]
        for box in boxes:
            box.release()
            if box.has_metadata or kind != PREVIEW_WITH_METADATA:
                box.put(described)
            else:
                box.held = plain

    async def note_interrupted(self, prompt_id: str) -> None:
        """Keep what was seen of a prompt that is about to be stopped."""
        live = self._live.get(prompt_id)
        if live is not None and live.started is not None:
            entry = json_text(live.interrupted(round(time.time() * 1000)))
            await self._store.run(ops.note_interrupted, live.job_id, live.names.run_id, entry)

    # What has ended.

    async def _tell_forever(self) -> None:
        while True:
            try:
                await self._tell()
            except StoreError as error:
                log.warning("clients are not told what has ended: %s", error)
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._wake.wait(), LOOK_SECONDS)
            self._wake.clear()

    async def _tell(self) -> None:
        """Tell every connected client which of its prompts have ended, and all how many are left."""
        over = [prompt_id for prompt_id, live in self._live.items() if live.is_over]
        for prompt_id in over:
            if self._live[prompt_id].client_id not in self._outboxes:  # the store tells whoever connects later
                del self._live[prompt_id]
        if not self._outboxes:
            self._count = -1
            return
        judged = set(self._verdicts)  # their posts may be answered while the store is read
        found, count = await self._store.run(ops.news_for_clients, list(self._outboxes), TOLD_WITHIN, MOST_ENDS)
        prompts = [prompt for prompt in found if prompt.prompt_id not in judged | self._verdicts.keys()]
        status = status_frame(count)
        if count != self._count and self._count >= 0 and not prompts:
            self._broadcast(status)
        self._count = count
        marks: list[tuple[JobId, asyncio.Future[None]]] = []
        for prompt in prompts:
            boxes = self._outboxes.get(prompt.client_id or "", [])
            for box in boxes:
                box.release()
            for frame in await self._ending(prompt, status):
                for box in boxes:
                    box.put(frame)
            marks += [(prompt.job_id, box.mark()) for box in boxes[-1:]]
            self._live.pop(prompt.prompt_id, None)
            self._posted.pop(prompt.prompt_id, None)
        if prompts:
            self._broadcast(status, besides={prompt.client_id for prompt in prompts})
        told = [job_id for job_id, mark in marks if await _has_arrived(mark)]
        if told:
            await self._store.run(ops.note_told, told)
        if len(found) == MOST_ENDS:
            self._wake.set()

    def _broadcast(self, frame: str, besides: Collection[str | None] = ()) -> None:
        for client_id in self._outboxes:
            if client_id not in besides:
                self.send(client_id, frame)

    async def _ending(self, prompt: PostedPrompt, status: str) -> list[str]:
        """The frames that a client still has to hear of a prompt that has ended, the last of all included."""
        live = self._live.get(prompt.prompt_id)
        entry = (await self._entries.listed(prompt, live.names.paths if live else {})).entry
        if entry is None:  # taken back before it ran: only the count has changed
            return [status]
        heard = {event for event, _ in live.frames} if live else set()
        frames = []
        messages = [message for message in entry["status"].get("messages", []) if len(message) == 2]
        for event, data in messages:
            if event not in FINAL and event not in heard:
                frames.append(event_frame(event, data))
        if "executed" not in heard:
            for node_id, output in entry["outputs"].items():
                facts: dict[str, Any] = {"node": node_id, "display_node": node_id, "output": output}
                frames.append(event_frame("executed", {**facts, "prompt_id": prompt.prompt_id}))
        frames += [event_frame(event, data) for event, data in messages[-1:] if event in FINAL]
        return [*frames, status, event_frame("executing", {"node": None, "prompt_id": prompt.prompt_id})]


def status_frame(count: int) -> str:
    return event_frame("status", {"status": {"exec_info": {"queue_remaining": count}}})


async def _has_arrived(mark: asyncio.Future[None]) -> bool:
    with contextlib.suppress(asyncio.CancelledError, asyncio.TimeoutError):
        await asyncio.wait_for(mark, LOOK_SECONDS)
        return True
    return False
