"""Which processes are alive: rows in `agents`, decided by the database's clock.

A process is dead if it has no row, or if its row is of another host and its heartbeat is older than 60 seconds. On its
own host a held lock file means alive, however old the heartbeat is.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

from comfyui_agent.store.agent_lock import AgentLock, is_free
from comfyui_agent.store.errors import StoreError
from comfyui_agent.store.operation import Operation, OperationRunner, column, query, statement, transition
from comfyui_agent.store.port import Session

BEAT_SECONDS = 10.0
FORGOTTEN_AFTER_DAYS = 30


@transition
def register_agent(session: Session, worker: str, host: str, lock: str) -> None:
    """Note that a process lives. It holds its lock already, and nothing in the database yet."""
    session.run("forget_agents", host=host, days=FORGOTTEN_AFTER_DAYS)
    session.run("register_agent", worker=worker, host=host, lock=lock)


beat_agent: Operation[[str], int] = statement("beat_agent", "worker")
remove_agent: Operation[[str], int] = statement("remove_agent", "worker")


@query
def agents_of_host(session: Session, host: str) -> list[tuple[str, Path]]:
    """Workers of a host with their lock files."""
    return [(row["worker_id"], Path(row["lock"])) for row in session.rows("agents_of_host", host=host)]


living_agents: Operation[[str], list[str]] = column(list, "living_agents", "host")
"""Every worker that is alive, as far as the rows say."""


async def bury_dead(store: OperationRunner, host: str) -> None:
    """Remove the rows of this host whose lock files are free or gone. Dead processes of other hosts stop beating."""
    for worker, lock in await store.run(agents_of_host, host):
        if is_free(lock):
            await store.run(remove_agent, worker)


@contextlib.asynccontextmanager
async def registered(store: OperationRunner, lock: AgentLock) -> AsyncIterator[None]:
    """Have a row while this block runs, and give the lock back at its end."""
    try:
        await store.run(register_agent, lock.worker, lock.host, str(lock.path))
        yield
    finally:
        with contextlib.suppress(StoreError):  # without a lock it is buried by the next process that looks
            await store.run(remove_agent, lock.worker)
        lock.release()
