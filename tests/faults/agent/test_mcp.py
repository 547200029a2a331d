"""An AI agent submits, waits and looks while whatever serves it is killed -9: made once, and what it is told in the end
is true. It does what it was told to do: the same call again, with the same key."""

from __future__ import annotations

import asyncio
import base64
import io
import os
import random
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest
from mcp_types import ImageContent
from PIL import Image

from comfyui_agent.comfy.tasks import end_tasks
from support.agents import AgentWorkspace, check_promises
from support.children import children_of
from support.mcp_clients import AiAgent, agent_at, agent_with
from support.servers import ServerProcess, free_port, simulator
from support.workspaces import new_workspace, start_e3

T = TypeVar("T")
Call = Callable[[AiAgent], Coroutine[Any, Any, T]]
STEPS = ("submit_job", "wait", "get_result")
PATIENCE = 60.0
Connect = Callable[[], AbstractAsyncContextManager[AiAgent]]
random_ = random.Random(int(os.environ.get("PYTEST_SEED", "7")))


def asked(step: str, number: int) -> dict[str, Any]:
    key = f"picture-{number}"
    if step == "submit_job":
        return {"workflow": "picture", "inputs": {"color": 0x400000 + 0x10 * number}, "key": key}
    return {"id": key, "seconds": 5} if step == "wait" else {"id": key}


class Persistent:
    """Does what an agent does that has lost an answer: it connects again and sends the same again."""

    def __init__(self, connect: Connect) -> None:
        self._connect = connect
        self._calls: asyncio.Queue[tuple[Call[Any], asyncio.Future[Any]]] = asyncio.Queue()
        self._working: asyncio.Task[None] | None = None

    async def ask(self, step: str, number: int) -> dict[str, Any]:
        return await self._persist(lambda agent: agent.ask(step, **asked(step, number)))

    async def see(self, number: int) -> tuple[dict[str, Any], ImageContent | None]:
        return await self._persist(lambda agent: agent.see(id=f"picture-{number}"))

    async def interrupted(self, step: str, number: int, kill: Callable[[], None]) -> None:
        """One call, during which something is killed. It is answered, or not."""
        calling = asyncio.ensure_future(self._once(lambda agent: agent.call(step, **asked(step, number))))
        await asyncio.sleep(random_.choice((0.0, 0.003, 0.01, 0.03, 0.1)))
        kill()
        await asyncio.wait({calling}, timeout=10)
        calling.cancel()
        await asyncio.gather(calling, return_exceptions=True)

    async def _persist(self, do: Call[T]) -> T:
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                return await self._once(do)
            except ConnectionError:
                assert time.monotonic() < deadline, f"no answer for {PATIENCE} s"
                await asyncio.sleep(0.1)

    async def _once(self, do: Call[T]) -> T:
        if self._working is None or self._working.done():
            self._calls = asyncio.Queue()
            self._working = asyncio.create_task(self._work())
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._calls.put_nowait((do, answer))
        await asyncio.wait({answer, self._working}, return_when=asyncio.FIRST_COMPLETED)
        if not answer.done():
            raise ConnectionError(repr(self._working.exception()))
        return answer.result()

    async def _work(self) -> None:
        """One connection, in a task of its own: the SDK ends the task whose connection is cut."""
        async with self._connect() as agent:
            while True:
                do, answer = await self._calls.get()
                try:
                    result = await do(agent)
                except AssertionError as error:
                    answer.set_exception(error)
                else:
                    if not answer.done():
                        answer.set_result(result)

    async def leave(self) -> None:
        if self._working is not None:
            await end_tasks([self._working])


async def drive(
    agent: Persistent, victims: dict[str, Callable[[], None]], revive: Callable[[], Coroutine[Any, Any, None]]
) -> int:
    """Each step of each picture, each victim killed in the middle of it. How many pictures that were."""
    number = 0
    for victim, step in ((victim, step) for victim in victims for step in STEPS):
        number += 1
        for each in STEPS:
            if each == step:
                await agent.interrupted(step, number, victims[victim])
                await revive()
            said = await agent.ask(each, number)
            deadline = time.monotonic() + PATIENCE
            while each == "wait" and not said["ended"]:
                assert said["state"] in ("Pending", "Rendering"), said
                assert time.monotonic() < deadline, said
                said = await agent.ask(each, number)
        assert said["state"] == "Done", (victim, step, said)
    return number


async def check(found: Persistent, workspace: AgentWorkspace, count: int) -> None:
    """Each key has made one job, and its picture has the colour that was asked for."""
    for number in range(1, count + 1):
        again = await found.ask("submit_job", number)
        assert (again["is_new"], again["state"]) == (False, "Done")
        _, image = await found.see(number)
        assert image is not None
        with Image.open(io.BytesIO(base64.b64decode(image.data))) as picture:
            red, _, blue = picture.convert("RGB").getpixel((3, 3))  # type: ignore[misc]
        assert abs(red - 0x40) < 10
        assert abs(blue - 0x10 * number) < 10
    jobs = await asyncio.to_thread(check_promises, workspace, count)
    assert len({job.external_id for job in jobs}) == count


@asynccontextmanager
async def scene(folder: Path) -> AsyncIterator[tuple[AgentWorkspace, ServerProcess]]:
    server = await asyncio.to_thread(simulator(folder / "server", "--render-seconds", "0.3").start)
    workspace = new_workspace(folder / "workspace", server.url)
    for example in (workspace.root / "jobs").rglob("*.yaml"):
        example.unlink()
    try:
        yield workspace, server
    finally:
        workspace.stop_all()
        server.kill()


def kill_tools(folder: Path) -> None:
    for pid in children_of(os.getpid()):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        if b"mcp" in words and os.fsencode(folder) in words:
            os.kill(pid, signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.timeout(400)
async def test_over_stdio(tmp_path: Path) -> None:
    async with scene(tmp_path) as (workspace, server):
        agents = [workspace.start()]

        def kill_agent() -> None:
            workspace.kill(agents.pop())

        async def revive() -> None:
            if not agents:
                agents.append(workspace.start())
            if server.process is not None and server.process.poll() is not None:
                await asyncio.to_thread(server.start)

        agent = Persistent(lambda: agent_with(workspace.root))
        victims = {"e3 mcp": lambda: kill_tools(workspace.root), "e3 run": kill_agent, "server": server.kill}
        count = await drive(agent, victims, revive)
        await check(agent, workspace, count)
        await agent.leave()


@pytest.mark.slow
@pytest.mark.timeout(400)
async def test_over_http(tmp_path: Path) -> None:
    async with scene(tmp_path) as (workspace, server):
        port = free_port()

        def start() -> subprocess.Popen[bytes]:
            flags = ("--server", server.url)
            return start_e3(workspace, "run", *flags, E3_UI__ENABLED="true", E3_UI__PORT=str(port))

        runs = [start()]

        def kill_run() -> None:
            workspace.kill(runs.pop())

        async def revive() -> None:
            if not runs:
                runs.append(start())
            if server.process is not None and server.process.poll() is not None:
                await asyncio.to_thread(server.start)

        agent = Persistent(lambda: agent_at(f"http://127.0.0.1:{port}"))
        count = await drive(agent, {"e3 run": kill_run, "server": server.kill}, revive)
        await check(agent, workspace, count)
        await agent.leave()
