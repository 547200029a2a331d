"""Many clients and many prompts at once: queue and history stay consistent, memory stays bounded."""

from __future__ import annotations

import asyncio
import random
import uuid
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from support.graphs import node, picture, text_to_image
from support.servers import ServerProcess
from support.wire import Recorder, Wire

from .conftest import Connect, Start

PROMPTS = 600
AT_ONCE = 20


def resident_mb(server: ServerProcess) -> float:
    assert server.process is not None
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS")) / 1024


def trivial(number: int) -> dict[str, Any]:
    return {"1": node("PrimitiveInt", value=number), "2": node("PreviewAny", source=["1", 0])}


async def test_each_of_many_sockets_hears_its_own_prompt_and_no_other(start: Start, connect: Connect) -> None:
    async with connect(start()) as wire, AsyncExitStack() as stack:
        sockets: dict[str, Recorder] = {}
        for number in range(20):
            sockets[f"client {number}"] = await stack.enter_async_context(wire.socket(f"client {number}"))
        ids = {name: await wire.submit(picture(), client_id=name) for name in sockets}
        for name, socket in sockets.items():
            await socket.last_frame_of(ids[name])
            assert {data["prompt_id"] for data in socket.events("executed")} == {ids[name]}
            assert len(socket.events("execution_success")) == 1


async def test_a_client_that_stops_reading_does_not_stop_work_or_http(start: Start, connect: Connect) -> None:
    async with connect(start()) as wire:
        reader, writer = await asyncio.open_connection(*wire.url.removeprefix("http://").split(":"), limit=1024)
        writer.write(
            b"GET /ws?clientId=deaf HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
        )
        assert b"101" in await reader.readline()
        graph = await text_to_image(wire, steps=300)
        graph["4"]["inputs"].update(width=512, height=512)
        entry = await wire.run(graph, client_id="deaf", extra_data={"preview_method": "latent2rgb"})
        assert entry["status"]["completed"]
        await wire.run(picture())
        writer.transport.abort()
        async with wire.socket() as socket:
            await socket.last_frame_of(await wire.submit(picture()))


async def test_hundreds_of_prompts_with_deletes_and_interrupts_all_end_or_are_gone(
    start: Start, connect: Connect
) -> None:
    server = start()
    dice = random.Random(5)
    numbers = iter(range(PROMPTS))
    deleted: set[str] = set()
    sent: list[str] = []

    async def send(wire: Wire) -> None:
        for number in numbers:
            sent.append(await wire.submit(trivial(number), prompt_id=str(uuid.uuid4())))
            chance = dice.random()
            if chance < 0.1:
                victim = dice.choice(sent)
                deleted.add(victim)
                await wire.post("/queue", {"delete": [victim]})
            elif chance < 0.2:
                await wire.post("/interrupt", {} if chance < 0.15 else {"prompt_id": dice.choice(sent)})
            elif chance < 0.22:
                running, pending = await wire.queue()
                assert len(running) <= 1
                assert not {item[1] for item in running} & {item[1] for item in pending}

    async with connect(server) as wire:
        await wire.run(trivial(-1))
        before = resident_mb(server)
        await asyncio.gather(*(send(wire) for _ in range(AT_ONCE)))
        await wire.idle()
        history = (await wire.get("/history")).body
        assert len(set(sent)) == PROMPTS
        assert set(sent) - deleted <= set(history), "a prompt was lost"
        last_words = {entry["status"]["messages"][-1][0] for entry in history.values()}
        assert last_words <= {"execution_success", "execution_interrupted"}
        assert resident_mb(server) - before < 60
        assert (await wire.post("/history", {"clear": True})).status == 200
        assert (await wire.get("/history")).body == {}
        await wire.run(picture())
