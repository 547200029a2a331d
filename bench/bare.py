"""The least that a program can do to have prompts rendered: the yardstick for the client."""

from __future__ import annotations

import asyncio
import json
import random
import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

Graph = dict[str, Any]


def trivial(prefix: str, edge: int = 64) -> Graph:
    """One small picture that no cache knows."""
    colour = random.randrange(0x1000000)
    return {
        "1": {"class_type": "EmptyImage", "inputs": {"width": edge, "height": edge, "batch_size": 1, "color": colour}},
        "2": {"class_type": "SaveImage", "inputs": {"images": ["1", 0], "filename_prefix": prefix}},
    }


@dataclass
class BareClient:
    """A bare aiohttp loop: post, listen, ask the history, fetch the file. It checks nothing and survives nothing."""

    url: str
    session: aiohttp.ClientSession
    client_id: str = field(default_factory=lambda: uuid.uuid4().hex)
    ended: dict[str, asyncio.Future[float]] = field(default_factory=dict)

    async def listen(self) -> None:
        async with self.session.ws_connect(f"{self.url}/ws?clientId={self.client_id}") as socket:
            async for message in socket:
                if message.type != aiohttp.WSMsgType.TEXT:
                    continue
                event = json.loads(message.data)
                if event["type"] == "executing" and event["data"].get("node") is None:
                    future = self.ended.get(event["data"].get("prompt_id", ""))
                    if future is not None and not future.done():
                        future.set_result(time.time())

    async def submit(self, graph: Graph) -> str:
        prompt_id = str(uuid.uuid4())
        self.ended[prompt_id] = asyncio.get_running_loop().create_future()
        body = {"prompt": graph, "prompt_id": prompt_id, "client_id": self.client_id}
        async with self.session.post(f"{self.url}/prompt", json=body) as answer:
            await answer.json()
        return prompt_id

    async def history(self, prompt_id: str) -> dict[str, Any]:
        async with self.session.get(f"{self.url}/history/{prompt_id}") as answer:
            entry: dict[str, Any] = (await answer.json())[prompt_id]
            return entry

    async def fetch(self, entry: dict[str, Any], target: Path) -> None:
        image = entry["outputs"]["2"]["images"][0]
        async with self.session.get(f"{self.url}/view", params=image) as answer:
            target.write_bytes(await answer.read())

    async def render(self, graph: Graph, target: Path) -> None:
        prompt_id = await self.submit(graph)
        await self.ended[prompt_id]
        await self.fetch(await self.history(prompt_id), target)
        del self.ended[prompt_id]
