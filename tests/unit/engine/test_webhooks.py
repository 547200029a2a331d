"""Programs are told of every event, in the order of each subject, whoever is away and whoever is killed."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from standardwebhooks import Webhook as Verifier

from comfyui_agent.comfy.tasks import end_tasks
from comfyui_agent.config.sealing import SecretBox
from comfyui_agent.config.settings import Settings
from comfyui_agent.config.workspace import Workspace
from comfyui_agent.domain.events import Event, EventName
from comfyui_agent.domain.webhooks import Answer, Delivery, Webhook, mint_secret
from comfyui_agent.engine.recorder import Recorder
from comfyui_agent.engine.webhook_receiver import Receiver
from comfyui_agent.engine.webhooks import QUIET_SECONDS, Webhooks
from comfyui_agent.store import operations as ops
from comfyui_agent.store.agent_lock import AgentLock
from support.engine import Room

SECRET = mint_secret()
HOUR = 3600.0
ANSWER_SECONDS = 0.02


class Program:
    """A receiver, and the agents that tell it. It keeps what arrived, verified, in its order."""

    def __init__(self, room: Room) -> None:
        self.room = room
        self.status: int | None = 204
        self.refused: set[str] = set()
        """Subjects whose messages it refuses."""
        self.refusal = 500
        self.arrived: list[tuple[str, int, str]] = []
        """Message id, number of the event, subject."""
        self.tried = 0
        self.cut: Counter[str] = Counter()
        """Messages that it took, but whose answer nobody heard."""
        self._agents: list[tuple[AgentLock, asyncio.Task[None]]] = []

    async def take(self, body: bytes, headers: Mapping[str, str]) -> Answer:
        self.tried += 1
        message = Verifier(SECRET).verify(body, dict(headers))
        name, data = headers["webhook-id"], message["data"]
        status = self.refusal if data["server"] in self.refused else self.status
        if status == 204:
            self.arrived.append((name, data["event_id"], data["server"]))
        try:
            await self.room.clock.sleep(ANSWER_SECONDS)
        except asyncio.CancelledError:
            self.cut[name] += status == 204
            raise
        return Answer(status) if status else Answer(problem="no answer")

    async def agent(self) -> Webhooks:
        room, lock = self.room, AgentLock(self.room.workspace.locks)
        await room.store.run(ops.register_agent, lock.worker, lock.host, str(lock.path))
        recorder = Recorder(room.store, room.clock)
        webhooks = Webhooks(recorder, room.workspace, room.clock, lock, "memory", lambda: 0.5, self._connect)
        self._agents.append((lock, asyncio.create_task(webhooks.follow())))
        await room.clock.advance(1)
        return webhooks

    async def kill(self) -> None:
        """Every agent is gone, and the next one finds out."""
        for lock, task in self._agents:
            await end_tasks([task])
            lock.release()  # its row is still there
        self._agents.clear()

    async def hook(self, *events: str) -> Webhook:
        sealed = SecretBox(self.room.workspace.secrets_key).seal({"secret": SECRET, "allow": []})
        made = await self.room.store.run(ops.put_webhook, "https://example.org/e3", events or ("server",), sealed)
        return next(each for each in await self.room.store.run(ops.list_webhooks) if each.id == made)

    async def happen(self, *servers: str) -> None:
        for server in servers:
            await self.room.store.run(ops.add_event, Event(EventName.SERVER_UP, server=server))

    async def deliveries(self, state: str = "") -> list[Delivery]:
        [hook] = await self.room.store.run(ops.list_webhooks)
        return await self.room.store.run(ops.list_deliveries, hook.id, state=state, most=10_000)

    def _connect(self, url: str, opened: Mapping[str, Any]) -> Receiver:
        receiver = Receiver(url, opened)
        receiver.post = self.take  # type: ignore[method-assign]  # the network
        return receiver


@pytest.fixture
async def program(room: Room) -> Program:
    return Program(room)


def in_order(program: Program) -> bool:
    """Whether the events of each subject first arrived in their order."""
    seen: dict[str, int] = {}
    first = {name: (number, subject) for name, number, subject in reversed(program.arrived)}
    for number, subject in sorted(first.values(), key=lambda each: [a[1] for a in program.arrived].index(each[0])):
        if seen.get(subject, 0) >= number:
            return False
        seen[subject] = number
    return True


@pytest.mark.timeout(120)
async def test_a_receiver_is_down_for_an_hour_and_the_agent_is_killed_twenty_times(program: Program) -> None:
    """Each of 1,000 events arrives, in order, verified; again only where a kill fell between answer and commit."""
    chance, clock = random.Random(22), program.room.clock
    await program.hook()
    program.status = None
    for _ in range(10):
        await program.agent()
        await program.happen(*(f"gpu{chance.randrange(40)}" for _ in range(50)))
        await clock.advance(chance.uniform(60, 2 * HOUR / 10 - 60))
        await program.kill()
    assert program.arrived == []
    program.status = 204
    for _ in range(10):
        await program.agent()
        await program.happen(*(f"gpu{chance.randrange(40)}" for _ in range(50)))
        await clock.advance(chance.uniform(0, 1))
        await program.kill()
    await program.agent()
    await clock.advance(60)
    assert {each.state for each in await program.deliveries()} == {"delivered"}
    times = Counter(name for name, *_ in program.arrived)
    assert len(times) == 1_000
    assert {name: count - 1 for name, count in times.items() if count > 1} == +program.cut
    assert in_order(program)
    before = program.tried
    await program.kill()
    await program.agent()
    await clock.advance(600)
    assert program.tried == before, "none after success"
    await program.kill()


async def test_a_receiver_that_is_away_for_a_day_gets_everything_soon_after_in_order(program: Program) -> None:
    await program.hook()
    program.status = None
    agent = await program.agent()
    for number in range(24):
        await program.happen(*(f"gpu{server}" for server in range(10)))
        agent.see_event(Event(EventName.SERVER_UP))
        await program.room.clock.advance(HOUR if number else HOUR - 60)
    assert program.tried < 500, "one is tried now and then"
    program.status = 204
    await program.room.clock.advance(400)
    assert len(program.arrived) == 240
    assert in_order(program)
    await program.kill()


async def test_one_subject_that_is_refused_holds_up_no_other_and_is_given_up_after_a_day(program: Program) -> None:
    await program.hook()
    program.refused = {"bad"}
    agent = await program.agent()
    await program.happen("bad", "good", "bad", "good")
    agent.see_event(Event(EventName.SERVER_UP))
    await program.room.clock.advance(2)
    assert [subject for _, _, subject in program.arrived] == ["good", "good"]
    await program.room.clock.advance(2 * HOUR)
    [second, first] = await program.deliveries("waiting")
    assert (second.attempts, second.problem) == (0, None), "it waits for the first"
    assert (first.attempts, first.problem) == (7, "it answered HTTP 500")
    program.room.clock.advance_database(23 * HOUR)
    await program.room.clock.advance(120)
    dead = await program.deliveries("dead")
    assert first.id in {each.id for each in dead}
    [alert] = await program.room.events(EventName.ALERT_WEBHOOK)
    assert "are dead: it answered HTTP 500" in alert
    program.refused = set()
    await program.room.store.run(ops.repeat_deliveries, dead[0].webhook_id, None)
    agent.see_event(Event(EventName.AUDIT_WEBHOOK_REPEAT))
    await program.room.clock.advance(120)
    assert [subject for _, _, subject in program.arrived[2:]] == ["bad", "bad"]
    await program.kill()


async def test_one_subject_that_makes_it_look_away_holds_up_no_other(program: Program) -> None:
    await program.hook()
    program.refused, program.refusal = {"bad"}, 503
    agent = await program.agent()
    for number in range(20):
        await program.happen("bad", f"good{number}")
        agent.see_event(Event(EventName.SERVER_UP))
        await program.room.clock.advance(60)
    await program.room.clock.advance(60)
    assert [subject for _, _, subject in program.arrived] == [f"good{number}" for number in range(20)]
    assert program.tried < 120
    await program.kill()


async def test_who_is_gone_is_removed_and_people_hear_of_it(program: Program) -> None:
    await program.hook()
    program.status = 410
    await program.happen("a", "b")
    agent = await program.agent()
    await program.room.clock.advance(60)
    assert await program.room.store.run(ops.list_webhooks) == []
    [alert] = await program.room.events(EventName.ALERT_WEBHOOK)
    assert alert == "webhook 1 (example.org) answered that it is gone (HTTP 410), and was removed"
    tried = program.tried
    await program.happen("c")
    agent.see_event(Event(EventName.SERVER_UP))
    await program.room.clock.advance(600)
    assert program.tried == tried
    await program.kill()


async def test_of_two_agents_one_delivers_and_the_other_goes_on_when_it_dies(program: Program) -> None:
    await program.hook()
    first = await program.agent()
    second = await program.agent()
    await program.happen("a", "b", "a")
    for agent in (first, second):
        agent.see_event(Event(EventName.SERVER_UP))
    await program.room.clock.advance(30)
    assert len(program.arrived) == program.tried == 3
    dead, program._agents = program._agents[0], program._agents[1:]
    await end_tasks([dead[1]])
    dead[0].release()
    await program.happen("a")
    await program.room.clock.advance(2 * QUIET_SECONDS)
    assert len(program.arrived) == program.tried == 4
    await program.kill()


async def test_without_webhooks_an_event_costs_no_query(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    agent = await program.agent()
    driver, asked = program.room.driver, Counter[str]()
    for name in ("read", "write"):
        monkeypatch.setattr(driver, name, counting(getattr(driver, name), asked, name))
    for _ in range(1_000):
        agent.see_event(Event(EventName.JOB_DONE))
        await program.room.clock.advance(0.06)
    assert asked == {"read": pytest.approx(60 / QUIET_SECONDS, abs=1)}
    await program.kill()


def counting(work: Callable[..., Any], asked: Counter[str], name: str) -> Callable[..., Any]:
    def counted(*arguments: Any, **options: Any) -> Any:
        asked[name] += 1
        return work(*arguments, **options)

    return counted


async def test_an_agent_that_ends_delivers_before_unless_the_receiver_is_away(program: Program) -> None:
    await program.hook()
    agent = await program.agent()
    await program.happen("a", "a", "b")
    ending = asyncio.create_task(agent.finish())
    await program.room.clock.advance(1)
    assert ending.done()
    assert len(program.arrived) == 3
    program.status = None
    await program.happen("a")
    ending = asyncio.create_task(agent.finish())
    await program.room.clock.advance(1)
    assert ending.done()
    await program.kill()


async def test_the_configuration_is_what_counts_when_an_agent_starts(
    program: Program, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    told = {"name": "backend", "url": "https://example.org/e3", "events": "job,batch", "secret": "env:HOOK"}
    steps: list[tuple[list[dict[str, Any]], dict[str, str], str]] = [
        ([told, {**told, "name": "other", "secret": SECRET}], {"backend": told["url"], "other": told["url"]}, SECRET),
        ([{**told, "url": "https://example.org/new"}], {"backend": "https://example.org/new"}, SECRET),
        ([told], {"backend": "https://example.org/new"}, ""),
        ([], {}, SECRET),
    ]
    for webhooks, there, secret in steps:
        monkeypatch.setenv("HOOK", secret)
        program.room.workspace = Workspace(program.room.workspace.root, Settings.model_validate({"webhooks": webhooks}))
        await program.agent()
        hooks = await program.room.store.run(ops.list_webhooks)
        assert {hook.name: hook.url for hook in hooks} == there
        assert all(hook.events == ("job", "batch") for hook in hooks)
        await program.kill()
    assert caplog.text.count("webhook backend is not told: this is no secret") == 1
    assert SECRET not in caplog.text


async def test_a_job_is_told_of_with_its_results_and_their_digests(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[dict[str, Any]] = []

    async def take(_: Receiver, body: bytes, headers: Mapping[str, str]) -> Answer:
        told.append(Verifier(SECRET).verify(body, dict(headers)))
        return Answer(204)

    monkeypatch.setattr(Receiver, "post", take)
    room = program.room
    await program.hook("job", "attention")
    await room.submit("a", external_id="order-7")
    await room.start()
    room.comfy.render()
    await room.clock.advance(2)
    await room.store.run(ops.add_event, Event(EventName.ALERT_DISK, message=f"{room.workspace.root}/x"))
    await room.clock.advance(2)
    started, done, alert = told
    assert (started["type"], done["type"], alert["type"]) == ("job.started", "job.done", "alert.disk")
    [result] = done["data"].pop("results")
    job = await room.job()
    assert (result["path"], result["url"]) == (job.outputs[0], f"/api/v1/jobs/{job.id}/results/1")
    assert {"sha256", "bytes"} < set(result)
    assert (done["data"]["external_id"], done["data"]["url"]) == ("order-7", f"/api/v1/jobs/{job.id}")
    assert "results" not in json.dumps(alert)
    assert alert["data"]["message"] == "x", "where the workspace lies is nobody's business"
