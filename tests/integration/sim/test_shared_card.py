"""Two simulators, two processes, one card."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pytest

from support.graphs import text_to_image
from support.wire import Wire

from .conftest import Connect, Start
from .test_render_time import seconds


@pytest.fixture
def card(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return f"card-{uuid.uuid4().hex}"


async def stats(wire: Wire) -> tuple[float, float, int]:
    """The share of the memory that is free, the share that it could have by itself, and how many are on the card."""
    body: Any = (await wire.get("/system_stats")).body
    (device,) = body["devices"]
    reachable = device["vram_free"] + device["torch_vram_total"] - device["torch_vram_free"]
    total = device["vram_total"]
    return device["vram_free"] / total, reachable / total, body["e3_simulator"]["card_processes"]


async def test_they_share_its_memory_until_one_is_killed(start: Start, connect: Connect, card: str) -> None:
    first, second = (start("--card", card, "--vram-gb", "2") for _ in range(2))
    async with connect(first) as one, connect(second) as two:
        assert await stats(one) == await stats(two) == (1, 1, 2)
        await one.run(await text_to_image(one))
        assert await stats(one) == (0.5, 1, 2)
        assert await stats(two) == (0.5, 0.5, 2)
        entry = await two.finished(await two.submit(await text_to_image(two)))
        assert entry["status"]["messages"][-1][1]["exception_type"] == "torch.OutOfMemoryError"
        assert await stats(two) == (0.5, 0.5, 2)
        first.kill()
        assert await stats(two) == (1, 1, 1)
        await two.run(await text_to_image(two))


async def test_a_render_takes_longer_while_the_other_renders(start: Start, connect: Connect, card: str) -> None:
    first, second = start("--card", card, "--render-seconds", "300"), start("--card", card, "--render-seconds", "0.4")
    async with connect(first) as one, connect(second) as two, one.socket() as socket:
        await socket.event("progress", await one.submit(await text_to_image(one, steps=1000)), value=1)
        assert seconds(await two.run(await text_to_image(two))) >= 0.4 * 1.35 - 0.01
