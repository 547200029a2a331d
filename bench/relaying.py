"""What a client of ComfyUI notices of the gateway between it and its server."""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from bare import Graph, trivial
from comfyui_agent.sim.process import answers
from pairs import measure_pairs
from report import Line, at_least, at_most
from sizes import size
from support.agents import wait_until
from support.servers import free_port, simulator

PROMPTS = size(150, 5)
AT_ONCE = size(200, 10)
CLIENTS = size(200, 4)
SERVERS = size(8, 2)
STEPS = 20
TICKS = os.sysconf("SC_CLK_TCK")


@dataclass
class Listener:
    """A client with one websocket, which notes when it hears of its prompts."""

    session: aiohttp.ClientSession
    url: str
    client_id: str = field(default_factory=lambda: uuid.uuid4().hex)
    started: dict[str, asyncio.Future[float]] = field(default_factory=dict)
    finished: dict[str, float] = field(default_factory=dict)
    """When the server says that it finished."""
    told: dict[str, asyncio.Future[float]] = field(default_factory=dict)
    previews: int = 0

    async def listen(self, is_open: asyncio.Event) -> None:
        async with self.session.ws_connect(f"{self.url}/ws?clientId={self.client_id}") as socket:
            is_open.set()
            async for message in socket:
                if message.type is aiohttp.WSMsgType.BINARY:
                    self.previews += 1
                elif message.type is aiohttp.WSMsgType.TEXT:
                    self._hear(json.loads(message.data), time.time())

    def _hear(self, message: dict[str, Any], now: float) -> None:
        event, data = message["type"], message["data"]
        prompt_id = data.get("prompt_id")
        if prompt_id not in self.told:
            return
        if event == "execution_start":
            _set(self.started[prompt_id], now)
        elif event == "execution_success":
            self.finished[prompt_id] = data["timestamp"] / 1000
        elif event == "executing" and data["node"] is None:
            _set(self.told[prompt_id], now)

    async def post(self, graph: Graph) -> str:
        loop, prompt_id = asyncio.get_running_loop(), str(uuid.uuid4())
        self.started[prompt_id], self.told[prompt_id] = loop.create_future(), loop.create_future()
        body = {"prompt": graph, "prompt_id": prompt_id, "client_id": self.client_id}
        async with self.session.post(f"{self.url}/prompt", json=body) as answer:
            assert answer.status == 200, await answer.text()
        return prompt_id


def _set(future: asyncio.Future[float], moment: float) -> None:
    if not future.done():
        future.set_result(moment)


@contextmanager
def gateway(*servers: str) -> Iterator[tuple[str, int]]:
    """`e3 run` with a gateway in front of these servers: its address and its process."""
    port = free_port()
    environment = {"E3_GATEWAY__PORT": str(port), "E3_UI__ENABLED": "false"}
    with tempfile.TemporaryDirectory(prefix="e3-bench-") as root, (Path(root) / "log").open("wb") as log:
        subprocess.run([sys.executable, "-m", "comfyui_agent", "init", root], stdout=log, check=True)
        flags = [word for url in servers for word in ("--server", url)]
        command = [sys.executable, "-m", "comfyui_agent", "run", "-C", root, *flags]
        process = subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, **environment})
        try:
            url = f"http://127.0.0.1:{port}"
            wait_until(lambda: answers(url), "the gateway", timeout=60)
            yield url, process.pid
        finally:
            process.terminate()
            process.wait(20)


def measure(name: str, url: str) -> list[Line]:
    with gateway(url) as (front, _):
        lines = asyncio.run(_latencies(name, url, front))
        rates = measure_pairs(lambda _: asyncio.run(_rate(front)), lambda _: asyncio.run(_rate(url)), warm_up=True)
    what = f"{name}: {AT_ONCE} prompts posted at once, through the gateway against the server itself"
    return [*lines, at_least(f"{what}, {rates.seen('/s')}", 0.9, rates.ratio)]


