"""A server that is taken out of work gets nothing new, and is drained once, when nothing is there any more."""

from __future__ import annotations

import asyncio

import pytest

from comfyui_agent.domain.failures import FailureClass
from comfyui_agent.domain.retry_policy import GiveUp, Retry
from comfyui_agent.domain.server_states import ServerInState, ServerState
from comfyui_agent.store import operations as ops
from comfyui_agent.store.store import Store
from support.stores import (
    SERVER,
    Database,
    broken,
    lease,
    lease_one,
    open_attempt,
    submit_and_lease,
    submit_one,
    take_over,
    wish,
)

OTHER = "http://other:8188"


async def state_of(store: Store, server: str = SERVER) -> ServerState | None:
    return next((each.state for each in await store.run(ops.servers_out_of_work) if each.server == server), None)


async def drains_told(store: Store) -> list[str | None]:
    return [event.server for event in await store.run(ops.events_after, 0) if event.name == "server.drained"]


async def test_a_server_that_nobody_took_out_of_work_is_not_listed(store: Store) -> None:
    await submit_and_lease(store)
    assert await store.run(ops.servers_out_of_work) == []


@pytest.mark.parametrize("halt", ["pause_server", "drain_server"])
async def test_nothing_is_leased_for_a_server_that_takes_no_work(store: Store, database: Database, halt: str) -> None:
    await store.run(ops.submit_jobs, [wish("a"), wish("b")])
    await store.run(getattr(ops, halt), SERVER)
    assert await lease(store) == []
    assert await lease(database.open(), worker="unaware") == []
    assert (await lease_one(store, server=OTHER)).config_name == "a"
    assert await store.run(ops.resume_server, SERVER)
    assert (await lease_one(store)).config_name == "b"


async def test_what_a_paused_server_has_is_kept_taken_over_and_done(store: Store) -> None:
    await submit_and_lease(store)
    await store.run(ops.pause_server, SERVER)
    assert await store.run(ops.servers_out_of_work) == [ServerInState(SERVER, ServerState.PAUSED, has_runs=True)]
    again = await take_over(store)
    await store.run(ops.complete_job, again.lease, ["a.png"], None)
    assert await store.run(ops.servers_out_of_work) == [ServerInState(SERVER, ServerState.PAUSED, has_runs=False)]
    assert await store.run(ops.finish_drain, SERVER) is False
    assert await state_of(store) is ServerState.PAUSED


async def test_a_server_where_nothing_is_is_drained_at_once(store: Store) -> None:
    elsewhere = await submit_and_lease(store)
    assert elsewhere.server == SERVER
    assert await store.run(ops.drain_server, OTHER) is ServerState.DRAINED
    assert await store.run(ops.servers_out_of_work) == [ServerInState(OTHER, ServerState.DRAINED, has_runs=False)]
    assert await drains_told(store) == [OTHER]


async def test_a_server_is_drained_when_the_last_run_of_all_agents_has_ended_there(
    store: Store, database: Database
) -> None:
    await store.run(ops.submit_jobs, [wish("a"), wish("b"), wish("c")])
    first, second = await lease(store, most=2)
    (third,) = await lease(database.open(), worker="second-agent")
    assert await store.run(ops.drain_server, SERVER) is ServerState.DRAINING
    await store.run(ops.complete_job, first.lease, ["a.png"], None)
    assert await store.run(ops.finish_drain, SERVER) is False
    await store.run(ops.requeue_job, second.lease, broken(FailureClass.INTERRUPTED), Retry(0.0, charged=False))
    assert await store.run(ops.finish_drain, SERVER) is False
    assert await store.run(ops.servers_out_of_work) == [ServerInState(SERVER, ServerState.DRAINING, has_runs=True)]
    await store.run(ops.fail_job, third.lease, broken(), GiveUp(FailureClass.EXECUTION))
    assert await drains_told(store) == []
    assert await store.run(ops.finish_drain, SERVER) is True
    assert await store.run(ops.servers_out_of_work) == [ServerInState(SERVER, ServerState.DRAINED, has_runs=False)]
    assert await drains_told(store) == [SERVER]


