"""Each message of a webhook is written down once, sent by one agent, and settled once, on every kind of database."""

from __future__ import annotations

import asyncio

from comfyui_agent.domain.events import Event, EventName
from comfyui_agent.domain.webhooks import GIVE_UP_SECONDS, Delivery, Webhook
from comfyui_agent.store import operations as ops
from comfyui_agent.store.store import Store
from support.stores import HOST, WORKER, Database

OTHER = "second-agent"
URL = "https://example.org/e3"
HELD = 45.0


async def hook(store: Store, name: str | None = None, url: str = URL) -> Webhook:
    made = await store.run(ops.put_webhook, url, ["server"], f"sealed for {url}", name=name)
    return next(each for each in await store.run(ops.list_webhooks) if each.id == made)


async def alive(store: Store, *workers: str) -> None:
    for worker in workers:
        await store.run(ops.register_agent, worker, HOST, f"/locks/{worker}")


async def hold(store: Store, worker: str, *hooks: Webhook) -> list[int]:
    return sorted(await store.run(ops.hold_webhooks, worker, HOST, [each.id for each in hooks], HELD))


async def write(store: Store, webhook: Webhook, *subjects: str) -> list[Delivery]:
    """Write down a message for each subject, as the agent that holds the webhook. Returns them, oldest first."""
    for subject in subjects:
        await store.run(ops.add_event, Event(EventName.SERVER_UP, server=subject))
    events = await store.run(ops.events_after, webhook.last_event)
    messages = [(each.id, each.server or "", f"body {each.id}") for each in events]
    assert await store.run(ops.add_deliveries, webhook, WORKER, events[-1].id, messages)
    return list(reversed(await store.run(ops.list_deliveries, webhook.id)))


async def due(store: Store, webhook: Webhook, most: int = 50) -> list[int]:
    found = await store.run(ops.next_deliveries, webhook.id, most)
    return [delivery.id for delivery, wait in found if wait <= 0]


async def fail(store: Store, delivery: Delivery, pause: float | None = 60.0, worker: str = WORKER) -> None:
    await store.run(ops.note_undelivered, delivery, worker, "it answered HTTP 500", pause)


async def alerts(store: Store) -> list[str]:
    return [each.message or "" for each in await store.run(ops.alerts, 1e9) if each.name == EventName.ALERT_WEBHOOK]


async def test_a_webhook_is_told_of_what_happens_from_its_making_on_and_keeps_its_place_when_it_changes(
    store: Store,
) -> None:
    await store.run(ops.add_event, Event(EventName.SERVER_UP, server="before"))
    made = await hook(store, "backend")
    assert made.last_event == await store.run(ops.newest_event)
    await store.run(ops.add_event, Event(EventName.SERVER_UP, server="later"))
    changed = await hook(store, "backend", "https://example.org/new")
    assert (changed.id, changed.last_event, changed.events) == (made.id, made.last_event, ("server",))
    assert await store.run(ops.remove_webhook, made.id)
    assert not await store.run(ops.remove_webhook, made.id)
    assert await store.run(ops.list_webhooks) == []
    again = await hook(store, "backend")
    assert (again.id, again.last_event) == (made.id, await store.run(ops.newest_event))
    assert len({made.id, (await hook(store)).id, (await hook(store)).id}) == 3, "those without a name are several"


async def test_of_two_agents_one_has_a_webhook_until_it_dies_or_lets_it_run_out(
    store: Store, database: Database
) -> None:
    second = database.open()
    hooks = [await hook(store) for _ in range(8)]
    await alive(store, WORKER, OTHER)
    held = await asyncio.gather(*(hold(each, who, *hooks) for each, who in ((store, WORKER), (second, OTHER)) * 3))
    by_worker = [{id_ for each in held[place::2] for id_ in each} for place in (0, 1)]
    assert by_worker[0] | by_worker[1] == {each.id for each in hooks}
    assert not by_worker[0] & by_worker[1]
    database.clock.advance(HELD + 1)
    assert len(await hold(second, OTHER, *hooks)) == 8
    assert await hold(store, WORKER, *hooks) == []
    await store.run(ops.remove_agent, OTHER)
    assert len(await hold(store, WORKER, *hooks)) == 8


async def test_messages_are_written_down_once_whoever_writes_them(store: Store, database: Database) -> None:
    second = database.open()
    webhook = await hook(store)
    await alive(store, WORKER)
    await hold(store, WORKER, webhook)
    for number in range(20):
        await store.run(ops.add_event, Event(EventName.SERVER_UP, server=str(number)))
    events = await store.run(ops.events_after, webhook.last_event)
    messages = [(each.id, "one", "body") for each in events]
    places = [store, second] * 4
    done = await asyncio.gather(
        *(each.run(ops.add_deliveries, webhook, WORKER, events[-1].id, messages) for each in places)
    )
    assert sorted(done) == [False] * 7 + [True]
    assert [each.event_id for each in await store.run(ops.list_deliveries, webhook.id)] == [
        each.id for each in reversed(events)
    ]
    assert not await store.run(ops.add_deliveries, webhook, OTHER, events[-1].id, [])
    [moved] = await store.run(ops.list_webhooks)
    assert moved.last_event == events[-1].id
    assert not await store.run(ops.add_deliveries, moved, OTHER, events[-1].id, []), "it is not this agent's"