async def _latencies(name: str, url: str, front: str) -> list[Line]:
    """Prompts straight to the server and through the gateway, in turn."""
    start: dict[str, list[float]] = {url: [], front: []}
    end: dict[str, list[float]] = {url: [], front: []}
    async with aiohttp.ClientSession() as session:
        clients = [Listener(session, place) for place in (url, front)]
        tasks = await _listening(clients)
        for number in range(PROMPTS):
            for client in clients if number % 2 else reversed(clients):
                posted = time.time()
                prompt_id = await client.post(trivial(f"relay_{client.client_id[:8]}/{number // 100}/p"))
                start[client.url].append(await client.started[prompt_id] - posted)
                told = await client.told[prompt_id]
                end[client.url].append(told - client.finished[prompt_id])
        await _end(tasks)
    lines = []
    for what, found in (("post to execution start", start), ("finish to client told", end)):
        direct, through = (statistics.median(found[place]) * 1000 for place in (url, front))
        seen = f"{through:.1f} against {direct:.1f} ms, medians of {PROMPTS}"
        lines.append(at_most(f"{name}: {what}, more through the gateway, {seen}", 5.0, through - direct, " ms"))
    return lines


async def _rate(url: str) -> float:
    """Prompts a second, from the first post to the last end that the client hears of."""
    async with aiohttp.ClientSession() as session:
        client = Listener(session, url)
        tasks = await _listening([client])
        graphs = [trivial(f"relay_{client.client_id[:8]}/{number // 100}/p") for number in range(AT_ONCE)]
        began = time.perf_counter()
        ids = await asyncio.gather(*map(client.post, graphs))
        await asyncio.gather(*(client.told[prompt_id] for prompt_id in ids))
        seconds = time.perf_counter() - began
        await _end(tasks)
    return AT_ONCE / seconds


def measure_sockets() -> list[Line]:
    """Many clients with previews: how much of one core an agent with gateway needs meanwhile."""
    with tempfile.TemporaryDirectory() as base, ExitStack() as stack:
        servers = [simulator(Path(base) / str(number), "--render-seconds", "2").start() for number in range(SERVERS)]
        for server in servers:
            stack.callback(server.kill)
        front, pid = stack.enter_context(gateway(*(server.url for server in servers)))
        cores, previews, ended = asyncio.run(_crowd(front, pid))
    what = f"{CLIENTS} websockets with previews at {SERVERS} servers, {previews:.0f} previews/s, {ended} ends heard"
    return [at_most(f"{what}: cores of e3 run with its gateway", 1.0, cores)]


async def _crowd(front: str, pid: int) -> tuple[float, float, int]:
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        clients = [Listener(session, front) for _ in range(CLIENTS)]
        tasks = await _listening(clients)
        async with session.get(f"{front}/object_info/CheckpointLoaderSimple") as answer:
            info = (await answer.json())["CheckpointLoaderSimple"]
        model = info["input"]["required"]["ckpt_name"][0][0]
        before, began = _cpu_seconds(pid), time.perf_counter()
        ids = [await client.post(_sampled(model, number)) for number, client in enumerate(clients)]
        await asyncio.gather(*(client.told[prompt_id] for client, prompt_id in zip(clients, ids, strict=True)))
        seconds = time.perf_counter() - began
        spent = _cpu_seconds(pid) - before
        await _end(tasks)
    assert all(client.previews for client in clients), "a client without previews"
    return spent / seconds, sum(client.previews for client in clients) / seconds, len(ids)


def _sampled(model: str, seed: int) -> Graph:
    """A picture with steps, and a preview of each."""
    sampler = {"seed": seed, "steps": STEPS, "cfg": 7.0, "sampler_name": "euler", "scheduler": "normal", "denoise": 1.0}
    links = {"model": ["4", 0], "positive": ["6", 0], "negative": ["6", 0], "latent_image": ["5", 0]}
    return {
        "3": {"class_type": "KSampler", "inputs": {**sampler, **links}},
        "4": {"class_type": "CheckpointLoaderSimple", "inputs": {"ckpt_name": model}},
        "5": {"class_type": "EmptyLatentImage", "inputs": {"width": 512, "height": 512, "batch_size": 1}},
        "6": {"class_type": "CLIPTextEncode", "inputs": {"text": "a fox", "clip": ["4", 1]}},
        "8": {"class_type": "VAEDecode", "inputs": {"samples": ["3", 0], "vae": ["4", 2]}},
        "9": {"class_type": "SaveImage", "inputs": {"images": ["8", 0], "filename_prefix": "crowd"}},
    }


async def _listening(clients: list[Listener]) -> list[asyncio.Task[None]]:
    opened = [asyncio.Event() for _ in clients]
    tasks = [asyncio.create_task(client.listen(event)) for client, event in zip(clients, opened, strict=True)]
    await asyncio.gather(*(event.wait() for event in opened))
    return tasks


async def _end(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS
