"""Clients of ComfyUI and its SDK at the gateway, while gateway, agents and servers are killed at random."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import subprocess
import uuid
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import httpx
import pytest
from comfy_sdk import AsyncComfy, ComfyError, IdempotencyKeyReuse, StatusChange
from comfy_sdk.jobs import AsyncJob

from comfyui_agent.sim.process import free_port
from support.agents import AgentWorkspace, sized_picture
from support.painted import Painted, colors, painted
from support.servers import ServerProcess

LOST = (aiohttp.ClientError, asyncio.TimeoutError, OSError)


@dataclass
class Client:
    """A script as people write them, which posts again under the same id what was not answered."""

    session: aiohttp.ClientSession
    url: str
    prompts: list[str]
    sid: str = field(default_factory=lambda: uuid.uuid4().hex)
    ends: Counter[str] = field(default_factory=Counter)
    has_heard_all: asyncio.Event = field(default_factory=asyncio.Event)

    async def work(self) -> None:
        listening = asyncio.create_task(self.listen())
        try:
            for prompt_id in self.prompts:
                await self.post(prompt_id)
            await self.has_heard_all.wait()
        finally:
            listening.cancel()

    async def listen(self) -> None:
        while True:
            with contextlib.suppress(*LOST):
                async with self.session.ws_connect(f"{self.url}/ws?clientId={self.sid}") as socket:
                    async for message in socket:
                        if message.type is aiohttp.WSMsgType.TEXT:
                            self.hear(json.loads(message.data))
            await asyncio.sleep(0.05)

    def hear(self, message: dict[str, Any]) -> None:
        if message["type"] == "executing" and message["data"].get("node") is None:
            self.ends[message["data"]["prompt_id"]] += 1
            if len(self.ends) == len(self.prompts):
                self.has_heard_all.set()

    async def post(self, prompt_id: str) -> None:
        graph = sized_picture()
        graph["1"]["inputs"]["color"] = int(prompt_id[:6], 16)
        body = {"prompt": graph, "prompt_id": prompt_id, "client_id": self.sid}
        while True:
            with contextlib.suppress(*LOST):
                async with self.session.post(f"{self.url}/prompt", json=body) as answer:
                    if answer.status == 200:
                        return
                    assert answer.status == 503, await answer.text()  # no server has answered yet
            await asyncio.sleep(0.05)


@dataclass
class Night:
    """What is killed and started again."""

    workspace: AgentWorkspace
    servers: list[ServerProcess]
    port: int
    dice: random.Random
    gateway: subprocess.Popen[bytes] = field(init=False)
    agents: list[subprocess.Popen[bytes]] = field(init=False)
    killed: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.gateway = self.workspace.start_gateway(self.port)
        self.agents = [self.workspace.start(), self.workspace.start()]

    async def haunt(self, pause: float) -> None:
        while True:
            await asyncio.sleep(self.dice.uniform(0.5, 1.5) * pause)
            await asyncio.to_thread(self.kill, self.dice.choice(["gateway", "agent", "server"]))

    def kill(self, what: str) -> None:
        self.killed[what] += 1
        if what == "gateway":
            self.workspace.kill(self.gateway)
            self.gateway = self.workspace.start_gateway(self.port)
        elif what == "agent":
            place = self.dice.randrange(len(self.agents))
            self.workspace.kill(self.agents[place])
            self.agents[place] = self.workspace.start()
        else:
            server = self.dice.choice(self.servers)
            server.kill()
            server.start()


async def history(session: aiohttp.ClientSession, url: str) -> dict[str, Any]:
    async with session.get(f"{url}/history") as answer:
        found: dict[str, Any] = await answer.json()
        return found


@pytest.mark.parametrize(
    ("clients", "each", "pause", "seed"),
    [
        pytest.param(3, 20, 1.5, 1, id="short"),
        pytest.param(5, 100, 2.0, 2, id="long", marks=[pytest.mark.slow, pytest.mark.timeout(600)]),
    ],
)
async def test_every_prompt_is_in_the_history_once_and_every_client_is_told(
    start_server: Callable[..., ServerProcess],
    make_workspace: Callable[..., AgentWorkspace],
    clients: int,
    each: int,
    pause: float,
    seed: int,
) -> None:
    servers = [start_server("--render-seconds", "0.1"), start_server("--render-seconds", "0.1")]
    night = Night(make_workspace(*(server.url for server in servers)), servers, free_port(), random.Random(seed))
    url = f"http://127.0.0.1:{night.port}"
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(10)) as session:
        callers = [Client(session, url, [str(uuid.uuid4()) for _ in range(each)]) for _ in range(clients)]
        haunting = asyncio.create_task(night.haunt(pause))
        try:
            await asyncio.gather(*(caller.work() for caller in callers))
        finally:
            haunting.cancel()
            await asyncio.wait({haunting})
        while (ended := len(found := await _patiently(session, url))) < clients * each:
            assert ended <= clients * each
            await asyncio.sleep(0.1)
    assert set(found) == {prompt_id for caller in callers for prompt_id in caller.prompts}
    assert {entry["status"]["status_str"] for entry in found.values()} == {"success"}
    assert (await asyncio.to_thread(night.workspace.counts)).done == clients * each
    told = Counter(count for caller in callers for count in caller.ends.values())
    # A gateway that is killed between telling and noting that it has told tells once more.
    assert sum(count for times, count in told.items() if times > 1) <= 3 * night.killed["gateway"], told


async def _patiently(session: aiohttp.ClientSession, url: str) -> dict[str, Any]:
    while True:
        with contextlib.suppress(*LOST):
            return await history(session, url)
        await asyncio.sleep(0.1)


AWAY = (httpx.HTTPError, OSError)


async def patiently(ask: Callable[[], Any]) -> Any:
    """What the SDK answers when the gateway is there."""
    while True:
        try:
            return await ask()
        except AWAY:
            pass
        except ComfyError as error:
            if error.http_status != 503:
                raise
        await asyncio.sleep(0.1)


async def submitted(client: AsyncComfy, wanted: Painted, key: str) -> AsyncJob:
    """The job of a key, however often it has to be sent: the error of a used key names the job."""
    try:
        return await patiently(lambda: client.submit(client.workflows.from_json(wanted.graph), idempotency_key=key))
    except IdempotencyKeyReuse as used:
        job_id = (used.details or {})["job_id"]
        return await patiently(lambda: client.jobs.get(job_id))


async def rendered(client: AsyncComfy, wanted: Painted, *, listens: bool) -> str:
    """A job from its submission to the bytes of its output; its id."""
    job = await submitted(client, wanted, str(uuid.uuid4()))
    while listens:  # the SDK connects again where a stream breaks off, and asks the gateway in between
        with contextlib.suppress(*AWAY):
            last = [event async for event in job.events()][-1]
            assert last == StatusChange("succeeded")
            break
    await patiently(job.wait)
    assert job.status == "succeeded", job.error
    (output,) = job.outputs
    assert colors(await patiently(output.to_bytes)) == [wanted.color]
    return job.id


@pytest.mark.parametrize(
    ("each", "pause", "seed"),
    [
        pytest.param(20, 1.5, 3, id="short"),
        pytest.param(200, 2.0, 4, id="long", marks=[pytest.mark.slow, pytest.mark.timeout(600)]),
    ],
)
async def test_what_the_sdk_submits_with_keys_is_rendered_once_and_arrives(
    start_server: Callable[..., ServerProcess],
    make_workspace: Callable[..., AgentWorkspace],
    monkeypatch: pytest.MonkeyPatch,
    each: int,
    pause: float,
    seed: int,
) -> None:
    servers = [start_server("--render-seconds", "0.1"), start_server("--render-seconds", "0.1")]
    night = Night(make_workspace(*(server.url for server in servers)), servers, free_port(), random.Random(seed))
    monkeypatch.setenv("COMFY_BASE_URL", f"http://127.0.0.1:{night.port}")
    monkeypatch.delenv("COMFY_API_KEY", raising=False)
    async with AsyncComfy(timeout=10) as client:
        haunting = asyncio.create_task(night.haunt(pause))
        try:
            found = []
            for _ in range(each // 10):
                round_ = [rendered(client, painted(), listens=number < 3) for number in range(10)]
                found += await asyncio.gather(*round_)
        finally:
            haunting.cancel()
            await asyncio.wait({haunting})
        listed = [summary async for summary in client.list_jobs(limit=7)] if night.gateway.poll() is None else []
    assert len(set(found)) == each
    jobs = await asyncio.to_thread(night.workspace.jobs)
    assert {job.config_name for job in jobs} == set(found), "none was made twice"
    assert {job.status for job in jobs} == {"done"}
    assert not listed or {(summary.id, summary.status) for summary in listed} == {(name, "succeeded") for name in found}