async def test_the_oldest_of_each_subject_is_next_and_the_others_wait_for_it(store: Store, database: Database) -> None:
    webhook = await hook(store)
    await alive(store, WORKER)
    await hold(store, WORKER, webhook)
    a1, b1, a2, c1, a3 = await write(store, webhook, "a", "b", "a", "c", "a")
    assert await due(store, webhook) == [a1.id, b1.id, c1.id]
    assert await due(store, webhook, most=2) == [a1.id, b1.id]
    await fail(store, a1)
    assert await due(store, webhook) == [b1.id, c1.id]
    [*_, (waiting, seconds)] = await store.run(ops.next_deliveries, webhook.id, 50)
    assert (waiting.id, waiting.attempts, waiting.problem) == (a1.id, 1, "it answered HTTP 500")
    assert 59 < seconds <= 60
    await store.run(ops.note_delivered, b1.id)
    database.clock.advance(61)
    assert await due(store, webhook) == [a1.id, c1.id]
    for delivery in (a1, a2):
        await store.run(ops.note_delivered, delivery.id)
    assert await due(store, webhook) == [c1.id, a3.id]
    assert await store.run(ops.count_deliveries) == {webhook.id: {"waiting": 2, "dead": 0}}
    assert await store.run(ops.count_waiting, webhook.id, 1) == 1


async def test_what_arrived_stays_so_and_only_the_agent_that_delivers_notes_a_failure(store: Store) -> None:
    webhook = await hook(store)
    await alive(store, WORKER, OTHER)
    await hold(store, WORKER, webhook)
    first, second = await write(store, webhook, "a", "b")
    await store.run(ops.note_delivered, first.id)
    await fail(store, first)
    await fail(store, second, worker=OTHER)
    rows = {each.id: each for each in await store.run(ops.list_deliveries, webhook.id)}
    assert (rows[first.id].state, rows[first.id].attempts, rows[first.id].problem) == ("delivered", 1, None)
    assert (rows[second.id].state, rows[second.id].attempts) == ("waiting", 0)
    assert await store.run(ops.repeat_deliveries, webhook.id, None) == 0
    assert await store.run(ops.repeat_deliveries, webhook.id, first.id) == 0


async def test_after_a_day_a_message_is_dead_people_are_told_once_and_it_can_be_repeated(
    store: Store, database: Database
) -> None:
    webhook = await hook(store)
    await alive(store, WORKER)
    await hold(store, WORKER, webhook)
    first, second, third = await write(store, webhook, "a", "b", "c")
    database.clock.advance(GIVE_UP_SECONDS - 1)
    await fail(store, first)
    assert await alerts(store) == []
    database.clock.advance(2)
    await fail(store, first)
    await fail(store, second)
    assert [each.state for each in await store.run(ops.list_deliveries, webhook.id)] == ["waiting", "dead", "dead"]
    assert await alerts(store) == [
        f"messages to webhook {webhook.id} did not arrive for a day, and are dead: it answered HTTP 500"
    ]
    assert await due(store, webhook) == [third.id]
    assert await store.run(ops.repeat_deliveries, webhook.id, first.id) == 1
    assert await store.run(ops.repeat_deliveries, webhook.id, None) == 1
    again = await store.run(ops.list_deliveries, webhook.id, state="waiting")
    assert [(each.id, each.attempts) for each in again] == [(third.id, 0), (second.id, 0), (first.id, 0)]
    await fail(store, first)
    assert len(await store.run(ops.list_deliveries, webhook.id, state="dead")) == 0, "it has another day"
    await store.run(ops.note_delivered, first.id)
    database.clock.advance(GIVE_UP_SECONDS + 1)
    await fail(store, second, pause=None)
    assert len(await store.run(ops.list_deliveries, webhook.id, state="dead")) == 2, "all that wait for it"
    assert len(await alerts(store)) == 2


async def test_the_list_goes_on_before_a_message_and_what_is_old_is_forgotten(store: Store, database: Database) -> None:
    webhook = await hook(store)
    await alive(store, WORKER)
    await hold(store, WORKER, webhook)
    messages = await write(store, webhook, "a", "b", "c")
    newest = await store.run(ops.list_deliveries, webhook.id, most=2)
    assert [each.id for each in newest] == [messages[2].id, messages[1].id]
    rest = await store.run(ops.list_deliveries, webhook.id, before=newest[-1].id)
    assert [each.id for each in rest] == [messages[0].id]
    await store.run(ops.note_delivered, messages[0].id)
    assert [each.id for each in await store.run(ops.list_deliveries, webhook.id, state="delivered")] == [messages[0].id]
    database.clock.advance(6.9 * 86_400)
    await fail(store, messages[1])
    assert await store.run(ops.forget_deliveries) == 0
    database.clock.advance(0.2 * 86_400)
    assert await store.run(ops.forget_deliveries) == 1
    database.clock.advance(30 * 86_400)
    assert await store.run(ops.forget_deliveries) == 1
    assert [each.id for each in await store.run(ops.list_deliveries, webhook.id)] == [messages[2].id]
    await store.run(ops.remove_webhook, webhook.id)
    assert await store.run(ops.list_deliveries, webhook.id) == []
