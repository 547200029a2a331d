"""Agents apply the `retention` settings in the background: one of them, once an hour."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from comfyui_agent.config.settings import Retention, Settings
from comfyui_agent.engine.retention import DAY, Ages, ages_of
from comfyui_agent.store import operations as ops
from support.engine import Room


@pytest.fixture
async def room(tmp_path: Path) -> AsyncIterator[Room]:
    room = Room(tmp_path, retention={"jobs_days": 1})
    yield room
    await room.close()


async def cancel_long_ago(room: Room, name: str) -> None:
    await room.submit(name)
    await room.store.run(ops.cancel_jobs, [(await room.job(name)).id])
    room.clock.advance_database(2 * DAY)


async def test_what_is_old_goes_once_an_hour_and_an_event_says_so(room: Room) -> None:
    await cancel_long_ago(room, "a")
    await room.start()
    await room.start()
    await room.clock.advance(2)
    assert await room.store.run(ops.find_job, "a") is None
    [message] = await room.events("database.pruned")
    assert message.startswith("0 batches, 1 job, ")


async def test_another_agent_has_had_its_turn(room: Room) -> None:
    await cancel_long_ago(room, "a")
    await room.store.run(ops.claim_retention, 3600)
    agent = await room.start()
    await room.clock.advance(2)
    assert await room.store.run(ops.find_job, "a") is not None
    room.clock.advance_database(3600)
    assert agent.retention is not None
    looking = asyncio.ensure_future(agent.retention.look())
    await room.clock.advance(3)
    await looking
    assert await room.store.run(ops.find_job, "a") is None


def test_by_default_everything_is_kept() -> None:
    assert ages_of(Settings().retention) is None
    given = Retention(events_days=2, inputs_days=0.5)
    assert ages_of(given) == Ages(events=2 * DAY, inputs=DAY / 2, keep_files=True)
