"""Each client hears of its own prompts in order, and of each end once, whatever it missed."""

from __future__ import annotations

import asyncio
import json
import struct
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from comfyui_agent.domain.jobs import JobId
from comfyui_agent.engine.live_feed import FeedFrame, FrameKind
from comfyui_agent.gateway.names import Entries
from comfyui_agent.gateway.outbox import MOST_PREVIEWS
from comfyui_agent.gateway.relay import Relay
from comfyui_agent.store.posted_prompts import NewFile, PostedPrompt
from support.stores import ScriptedStore
from unit.gateway.test_presentation import MINE, RUN, entry, prompt, saved


@dataclass
class FakeSocket:
    """Takes frames while it is `open`."""

    open: asyncio.Event = field(default_factory=asyncio.Event)
    frames: list[Any] = field(default_factory=list)

    async def send_str(self, frame: str) -> None:
        await self.open.wait()
        self.frames.append(json.loads(frame))

    async def send_bytes(self, frame: bytes) -> None:
        await self.open.wait()
        self.frames.append(frame)


@dataclass(eq=False)
class FakeClient:
    sid: str = "me"
    socket: FakeSocket = field(default_factory=FakeSocket)
    is_aborted: bool = False

    def abort(self) -> None:
        self.is_aborted = True

    @property
    def heard(self) -> list[str]:
        return [frame["type"] for frame in self.socket.frames if isinstance(frame, dict)]


class Prompts(ScriptedStore):
    """A store with posted prompts that have ended."""

    def __init__(self) -> None:
        self.ended: list[PostedPrompt] = []
        self.told: list[JobId] = []
        self.open = 0
        self.pause = asyncio.Event()
        self.pause.set()

    def on_change(self, _: Any) -> None:
        """Nothing changes from elsewhere."""

    async def news_for_clients(self, clients: list[str], seconds: float, most: int) -> tuple[list[PostedPrompt], int]:
        assert (seconds, most) == (3600.0, 200)
        untold = [each for each in self.ended if each.client_id in clients and each.job_id not in self.told]
        await self.pause.wait()
        return untold, self.open

    async def find_prompt(self, prompt_id: str) -> PostedPrompt | None:
        return prompt(prompt_id=prompt_id, ended_at=None, status="processing")

    async def name_files(self, _: JobId, files: list[NewFile]) -> dict[str, str]:
        return {file.origin: f"{file.prefix}_00007_{file.ending}" for file in files}

    async def note_told(self, ids: list[JobId]) -> int:
        self.told += ids
        return len(ids)


@pytest.fixture
def store() -> Prompts:
    return Prompts()


@pytest.fixture
async def relay(store: Prompts) -> AsyncIterator[Relay]:
    relay = Relay(store, Entries(store))  # type: ignore[arg-type]
    relay.start()
    yield relay
    await relay.stop()


def join(relay: Relay, sid: str = "me", *, reads: bool = True) -> FakeClient:
    client = FakeClient(sid)
    relay.join(client)  # type: ignore[arg-type]
    if reads:
        client.socket.open.set()
    return client


async def settle() -> None:
    """Let every task that can go on do so."""
    for _ in range(50):
        await asyncio.sleep(0)


def frame(event: str, data: dict[str, Any], *, run: str = RUN, client: str | None = "me") -> FeedFrame:
    return FeedFrame(MINE, run, client, json.dumps({"type": event, "data": {"prompt_id": run, **data}}))


async def test_frames_of_a_run_reach_their_client_alone_under_its_own_id(relay: Relay) -> None:
    mine, other = join(relay), join(relay, "you")
    relay.hear(frame("execution_start", {}))
    relay.hear(frame("progress", {"value": 1, "max": 4, "node": "9"}))
    await settle()
    assert [each["data"]["prompt_id"] for each in mine.socket.frames if "prompt_id" in each["data"]] == [MINE, MINE]
    assert mine.heard[-2:] == ["execution_start", "progress"]
    assert "execution_start" not in other.heard


async def test_an_end_is_told_when_the_store_has_it_and_not_before(relay: Relay, store: Prompts) -> None:
    client = join(relay)
    for event, data in (("execution_start", {}), ("execution_success", {}), ("executing", {"node": None})):
        relay.hear(frame(event, data))
    await settle()
    assert client.heard[-1] == "execution_start"
    store.ended = [prompt(entry=entry(saved(f"{RUN}_00001_.png")))]
    relay.hear(FeedFrame(MINE, RUN, "me", "", FrameKind.ENDED))
    await settle()
    assert client.heard[-4:] == ["executed", "execution_success", "status", "executing"]
    assert client.socket.frames[-1]["data"] == {"node": None, "prompt_id": MINE}
    assert store.told == [7]


async def test_an_end_is_told_once_however_often_it_is_looked_at(relay: Relay, store: Prompts) -> None:
    client = join(relay)
    store.ended = [prompt(entry=entry())]
    for _ in range(3):
        relay.wake()
        await settle()
    assert client.heard.count("execution_success") == 1


