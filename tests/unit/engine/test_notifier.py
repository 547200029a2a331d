"""People are told once of what has happened, at most once a minute of each kind."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import pytest
from pydantic import SecretStr

from comfyui_agent.comfy.tasks import end_tasks
from comfyui_agent.domain.batches import BatchKind
from comfyui_agent.domain.events import Event, EventName
from comfyui_agent.domain.notifications import Message, of_failures
from comfyui_agent.engine.notifier import EMPTY_SECONDS, GRID_SECONDS, Notifier
from comfyui_agent.store import operations as ops
from support.engine import Room
from support.store_batches import fall, land, lease_of, queue

SECRET = "hunter2"
NOTIFY = {"urls": [f"json://user:{SECRET}@chat.example/{SECRET}", "env:PHONE"]}


class People:
    """Who is told, by several agents perhaps. `problems` are what is wrong with each address."""

    def __init__(self, room: Room) -> None:
        self.room = room
        self.messages: list[Message] = []
        self.problems: dict[str, str] = {}
        self.sent: list[tuple[list[str], bool]] = []
        """Of each attempt, the addresses and whether there were pictures."""
        self._agents: list[asyncio.Task[None]] = []

    @property
    def titles(self) -> list[str]:
        return [message.title for message in self.messages]

    async def deliver(self, urls: Sequence[SecretStr], message: Message) -> list[str]:
        names = [url.get_secret_value().partition(":")[0] for url in urls]
        self.sent.append((names, bool(message.files)))
        problems = [self.problems.get(name, "") for name in names]
        if not all(problems):
            self.messages.append(message)
        return problems

    async def agent(self) -> Notifier:
        notifier = Notifier(self.room.store, self.room.workspace, self.room.clock, self.note, self.deliver)
        self._agents.append(asyncio.create_task(notifier.follow()))
        await self.room.clock.advance(2)
        return notifier

    async def note(self, event: Event) -> None:
        await self.room.store.run(ops.add_event, event)

    async def stop(self) -> None:
        await end_tasks(self._agents)
        self._agents.clear()


@pytest.fixture
async def people(make_room: Callable[..., Room]) -> People:
    return People(make_room(notify=NOTIFY))


async def lose(people: People, *servers: str, heard_by: Sequence[Notifier] = ()) -> None:
    for name in servers:
        event = Event(EventName.SERVER_DOWN, server=f"http://{name}", message="connection refused")
        await people.note(event)
        for notifier in heard_by:
            notifier.see_event(event)
    await people.room.clock.advance(3)


async def hear(people: People, notifier: Notifier, *names: EventName, seconds: float = 3) -> None:
    for name in names:
        notifier.see_event(Event(name))
    await people.room.clock.advance(seconds)


async def test_the_first_is_told_at_once_and_what_comes_within_a_minute_in_one_message(people: People) -> None:
    notifier = await people.agent()
    await lose(people, "gpu1:8188", heard_by=[notifier])
    assert people.messages == [Message("A server was lost", "gpu1:8188: connection refused", "failure")]
    for name in ("gpu2:8188", "gpu3:8188"):
        await lose(people, name, heard_by=[notifier])
    await people.room.clock.advance(50)
    assert len(people.messages) == 1
    await people.room.clock.advance(10)
    assert people.titles == ["A server was lost", "2 servers were lost"]
    assert "gpu2:8188" in people.messages[1].body
    await people.room.clock.advance(3600)
    assert len(people.messages) == 2
    await people.stop()


async def test_of_several_agents_one_tells(people: People) -> None:
    agents = [await people.agent() for _ in range(3)]
    await lose(people, "gpu1:8188", heard_by=agents)
    await people.room.clock.advance(200)
    assert people.titles == ["A server was lost"]
    await people.stop()


async def test_what_an_agent_left_is_told_by_the_next_and_what_was_before_the_first_is_no_news(people: People) -> None:
    await lose(people, "old:8188")
    await people.agent()
    await people.stop()
    await lose(people, "gpu1:8188")
    assert people.messages == []
    await people.agent()
    assert [message.body for message in people.messages] == ["gpu1:8188: connection refused"]
    await people.stop()


async def test_who_is_killed_while_sending_has_told_it(people: People) -> None:
    """It may be lost. It is not sent twice."""
    notifier = await people.agent()
    people.problems = {"json": "HTTP 500", "env": "HTTP 500"}
    await lose(people, "gpu1:8188", heard_by=[notifier])
    assert len(people.sent) == 1
    await people.stop()
    people.problems = {}
    await people.agent()
    await people.room.clock.advance(200)
    assert len(people.sent) == 1
    await people.stop()


async def test_batches_and_books_are_told_of_with_how_they_ended(people: People) -> None:
    notifier = await people.agent()
    store = people.room.store
    for batch_id, kind in [("a_1", BatchKind.SWEEP), ("b_1", BatchKind.SWEEP), ("c_1", BatchKind.BOOK)]:
        await queue(store, 2, batch_id, kind=kind)
        [first, second] = await lease_of(store, batch_id, most=2)
        await land(store, [first])
        await (fall if batch_id == "b_1" else land)(store, [second])
    await hear(people, notifier, EventName.BATCH_COMPLETED)
    batches, book = sorted(people.messages, key=lambda message: message.title)
    assert (batches.title, batches.tone) == ("2 batches have ended", "warning")
    assert batches.body == "fox: 2 of 2 done\nfox: 1 of 2 done, 1 needs attention"
    assert (book.title, book.body, book.tone) == ("The book fox has ended", "2 of 2 done", "success")
    await people.stop()


@pytest.mark.parametrize("is_made", [True, False])
async def test_a_batch_is_told_of_with_its_grid_or_after_it_was_waited_for(people: People, is_made: bool) -> None:
    notifier = await people.agent()
    store, root = people.room.store, people.room.workspace.root
    await queue(store, 1, wants_grid=True)
    await land(store, await lease_of(store, "fox_1"))
    await hear(people, notifier, EventName.BATCH_COMPLETED, seconds=GRID_SECONDS / 2)
    assert people.messages == []
    if is_made:
        (root / "grid.png").write_bytes(b"picture")
        await store.run(ops.claim_grid, "an-agent", "a-host")
        await store.run(ops.settle_grid, "fox_1", "an-agent", 1, grid="grid.png")
    await people.room.clock.advance(3 if is_made else GRID_SECONDS)
    [message] = people.messages
    assert message.files == ((root / "grid.png",) if is_made else ())
    await people.stop()


async def test_the_night_is_told_of_when_the_queue_has_been_empty_for_a_while(people: People) -> None:
    notifier = await people.agent()
    room = people.room
    await queue(room.store, 3)
    leased = await lease_of(room.store, "fox_1", most=3)
    room.clock.advance_database(100)
    await land(room.store, leased[:1])
    await fall(room.store, leased[1:2])
    await hear(people, notifier, EventName.JOB_DONE, seconds=2 * EMPTY_SECONDS)
    assert "The queue is empty" not in people.titles
    room.clock.advance_database(3600)
    await land(room.store, leased[2:])
    await hear(people, notifier, EventName.JOB_DONE, seconds=EMPTY_SECONDS - 2)
    assert "The queue is empty" not in people.titles
    await people.room.clock.advance(10)
    [night] = [message for message in people.messages if message.title == "The queue is empty"]
    assert (night.body, night.tone) == ("2 done in 62 min, 1 needs attention.", "warning")
    await people.stop()


async def test_the_night_ends_with_the_last_grid(people: People) -> None:
    notifier = await people.agent()
    store = people.room.store
    await queue(store, 1, wants_grid=True)
    await land(store, await lease_of(store, "fox_1"))
    await hear(people, notifier, EventName.JOB_DONE, seconds=2 * EMPTY_SECONDS)
    assert people.titles == []
    await store.run(ops.claim_grid, "an-agent", "a-host")
    await store.run(ops.settle_grid, "fox_1", "an-agent", 1, problem="no room")
    await people.room.clock.advance(2 * EMPTY_SECONDS)
    assert people.titles == ["The queue is empty"]
    await people.stop()


async def test_an_agent_that_ends_tells_of_the_night_at_once(people: People) -> None:
    notifier = await people.agent()
    await queue(people.room.store, 1)
    await land(people.room.store, await lease_of(people.room.store, "fox_1"))
    await notifier.finish()
    assert "The queue is empty" in people.titles
    await people.stop()


async def test_jobs_that_failed_are_told_of_unless_nothing_needs_attention_any_more(people: People) -> None:
    notifier = await people.agent()
    store = people.room.store
    await queue(store, 3)
    leased = await lease_of(store, "fox_1", most=3)
    await fall(store, leased[:2])
    await hear(people, notifier, EventName.JOB_FAILED)
    assert people.messages == [Message("2 jobs need attention", "fox_1_0: boom\nfox_1_1: boom", "warning")]
    await fall(store, leased[2:])
    await store.run(ops.dismiss_batch, "fox_1")
    await hear(people, notifier, EventName.JOB_FAILED, seconds=100)
    assert people.titles == ["2 jobs need attention", "The queue is empty"]
    await people.stop()


async def test_what_is_not_delivered_is_tried_again_where_it_failed_then_dropped_with_one_alert(
    people: People, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    (people.room.workspace.root / "grid.png").write_bytes(b"picture")
    monkeypatch.setattr(Notifier, "_grids", lambda self, _: (self.workspace.root / "grid.png",))
    notifier = await people.agent()
    people.problems = {"json": "it answered HTTP 500"}
    await queue(people.room.store, 1)
    await land(people.room.store, await lease_of(people.room.store, "fox_1"))
    await hear(people, notifier, EventName.BATCH_COMPLETED, seconds=60)
    assert people.sent == [(["json", "env"], True), (["json"], False), (["json"], False)]
    words = "a notification was not delivered (The batch fox has ended): json: it answered HTTP 500"
    assert await people.room.events("alert.notify") == caplog.messages == [words]
    await lose(people, "gpu1:8188", heard_by=[notifier])
    await people.room.clock.advance(60)
    assert (len(caplog.messages), len(await people.room.events("alert.notify"))) == (2, 1)
    await people.stop()


def test_what_others_wrote_is_short_and_calls_nobody() -> None:
    reasons = {f"job{n}": "@everyone <!channel>" + "x" * 10_000 + "\nmore" for n in range(50)}
    body = of_failures(reasons, 60).body
    assert len(body) < 2_500
    assert "@everyone" not in body
    assert "<!" not in body
    assert body.endswith("and 40 more\nIn all, 60 need attention.")
