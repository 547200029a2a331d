"""A worker is dead without a row, or when its row is of another host and has not been renewed for a minute."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest

from comfyui_agent.store import operations as ops
from comfyui_agent.store.agent_lock import AgentLock
from comfyui_agent.store.liveness import bury_dead, registered
from comfyui_agent.store.store import Store
from support.stores import HOST, LEASE_SECONDS, WORKER, Database, open_attempt, register, submit_and_lease

KILLED = """
import os, sys
from pathlib import Path
from comfyui_agent.store.agent_lock import AgentLock

lock = AgentLock(Path(sys.argv[1]))
print(lock.worker, lock.host, lock.path, flush=True)
os.kill(os.getpid(), 9)
"""


async def is_dead(store: Store, host: str = HOST) -> bool:
    """Whether the worker of the only open run counts as dead, as every query sees it."""
    (seen,) = await store.run(ops.open_attempts, host)
    assert (
        seen.is_worker_dead == seen.is_attempt_worker_dead == (WORKER not in await store.run(ops.living_agents, host))
    )
    return seen.is_worker_dead


async def test_a_worker_without_a_row_is_dead(store: Store) -> None:
    await submit_and_lease(store)
    assert await is_dead(store)
    await register(store, WORKER)
    assert not await is_dead(store)
    await store.run(ops.remove_agent, WORKER)
    assert await is_dead(store)


async def test_a_run_of_nobody_has_no_dead_worker(store: Store, database: Database) -> None:
    await submit_and_lease(store)
    database.by_hand("UPDATE jobs SET worker_id = NULL; UPDATE attempts SET worker_id = NULL")
    seen = await open_attempt(store)
    assert (seen.is_worker_dead, seen.is_attempt_worker_dead) == (False, False)


async def test_on_its_own_host_a_worker_lives_however_old_its_heartbeat(store: Store, database: Database) -> None:
    await submit_and_lease(store)
    await register(store, WORKER)
    database.clock.advance(7 * 24 * 3600)
    assert not await is_dead(store)
    assert await is_dead(store, "elsewhere")


@pytest.mark.parametrize("beat", ["renew_leases", "beat_agent", "register_agent"])
async def test_on_another_host_the_heartbeat_decides(store: Store, database: Database, beat: str) -> None:
    await submit_and_lease(store)
    await register(store, WORKER)
    database.clock.advance(60)
    assert not await is_dead(store, "elsewhere")
    database.clock.advance(0.001)
    assert await is_dead(store, "elsewhere")
    match beat:
        case "renew_leases":
            await store.run(ops.renew_leases, WORKER, LEASE_SECONDS)
        case "beat_agent":
            await store.run(ops.beat_agent, WORKER)
        case _:
            await register(store, WORKER)
    assert not await is_dead(store, "elsewhere")


async def test_a_heartbeat_brings_no_row_back(store: Store) -> None:
    await store.run(ops.beat_agent, WORKER)
    assert await store.run(ops.living_agents, HOST) == []


async def test_rows_of_other_hosts_are_forgotten_after_a_month(store: Store, database: Database) -> None:
    await register(store, "here")
    await register(store, "there", host="elsewhere")
    database.clock.advance(31 * 24 * 3600)
    await register(store, "new")
    assert [row["worker_id"] for row in database.by_hand("SELECT worker_id FROM agents")] == ["here", "new"]


@pytest.mark.skipif(os.name != "posix", reason="killed with a signal")
async def test_a_killed_process_is_buried_at_once_and_the_living_stay(store: Store, tmp_path: Path) -> None:
    """Two workspaces that share a database: the path of a lock is in its row."""
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", KILLED, str(tmp_path / "one"), stdout=asyncio.subprocess.PIPE
    )
    said, _ = await child.communicate()
    worker, host, path = said.decode().split()
    await store.run(ops.register_agent, worker, host, path)
    await register(store, "elsewhere-agent", host="elsewhere")
    async with registered(store, AgentLock(tmp_path / "two")):
        (living,) = {*await store.run(ops.living_agents, host)} - {worker, "elsewhere-agent"}
        await bury_dead(store, host)
        assert await store.run(ops.living_agents, host) == sorted([living, "elsewhere-agent"])
    assert await store.run(ops.living_agents, host) == ["elsewhere-agent"]
    assert list((tmp_path / "two").iterdir()) == []
