"""What an agent does with prompts at a server that stops answering, and with prompts that do not stop; no sockets."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from comfyui_agent.comfy.answers import QueueView
from comfyui_agent.comfy.cancellation import Cancellation
from comfyui_agent.comfy.fleet import Fleet, Health
from comfyui_agent.comfy.limits import Limits
from comfyui_agent.comfy.outcomes import Succeeded
from comfyui_agent.comfy.results import Results
from comfyui_agent.comfy.watch import Watch
from comfyui_agent.config.loader import load_workspace
from comfyui_agent.domain.jobs import Job
from comfyui_agent.domain.retry_policy import RetryPolicy
from comfyui_agent.domain.server_states import ServerState
from comfyui_agent.engine import recovery as recovering
from comfyui_agent.engine import run as running
from comfyui_agent.engine.leases import Leases
from comfyui_agent.engine.prompt_builder import BuiltPrompt
from comfyui_agent.engine.recovery import Recovery
from comfyui_agent.engine.run import Rules, Run
from comfyui_agent.engine.stuck_servers import StuckServers, words_of
from comfyui_agent.store import operations as ops
from comfyui_agent.store.records import Leased
from comfyui_agent.store.store import Store
from support.stores import HOST, LEASE_SECONDS, SERVER, WORKER, SqliteDatabase, lease_one, register, submit_one

OTHER = "http://other:8188"
POISON_LIMIT = 3


class Client:
    """A server as far as a run sees it: it takes prompts, and lets go of them as it is told."""

    websocket_is_open = True

    def __init__(self) -> None:
        self.watches: dict[str, Watch] = {}
        self.forgotten: list[str] = []
        self.cancelled: list[str] = []
        self.cancellation = Cancellation.STILL_RUNNING
        self.was_sent = asyncio.Event()

    async def submit(self, graph: Any, prompt_id: str, **_: Any) -> Watch:
        watch = self.watches[prompt_id] = Watch(cast("Any", prompt_id), graph, None)
        watch.is_ours = True
        self.was_sent.set()
        return watch

    def take_over(self, prompt_id: str, *_: Any) -> Watch:
        watch = self.watches[prompt_id] = Watch(cast("Any", prompt_id), None, None)
        self.was_sent.set()
        return watch

    def forget(self, watch: Watch) -> None:
        self.forgotten.append(watch.prompt_id)

    async def cancel(self, prompt_id: str, **_: Any) -> Cancellation:
        self.cancelled.append(prompt_id)
        return self.cancellation


class ServerInputs:
    async def fit(self, graph: Any, *_: Any) -> Any:
        return graph


class PromptBuilder:
    async def prepare(self, _: Leased) -> BuiltPrompt:
        return BuiltPrompt({}, None, {})


class Fetching:
    """A result that cannot be fetched, because the server does not answer."""

    def __init__(self, house: House) -> None:
        self._house = house

    async def collect(self, *_: Any, check_server: Callable[[], None]) -> None:
        self._house.go_away()
        check_server()


class House:
    """A store, a fleet of two servers whose health the test decides, and what runs there."""

    def __init__(self, store: Store, folder: Path) -> None:
        self.store = store
        self.fleet = Fleet([SERVER, OTHER], "e3-x-me", Limits(), on_health=lambda *_: None, on_queue=lambda *_: None)
        self.client = Client()
        for server in self.fleet.servers.values():
            server.client = cast("Any", self.client)
            server.health = Health.UP
            self.fleet._wake_up[server.name] = asyncio.Event()
        self.server = self.fleet.servers[SERVER]
        self.fleet.servers[OTHER].halt = ServerState.PAUSED
        self.taken: list[Leased] = []
        self.recovery = Recovery(
            store=store,
            fleet=self.fleet,
            leases=Leases(store, WORKER, LEASE_SECONDS),
            lock=cast("Any", self),
            workspace=load_workspace(folder, {}),
            client_prefix="e3-x-",
            collecting=cast("Any", self),
            take=self._take,
            is_running=lambda _: False,
            is_ours=lambda _: True,
        )

    worker = "second-agent"
    host = HOST

    def sweep(self) -> list[str]:
        return []

    async def remove(self, _: object) -> None: ...

    async def _take(self, leased: Leased, _: float) -> None:
        self.taken.append(leased)

    def go_away(self) -> None:
        self.server.health, self.server.reason = Health.DOWN, "connection refused"
        self.server.answered_at = time.monotonic() - 100

    async def lease(self) -> Leased:
        await register(self.store, WORKER, host="elsewhere")
        await submit_one(self.store)
        return await lease_one(self.store)

    def run(self, leased: Leased, **rules: Any) -> Run:
        self.server.at_work.add(leased.prompt_id)
        limits = {"timeout_seconds": 300.0, "stall_seconds": 60.0, "failover_seconds": 60.0, **rules}
        return Run(
            leased,
            self.server,
            fleet=self.fleet,
            store=self.store,
            preparing=cast("Any", PromptBuilder()),
            fitting=cast("Any", ServerInputs()),
            collecting=cast("Any", Fetching(self)),
            rules=Rules(RetryPolicy(poison_limit=POISON_LIMIT), **limits),
            wake=lambda: None,
            previews=False,
        )

    async def see(self, *prompts: str) -> None:
        """A look at the queue that finds these prompts of ours running, and what follows from it."""
        rows = [[0, prompt_id, {}, {"client_id": "e3-x-me"}, []] for prompt_id in prompts]
        self.recovery.see_queue(self.server, QueueView.read({"queue_running": rows, "queue_pending": []}))
        await asyncio.gather(*self.recovery._tasks)

    async def job(self) -> Job:
        (job,) = await self.store.run(ops.list_jobs)
        return job

    async def alerts(self) -> list[str]:
        return [
            event.message or "" for event in await self.store.run(ops.events_after, 0) if event.name == "alert.server"
        ]


@pytest.fixture
async def house(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[House]:
    monkeypatch.setattr(running, "TICK", 0.01)
    database = SqliteDatabase(tmp_path)
    yield House(database.open(), tmp_path)
    await database.close()


async def lose(house: House, run: Run, see: Callable[[Watch], None] = lambda _: None) -> Job:
    """Let a prompt be sent, seen, and its server go away."""
    living = asyncio.create_task(run.live())
    await asyncio.wait_for(house.client.was_sent.wait(), 20)
    await asyncio.sleep(0)
    see(house.client.watches[run.leased.prompt_id])
    house.go_away()
    await living
    return await house.job()


async def test_a_prompt_at_a_server_that_stays_away_waits_again_although_there_is_no_other(house: House) -> None:
    run = house.run(await house.lease())
    job = await lose(house, run)
    assert job.waits_for_server
    assert (job.status, job.failure_class, job.run_count, job.retries_attempted) == ("pending", "server_lost", 1, 0)
    assert "connection refused" in (job.error_trace or "")
    assert house.client.forgotten == [run.leased.prompt_id]
    assert house.client.cancelled == []
    assert len(await house.alerts()) == 1


async def test_a_server_that_is_away_for_less_is_waited_for(house: House) -> None:
    run = house.run(await house.lease(), failover_seconds=1000.0)
    living = asyncio.create_task(run.live())
    await asyncio.wait_for(house.client.was_sent.wait(), 20)
    house.go_away()
    await asyncio.sleep(0.1)
    assert not living.done()
    assert (await house.job()).status == "processing"
    living.cancel()


@pytest.mark.parametrize(
    ("see", "is_suspect"),
    [
        pytest.param(lambda watch: watch.see_running(), True, id="seen-running"),
        pytest.param(lambda _: None, True, id="first-in-line-and-not-seen"),
        pytest.param(lambda watch: watch.see_waiting(1), False, id="waited-behind-another"),
    ],
)
async def test_only_what_was_executed_is_suspect_and_nothing_is_struck_while_it_waits(
    house: House, see: Callable[[Watch], None], is_suspect: bool
) -> None:
    run = house.run(await house.lease())
    job = await lose(house, run, see)
    (attempt,) = await house.store.run(ops.list_attempts, job.id)
    assert (attempt.running_seconds or 0) > 0 or not is_suspect
    assert (job.strikes, job.hold) == (0, None)
    elsewhere = await lease_one(house.store, server=OTHER)
    assert elsewhere.tally.strikes == int(is_suspect)


async def test_one_strike_before_poison_only_its_own_server_is_asked_what_became_of_it(house: House) -> None:
    leased = await house.lease()
    suspect = replace(leased, tally=replace(leased.tally, strikes=POISON_LIMIT - 1))
    job = await lose(house, house.run(suspect))
    assert (job.status, job.hold) == ("pending", "server")


async def test_a_result_that_cannot_be_fetched_from_a_server_that_is_away_waits_and_is_no_suspect(house: House) -> None:
    run = house.run(await house.lease())
    living = asyncio.create_task(run.live())
    await asyncio.wait_for(house.client.was_sent.wait(), 20)
    await asyncio.sleep(0)
    watch = house.client.watches[run.leased.prompt_id]
    watch.see_running()
    watch.settle(Succeeded(run.leased.prompt_id, Results((), ())))
    await living
    job = await house.job()
    (attempt,) = await house.store.run(ops.list_attempts, job.id)
    assert job.waits_for_server
    assert attempt.running_seconds == 0


async def test_what_a_server_was_lost_with_is_taken_over_when_it_answers_and_not_before(house: House) -> None:
    await lose(house, house.run(await house.lease()))
    await house.recovery.look()
    assert house.taken == []
    house.server.health = Health.UNKNOWN
    await house.recovery.look()
    assert house.taken == []
    assert house.recovery.awaits_first_answer
    house.server.health = Health.UP
    assert not house.recovery.awaits_first_answer
    await house.recovery.look()
    assert [each.is_taken_over for each in house.taken] == [True]
    job = await house.job()
    assert (job.status, job.run_count, job.lost_at) == ("processing", 1, None)


async def test_a_job_that_was_cancelled_while_it_waited_is_let_go_of_at_once(house: House) -> None:
    job = await lose(house, house.run(await house.lease()))
    await house.store.run(ops.cancel_jobs, [job.id])
    await house.recovery.look()
    await asyncio.gather(*house.recovery._tasks)
    assert await house.store.run(ops.open_attempts) == []
    assert house.client.cancelled == [], "nobody can be asked"


async def test_the_copy_of_a_job_that_another_server_took_is_deleted_on_sight(house: House) -> None:
    run = house.run(await house.lease())
    await lose(house, run)
    house.server.health = Health.UP
    house.server.at_work.clear()
    await house.see(run.leased.prompt_id)
    assert house.client.cancelled == [], "it may still be adopted"
    await lease_one(house.store, server=OTHER)
    await house.see(run.leased.prompt_id)
    assert house.client.cancelled == [run.leased.prompt_id]


# Servers that are stuck.


async def stall(house: House) -> Run:
    """A prompt that ran, and shows no sign of life."""
    run = house.run(await house.lease(), stall_seconds=0.05)
    living = asyncio.create_task(run.live())
    await asyncio.wait_for(house.client.was_sent.wait(), 20)
    await asyncio.sleep(0)
    house.client.watches[run.leased.prompt_id].see_running()
    await living
    return run


async def test_a_prompt_that_cannot_be_interrupted_is_told_once_and_its_server_gets_nothing(
    house: House, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = await stall(house)
    assert (house.server.health, house.server.takes_work) == (Health.ASIDE, False)
    assert [each.prompt_id for each in await house.store.run(ops.stuck_prompts)] == [run.leased.prompt_id]
    told = await house.alerts()
    assert [message.partition(":")[0] for message in told] == ["set aside", "stuck"]
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(recovering, "TELL_AGAIN_SECONDS", 0.0)
    house.server.at_work.clear()
    for _ in range(5):
        await house.see(run.leased.prompt_id)
    assert await house.alerts() == told
    assert [record for record in caplog.records if record.levelno >= logging.INFO] == []


async def test_what_waits_at_a_server_that_was_set_aside_goes_to_another_and_nothing_is_called_lost(
    house: House,
) -> None:
    house.client.cancellation = Cancellation.REMOVED
    house.fleet.servers[OTHER].halt = None
    run = house.run(await house.lease())
    living = asyncio.create_task(run.live())
    await asyncio.wait_for(house.client.was_sent.wait(), 20)
    await asyncio.sleep(0)
    house.client.watches[run.leased.prompt_id].see_waiting(1)
    house.fleet.set_aside(house.server, "another", "no sign of life")
    await living
    job = await house.job()
    assert (job.status, job.retries_attempted, job.lost_at) == ("pending", 0, None)
    assert await house.alerts() == []
    assert (await lease_one(house.store, server=OTHER)).tally.strikes == 0


async def test_a_prompt_that_nobody_wants_and_that_does_not_stop_makes_its_server_stuck(
    house: House, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [100.0]
    monkeypatch.setattr(recovering, "now", lambda: clock[0])
    for _ in range(5):
        await house.see("unwanted")
        clock[0] += 1.0
    assert len(house.client.cancelled) == 1, "it was told, and is told again only after a while"
    assert await house.store.run(ops.stuck_prompts) == []
    clock[0] += 1000.0
    await house.see("unwanted")
    await house.see("unwanted")
    assert len(await house.store.run(ops.stuck_prompts)) == 1
    assert house.server.health is Health.ASIDE
    assert len([record for record in caplog.records if "unwanted" in record.getMessage()]) == 1


async def test_what_one_agent_found_stuck_others_leave_alone_until_it_is_gone(house: House) -> None:
    stuck = StuckServers(house.store, house.fleet)
    await house.store.run(ops.note_stuck, SERVER, "p1", "no sign of life")
    await stuck.look()
    assert not house.server.takes_work
    await stuck.look()
    assert len(await house.store.run(ops.stuck_prompts)) == 1
    house.server.stuck.clear()  # a look at its queue has not found the prompt
    await stuck.look()
    assert await house.store.run(ops.stuck_prompts) == []
    assert house.server.takes_work


async def test_nothing_can_go_on_when_every_server_that_is_to_work_is_stuck(house: House) -> None:
    stuck = StuckServers(house.store, house.fleet)
    await submit_one(house.store)
    await house.store.run(ops.note_stuck, SERVER, "p1", "no sign of life")
    await stuck.look()
    assert await stuck.blocking(None) == (), "it has not been looked at since"
    house.server.health = Health.ASIDE
    blocking = await stuck.blocking(None)
    assert f"{SERVER} is stuck since" in words_of(blocking)
    house.fleet.servers[OTHER].halt = None
    assert await stuck.blocking(None) == (), "another server works"
    house.fleet.servers[OTHER].health = Health.DOWN
    assert await stuck.blocking(None) == (), "another server may come back"
    house.fleet.servers[OTHER].halt, house.server.health = ServerState.PAUSED, Health.DOWN
    assert await stuck.blocking(None) == (), "it may come back without the prompt"


async def test_while_jobs_wait_for_lost_servers_one_that_is_back_rests_for_a_moment(house: House) -> None:
    """What it still has is looked up first, and others may be back any moment with what they have."""
    await lose(house, house.run(await house.lease()))
    assert not house.recovery.has_lost
    await house.recovery.look()
    assert house.recovery.has_lost
    house.server.health = Health.UP
    house.server.rest(60.0)
    assert not house.server.takes_work