async def test_a_cancelled_job_keeps_its_server_from_being_drained_until_its_prompt_is_taken_back(store: Store) -> None:
    leased = await submit_and_lease(store)
    await store.run(ops.cancel_jobs, [leased.lease.job_id])
    assert await store.run(ops.drain_server, SERVER) is ServerState.DRAINING
    assert await store.run(ops.withdraw_attempt, await open_attempt(store)) == []
    assert await store.run(ops.finish_drain, SERVER) is True


async def test_of_several_agents_that_see_the_end_of_a_drain_one_tells_it(store: Store, database: Database) -> None:
    leased = await submit_and_lease(store)
    await store.run(ops.drain_server, SERVER)
    await store.run(ops.return_unsent, leased.lease)
    stores = [store, *(database.open() for _ in range(3))]
    ends = await asyncio.gather(*(each.run(ops.finish_drain, SERVER) for each in stores))
    assert sorted(ends) == [False, False, False, True]
    assert await drains_told(store) == [SERVER]


async def test_a_drain_that_is_asked_for_again_is_reported_once(store: Store) -> None:
    assert await store.run(ops.drain_server, SERVER) is ServerState.DRAINED
    assert await store.run(ops.drain_server, SERVER) is ServerState.DRAINED
    assert await drains_told(store) == [SERVER]
    await store.run(ops.resume_server, SERVER)
    assert await store.run(ops.drain_server, SERVER) is ServerState.DRAINED
    assert await drains_told(store) == [SERVER, SERVER], "this is another drain"


async def test_the_last_word_counts(store: Store) -> None:
    leased = await submit_and_lease(store)
    await store.run(ops.pause_server, SERVER)
    assert await store.run(ops.drain_server, SERVER) is ServerState.DRAINING
    await store.run(ops.pause_server, SERVER)
    await store.run(ops.return_unsent, leased.lease)
    assert await store.run(ops.finish_drain, SERVER) is False
    assert await state_of(store) is ServerState.PAUSED
    assert await store.run(ops.resume_server, SERVER) is True
    assert await store.run(ops.resume_server, SERVER) is False
    assert await state_of(store) is None
    assert await drains_told(store) == []


async def test_the_time_is_that_of_the_last_change(store: Store, database: Database) -> None:
    def since() -> str:
        (row,) = database.by_hand("SELECT since FROM server_states")
        return str(row["since"])

    leased = await submit_and_lease(store)
    await store.run(ops.pause_server, SERVER)
    paused_at = since()
    assert paused_at == database.clock.text()
    database.clock.advance(60)
    await store.run(ops.pause_server, SERVER)
    assert since() == paused_at
    database.clock.advance(60)
    await store.run(ops.drain_server, SERVER)
    assert since() == database.clock.text()
    await store.run(ops.complete_job, leased.lease, [], None)
    database.clock.advance(60)
    await store.run(ops.finish_drain, SERVER)
    assert since() == database.clock.text()


async def test_agents_wake_up_in_this_process_and_in_others(store: Store, database: Database) -> None:
    here, there = asyncio.Event(), asyncio.Event()
    other = database.open()
    store.on_change(here.set)
    other.on_change(there.set)
    for change in (ops.pause_server, ops.drain_server, ops.resume_server):
        here.clear()
        there.clear()
        await store.run(change, SERVER)
        assert here.is_set()
        await asyncio.wait_for(there.wait(), 5)


async def test_a_server_taken_out_and_put_back_by_hand_is_so(store: Store, database: Database) -> None:
    await submit_one(store)
    database.by_hand(f"INSERT INTO server_states (server, state) VALUES ('{SERVER}', 'paused')")
    assert await lease(store) == []
    assert await state_of(store) is ServerState.PAUSED
    database.by_hand("DELETE FROM server_states")
    assert len(await lease(store)) == 1
