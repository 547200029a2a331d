"""What people were told of is noted once, whoever tells it."""

from __future__ import annotations

import pytest

from comfyui_agent.domain.events import Event, EventName
from comfyui_agent.store import operations as ops
from comfyui_agent.store.store import Store
from support.store_batches import fall, land, lease_of, queue
from support.stores import Database

KIND = "night"


async def begun(store: Store) -> None:
    found = await store.run(ops.untold, KIND)
    assert (found.noted, found.told_at) == ("", 0)
    assert await store.run(ops.claim_notification, KIND, found, is_message=False)


async def test_of_two_that_would_tell_the_same_one_may(store: Store) -> None:
    await begun(store)
    found = await store.run(ops.untold, KIND)
    assert await store.run(ops.claim_notification, KIND, found, is_message=True)
    assert not await store.run(ops.claim_notification, KIND, found, is_message=True)
    again = await store.run(ops.untold, KIND)
    assert (again.after, again.told_at) == (found.until, pytest.approx(found.now))


async def test_only_the_events_that_are_asked_for_and_not_older_than_a_day(store: Store, database: Database) -> None:
    await store.run(ops.add_event, Event(EventName.SERVER_DOWN, server="before"))
    await begun(store)
    await store.run(ops.add_event, Event(EventName.SERVER_DOWN, server="old"))
    database.clock.advance(25 * 3600)
    for name, server in [(EventName.SERVER_DOWN, "new"), (EventName.SERVER_UP, "up")]:
        await store.run(ops.add_event, Event(name, server=server))
    found = await store.run(ops.untold, KIND)
    events = await store.run(ops.events_between, found, [EventName.SERVER_DOWN, EventName.ALERT_SERVER])
    assert [event.server for event in events] == ["new"]


async def test_how_many_were_done_and_how_long_it_took(store: Store, database: Database) -> None:
    await begun(store)
    assert (await store.run(ops.jobs_ended_between, await store.run(ops.untold, KIND))).began is None
    await queue(store, 3)
    leased = await lease_of(store, "fox_1", most=3)
    assert (await store.run(ops.jobs_ended_between, await store.run(ops.untold, KIND))).ended is None
    database.clock.advance(20)
    await land(store, leased[:2])
    await fall(store, leased[2:])
    database.clock.advance(5)
    jobs = await store.run(ops.jobs_ended_between, await store.run(ops.untold, KIND))
    assert (jobs.done, jobs.began, jobs.ended) == (2, pytest.approx(25, abs=0.5), pytest.approx(5, abs=0.5))
