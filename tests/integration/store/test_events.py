"""What happened, in order, in the same transaction as the thing that happened."""

from __future__ import annotations

import asyncio

import pytest

from comfyui_agent.domain.events import Event, EventName
from comfyui_agent.domain.failures import FailureClass
from comfyui_agent.domain.retry_policy import GiveUp, Retry
from comfyui_agent.store import event_log
from comfyui_agent.store import operations as ops
from comfyui_agent.store.store import Store
from support.stores import SERVER, Database, broken, lease_one, submit_and_lease, submit_one


async def test_the_life_of_a_job_can_be_read_in_order(store: Store, database: Database) -> None:
    await submit_one(store)
    database.clock.advance(2)
    first = await lease_one(store)
    await store.run(ops.requeue_job, first.lease, broken(), Retry(0.0, charged=True))
    second = await lease_one(store)
    await store.run(ops.fail_job, second.lease, broken(), GiveUp(FailureClass.EXECUTION))
    await store.run(ops.retry_jobs, [first.lease.job_id])
    third = await lease_one(store)
    await store.run(ops.complete_job, third.lease, ["a.png"], 1.0)
    events = await store.run(ops.events_after, 0)
    told = [event.name for event in events if event.name != "job.submitted"]
    assert told == ["job.started", "job.retry", "job.started", "job.failed", "job.started", "job.done"]
    assert events[0].name == "job.submitted"
    assert {event.config_name for event in events} == {"knight.yaml"}
    assert {event.workflow_id for event in events} == {"wf_realistic_portrait"}
    assert [event.id for event in events] == sorted({event.id for event in events})
    assert events[1].wait_sec == pytest.approx(2, abs=0.002)
    assert (events[1].server, events[1].prompt_id) == (SERVER, first.prompt_id)
    assert events[0].timestamp < events[1].timestamp


async def test_events_are_read_on_from_where_one_left_off(store: Store) -> None:
    for name in "abc":
        await submit_one(store, name)
    first, second = await store.run(ops.events_after, 0, 2)
    (third,) = await store.run(ops.events_after, second.id)
    assert [event.config_name for event in (first, second, third)] == ["a", "b", "c"]
    assert first.id < second.id < third.id == await store.run(ops.newest_event)
    assert await store.run(ops.events_after, third.id) == []


async def test_events_of_many_writers_have_the_order_of_their_commits(store: Store, database: Database) -> None:
    other = database.open()
    seen: list[int] = []

    async def follow() -> None:
        while len(seen) < 60:
            seen.extend(event.id for event in await store.run(ops.events_after, seen[-1] if seen else 0))

    writing = [submit_one(each, f"{number}-{id(each)}") for number in range(30) for each in (store, other)]
    await asyncio.wait_for(asyncio.gather(follow(), *writing), 20)
    assert len(seen) == len(set(seen)) == 60


async def test_what_is_undone_leaves_no_event(store: Store, database: Database) -> None:
    with pytest.raises(RuntimeError, match="on purpose"):
        await store.driver.write(_note_and_fall_over)
    assert await store.run(ops.events_after, 0) == []


def _note_and_fall_over(session: object) -> None:
    event_log.add_event(session, Event(EventName.SERVER_UP))  # type: ignore[arg-type]
    raise RuntimeError("on purpose")


async def test_an_event_of_no_job_is_kept_with_what_applies(store: Store, database: Database) -> None:
    await store.run(ops.add_event, Event(EventName.SERVER_DOWN, server=SERVER, message="m" * 5000))
    (event,) = await store.run(ops.events_after, 0)
    assert (event.name, event.server, event.job_id, event.config_name) == ("server.down", SERVER, None, None)
    assert event.message == "m" * 1999 + "…"
    assert event.timestamp == database.clock.text()


async def test_events_of_a_deleted_job_can_still_be_read(store: Store, database: Database) -> None:
    await submit_and_lease(store)
    database.by_hand("DELETE FROM jobs")
    assert [(event.name, event.config_name) for event in await store.run(ops.events_after, 0)] == [
        ("job.submitted", None),
        ("job.started", None),
    ]


async def test_old_events_are_forgotten_some_at_a_time_and_many_others_push_out_no_audit_event(
    store: Store, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_log, "KEPT", 10)
    monkeypatch.setattr(event_log, "KEPT_AUDIT", 7)
    monkeypatch.setattr(event_log, "PRUNED_AT_ONCE", 5)
    for _ in range(9):
        await store.run(ops.add_event, Event(EventName.AUDIT_JOB_CANCEL, actor="ann"))
    for number in range(30):
        await submit_one(store, str(number))
    ids = [event.id for event in await store.run(ops.events_after, 0)]
    assert await store.run(ops.prune_events) == 5
    while await store.run(ops.prune_events):
        pass
    assert [event.id for event in await store.run(ops.events_after, 0)] == [*ids[2:9], *ids[29:39]]
    for _ in range(8):
        await store.run(ops.add_event, Event(EventName.AUDIT_JOB_CANCEL, actor="ann"))
    newest = [event.id for event in await store.run(ops.events_after, ids[-1])]
    while await store.run(ops.prune_events):
        pass
    left = [event.id for event in await store.run(ops.events_after, 0)]
    assert left == [*ids[37:39], *newest], "old audit events go, too"


async def test_an_id_of_an_event_is_never_given_twice(store: Store, database: Database) -> None:
    await submit_one(store, "a")
    newest = await store.run(ops.newest_event)
    database.by_hand("DELETE FROM events")
    await submit_one(store, "b")
    assert await store.run(ops.newest_event) > newest