async def test_who_connects_late_hears_the_whole_story(relay: Relay, store: Prompts) -> None:
    store.ended = [prompt(entry=entry(saved(f"{RUN}_00001_.png")))]
    relay.wake()
    await settle()
    assert store.told == []
    client = join(relay)
    relay.wake()
    await settle()
    assert client.heard == ["execution_start", "executed", "execution_success", "status", "executing"]
    assert client.socket.frames[1]["data"]["output"]["images"][0]["filename"] == "cat_00007_.png"


async def test_who_connects_again_is_told_what_runs(relay: Relay) -> None:
    relay.hear(frame("execution_start", {}))
    for value in (1, 2):
        relay.hear(frame("progress", {"value": value, "max": 4, "node": "9"}))
    await settle()
    missed = relay.greet("me")
    assert [event for event, _ in missed] == ["execution_start", "progress"]
    assert missed[-1][1]["value"] == 2
    assert relay.greet("you") == []


async def test_a_run_that_begins_again_replaces_what_the_first_one_said(relay: Relay) -> None:
    relay.hear(frame("execution_start", {}))
    relay.hear(frame("executing", {"node": "9"}))
    relay.hear(frame("execution_start", {}, run="another-run"))
    await settle()
    assert relay.greet("me") == [("execution_start", {"prompt_id": MINE})]


async def test_an_end_that_did_not_get_through_is_told_again(relay: Relay, store: Prompts) -> None:
    client = join(relay, reads=False)
    store.ended = [prompt(entry=entry())]
    relay.wake()
    await settle()
    relay.leave(client)  # type: ignore[arg-type]
    await settle()
    assert store.told == []
    again = join(relay)
    relay.wake()
    await settle()
    assert again.heard[-1] == "executing"
    assert store.told == [7]


async def test_a_prompt_whose_post_is_being_refused_is_not_told(relay: Relay, store: Prompts) -> None:
    client = join(relay)
    await settle()
    with relay.awaiting_verdict(MINE):
        store.ended = [prompt(status="failed", failure_class="invalid")]
        store.pause = asyncio.Event()
        relay.wake()
        await settle()  # it looks, and is answered after the post
        store.ended = []
    store.pause.set()
    await settle()
    assert client.heard == ["status"] * len(client.heard)


async def test_a_client_that_does_not_read_misses_previews_and_holds_nobody_up(relay: Relay) -> None:
    slow, quick = join(relay, reads=False), join(relay, "you")
    preview = struct.pack(">II", 1, 1) + b"picture"
    for _ in range(20):
        relay.hear(FeedFrame(MINE, RUN, "me", preview))
        relay.hear(FeedFrame("theirs", "run", "you", preview))
        await settle()
    slow.socket.open.set()
    await settle()
    assert slow.socket.frames.count(preview) <= MOST_PREVIEWS + 1
    assert quick.socket.frames.count(preview) == 20


@pytest.mark.parametrize("has_metadata", [True, False])
async def test_previews_come_as_a_client_wants_them(relay: Relay, has_metadata: bool) -> None:
    client = join(relay)
    relay.negotiate(client, {"supports_preview_metadata": has_metadata})  # type: ignore[arg-type]
    metadata = json.dumps({"prompt_id": RUN, "image_type": "image/png"}).encode()
    relay.hear(FeedFrame(MINE, RUN, "me", struct.pack(">II", 4, len(metadata)) + metadata + b"png"))
    relay.hear(frame("progress", {"value": 1, "max": 4, "node": "9"}))
    await settle()
    shown = [each for each in client.socket.frames if isinstance(each, bytes) or each["type"] == "progress"]
    sent = shown.pop(0 if has_metadata else 1)
    assert shown[0]["type"] == "progress"
    if has_metadata:
        assert json.loads(sent[8:-3])["prompt_id"] == MINE
    else:
        assert sent == struct.pack(">II", 1, 2) + b"png"


async def test_what_a_node_shows_has_the_names_that_the_history_will_have(relay: Relay) -> None:
    client = join(relay)
    relay.hear(frame("executed", {"node": "9", "output": {"images": [saved(f"{RUN}_00001_.png")]}}))
    await settle()
    assert client.socket.frames[-1]["data"]["output"] == {"images": [saved("cat_00007_.png", subfolder="animals")]}


async def test_everyone_hears_how_many_are_left(relay: Relay, store: Prompts) -> None:
    client, other = join(relay), join(relay, "you")
    relay.wake()
    await settle()
    store.open = 3
    relay.wake()
    await settle()
    left = [each.socket.frames[-1]["data"]["status"]["exec_info"] for each in (client, other)]
    assert left == [{"queue_remaining": 3}] * 2


@pytest.mark.parametrize("text", ['{"type": "executing", "data": []}', '{"type": ["a"], "data": {}}', "[1]", "{"])
async def test_what_a_server_says_wrongly_is_passed_over(relay: Relay, text: str) -> None:
    client = join(relay)
    relay.hear(FeedFrame(MINE, RUN, "me", text))
    relay.hear(frame("execution_start", {}))
    await settle()
    assert client.heard[-1] == "execution_start"
