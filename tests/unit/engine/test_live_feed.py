"""What servers say of posted prompts reaches who reads the feed, in the same process and in others."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from comfyui_agent.engine import live_feed
from comfyui_agent.engine.live_feed import FeedFrame, FeedReader, FeedServer, FrameKind, LiveFeed
from comfyui_agent.store.agent_lock import AgentLock
from comfyui_agent.store.posted_prompts import ClientPrompt

RUN = "11111111-1111-4111-8111-111111111111"
CLIENT = ClientPrompt("mine", "me", {}, ())


@pytest.mark.parametrize("is_here", [True, False], ids=["in this process", "by a socket"])
async def test_frames_arrive_in_order_until_the_agent_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_here: bool
) -> None:
    if not is_here:
        monkeypatch.setattr(live_feed, "HERE", {})
    feed, heard, lock = LiveFeed(), asyncio.Queue[FeedFrame](), AgentLock(tmp_path)
    server, reader = FeedServer(feed, tmp_path, lock.worker), FeedReader(tmp_path, heard.put_nowait)
    feed.begin("gpu1", RUN, CLIENT)
    feed.hear("gpu1", f'{{"type": "execution_start", "data": {{"prompt_id": "{RUN}"}}}}')
    await server.start()
    if not is_here:
        live_feed.HERE.clear()
    reader.start()
    frames = [await asyncio.wait_for(heard.get(), 10)]
    feed.hear("gpu1", b"\0\0\0\1\0\0\0\1picture")
    feed.end("gpu1", RUN)
    frames += [await asyncio.wait_for(heard.get(), 10) for _ in range(2)]
    assert [frame.kind for frame in frames] == [FrameKind.REPLAYED, FrameKind.SENT, FrameKind.ENDED]
    assert {(frame.prompt_id, frame.client_id) for frame in frames} == {("mine", "me")}
    await server.stop()
    lock.release()
    await reader.stop()
    feed.begin("gpu1", RUN, CLIENT)
    feed.end("gpu1", RUN)
    assert heard.empty(), "it was said after the end"
