"""A million jobs on PostgreSQL, and people who look at them: how long each page of the store takes."""

from __future__ import annotations

import asyncio
import os
import time

from comfyui_agent.domain.events import Event, EventName
from comfyui_agent.store import operations as ops
from comfyui_agent.store.connect import open_store
from looking import GOAL, LOOKS, ROWS, WHY, index, looks
from pg_filling import fill_million
from pg_server import postgres
from report import Line, at_most, p95


async def _measure(url: str) -> list[Line]:
    store = open_store(url)
    lines = [await index(store)]
    asked = await looks(store)
    taken: dict[str, list[float]] = {name: [] for name in asked}
    for _ in range(LOOKS):
        for name, look in asked.items():
            await store.run(ops.add_event, Event(EventName.SERVER_UP))
            started = time.perf_counter()
            await look()
            taken[name].append((time.perf_counter() - started) * 1000)
    await store.close()
    what = f"{ROWS:,} jobs, p95 of {LOOKS}, load {os.getloadavg()[0]:.1f}"
    return lines + [
        at_most(f"postgres: {name}, {what}, least {min(each):.1f}", GOAL, p95(each), " ms", why=WHY)
        for name, each in taken.items()
    ]


def measure() -> list[Line]:
    with postgres() as server, server.fresh() as url:
        fill_million(url)
        return asyncio.run(_measure(url))


if __name__ == "__main__":
    for line in measure():
        print(line.text(), flush=True)
