"""A preview reaches the watch of the prompt that it shows, whether its server says which that is or not."""

from __future__ import annotations

import json
import struct
from collections.abc import AsyncIterator
from typing import Any

import pytest

from comfyui_agent.comfy.client import ComfyClient
from comfyui_agent.comfy.frames import read_binary, read_text
from comfyui_agent.comfy.outcomes import Failed
from comfyui_agent.comfy.watch import Watch
from comfyui_agent.domain.failures import Failure, FailureClass
from comfyui_agent.domain.prompts import mint_prompt_id

PICTURE = b"\xff\xd8\xff picture"
STRANGER = "6f9619ff-8b86-4011-b42d-00c04fc964ff"


class Hearing:
    """A client that hears what a test says."""

    def __init__(self, client: ComfyClient) -> None:
        self._client = client

    def watch(self) -> Watch:
        return self._client._watches.add(Watch(mint_prompt_id(), None, None))

    def text(self, kind: str, **data: Any) -> None:
        self._hear(read_text(json.dumps({"type": kind, "data": data})))

    def bare(self, picture: bytes = PICTURE) -> None:
        """As older servers send it."""
        self._hear(read_binary(struct.pack(">II", 1, 1) + picture))

    def described(self, picture: bytes = PICTURE, **metadata: Any) -> None:
        """As newer servers send it to clients that ask for it."""
        head = json.dumps({"image_type": "image/jpeg", "node_id": "5", **metadata}).encode()
        self._hear(read_binary(struct.pack(">II", 4, len(head)) + head + picture))

    def _hear(self, frame: Any) -> None:
        assert frame is not None
        self._client._watches._hear(frame)


@pytest.fixture
async def server() -> AsyncIterator[Hearing]:
    async with ComfyClient("http://127.0.0.1:9", listen=False) as client:
        yield Hearing(client)


def shown(watch: Watch) -> bytes | None:
    return watch.progress.preview.image if watch.progress.preview else None


async def test_one_that_names_its_prompt_goes_there_whatever_was_heard_last(server: Hearing) -> None:
    first, second = server.watch(), server.watch()
    server.text("execution_start", prompt_id=second.prompt_id)
    server.described(prompt_id=first.prompt_id)
    assert (shown(first), shown(second)) == (PICTURE, None)


async def test_one_that_names_nothing_goes_to_the_prompt_that_runs(server: Hearing) -> None:
    first, second = server.watch(), server.watch()
    server.text("execution_start", prompt_id=first.prompt_id)
    server.bare(b"\xff\xd8\xff one")
    server.text("executing", node=None, prompt_id=first.prompt_id)
    server.text("status", status={"exec_info": {"queue_remaining": 1}})
    server.text("execution_start", prompt_id=second.prompt_id)
    server.text("progress", node="5", value=1, max=4)
    server.bare(b"\xff\xd8\xff two")
    assert (shown(first), shown(second)) == (b"\xff\xd8\xff one", b"\xff\xd8\xff two")


@pytest.mark.parametrize("described", [True, False])
async def test_one_of_a_stranger_is_nobodys(server: Hearing, described: bool) -> None:
    """Prompts without a client tell everyone of their steps and show everyone their previews."""
    ours = server.watch()
    server.text("execution_start", prompt_id=ours.prompt_id)
    server.text("progress", node="5", value=1, max=4, prompt_id=STRANGER)
    server.described(prompt_id=STRANGER) if described else server.bare()
    assert shown(ours) is None


async def test_the_newest_counts_and_is_forgotten_with_its_prompt(server: Hearing) -> None:
    ours = server.watch()
    server.described(b"\xff\xd8\xff old", prompt_id=ours.prompt_id)
    server.described(b"\xff\xd8\xff new", prompt_id=ours.prompt_id)
    assert shown(ours) == b"\xff\xd8\xff new"
    ours.settle(Failed(ours.prompt_id, Failure(FailureClass.EXECUTION, "it broke")))
    assert shown(ours) is None
