"""Servers that lose answers, hang, run out of memory, are drained, die or stay away."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from comfyui_agent.comfy.errors import AcceptanceUnknown, NotAccepted, PromptRejected, Unreachable
from comfyui_agent.domain.failures import FailureClass
from comfyui_agent.domain.prompts import PromptId
from comfyui_agent.fleet.server import Health
from comfyui_agent.store import operations as ops
from comfyui_agent.store.records import Window
from support.engine import FIRST, SECOND, Room

MakeRoom = Callable[..., Room]


# Sending.


async def test_a_prompt_whose_answer_was_lost_is_looked_up_and_not_sent_again(room: Room) -> None:
    def lose_answer(_: str) -> None:
        raise AcceptanceUnknown("the connection was cut")

    room.comfy.posting = lose_answer
    await room.submit("a")
    await room.start()
    room.comfy.render()
    await room.clock.advance(3)
    assert (await room.job()).status == "done"
    assert (len(room.comfy.posts), len(await room.attempts())) == (1, 1)


async def test_a_post_that_never_arrived_is_a_new_attempt_that_is_not_charged(room: Room) -> None:
    def lose_post(prompt_id: str) -> None:
        room.comfy.waiting.remove(prompt_id)
        room.comfy.posting = lambda _: None
        raise NotAccepted("the server does not know the prompt")

    room.comfy.posting = lose_post
    await room.submit("a")
    await room.start()
    await room.clock.advance(3)
    room.comfy.render()
    await room.clock.advance(1)
    job = await room.job()
    assert (job.status, job.retries_attempted) == ("done", 0)
    assert [each.outcome for each in await room.attempts()] == ["server_lost", "done"]


async def test_a_server_that_refuses_connections_gets_nothing_and_the_run_is_not_counted(room: Room) -> None:
    await room.submit("a")
    room.comfy.is_up = False
    await room.start()
    await room.clock.advance(2)
    assert ((await room.job()).status, await room.attempts()) == ("pending", [])
    room.comfy.is_up = True
    await room.clock.advance(2)
    room.comfy.render()
    await room.clock.advance(1)
    assert (await room.job()).run_count == 1


async def test_a_post_that_found_no_server_is_as_if_it_had_not_been_leased(room: Room) -> None:
    def refuse(prompt_id: str) -> None:
        room.comfy.waiting.remove(prompt_id)
        room.comfy.is_up = False
        raise Unreachable("connection refused")

    room.comfy.posting = refuse
    await room.submit("a")
    await room.start()
    await room.clock.advance(1)
    job = await room.job()
    assert (job.status, job.run_count, await room.attempts()) == ("pending", 0, [])


async def test_a_rejected_prompt_is_tried_once_more_and_then_needs_a_person(room: Room) -> None:
    def reject(prompt_id: str) -> None:
        room.comfy.waiting.remove(prompt_id)
        raise PromptRejected("no such node")

    room.comfy.posting = reject
    await room.submit("a")
    await room.start()
    await room.clock.advance(30)
    job = await room.job()
    assert (job.status, job.failure_class, job.needs_regeneration) == ("failed", "invalid", True)
    assert len(room.comfy.posts) == 2


# Waiting.


@pytest.mark.parametrize("sign", ["runs", "is silent"])
async def test_a_prompt_that_takes_too_long_is_interrupted_charged_and_tried_again(
    make_room: MakeRoom, sign: str
) -> None:
    limits = {"timeout_seconds": 30, "stall_seconds": 300} if sign == "runs" else {"stall_seconds": 30}
    room = make_room(comfyui=limits)
    await room.submit("a")
    await room.start()
    prompt_id = room.comfy.begin()
    await room.clock.advance(29)
    assert room.comfy.interrupted == []
    await room.clock.advance(3)
    assert room.comfy.interrupted == [prompt_id]
    job = await room.job()
    assert (job.status, job.failure_class, job.retries_attempted) == ("pending", "timeout", 1)
    assert [message.partition(":")[0] for message in await room.events()] == ["set aside"]
    await room.clock.advance(10)
    room.comfy.render()
    await room.clock.advance(1)
    assert (await room.job()).status == "done", "its server works again once the prompt is gone"


async def test_a_prompt_that_cannot_be_interrupted_is_stuck_reported_once_and_others_go_on(make_room: MakeRoom) -> None:
    room = make_room(FIRST, SECOND, comfyui={"stall_seconds": 30})
    first, second = room.servers[FIRST], room.servers[SECOND]
    first.obeys = False
    await room.submit("a")
    agent = await room.start()
    stuck = first.begin()
    await room.clock.advance(42)
    assert [each.prompt_id for each in await room.store.run(ops.stuck_prompts)] == [stuck]
    assert agent.fleet.servers[FIRST].health is Health.ASIDE
    assert [message.partition(":")[0] for message in await room.events()] == ["set aside", "stuck"]
    await room.clock.advance(10)
    second.render()
    await room.submit("b", "c")
    await room.clock.advance(5)
    second.render()
    second.render()
    await room.clock.advance(5)
    assert [(await room.job(name)).status for name in "abc"] == ["done"] * 3
    assert len(first.posts) == 1
    first.running = ""
    await room.clock.advance(5)
    assert await room.store.run(ops.stuck_prompts) == []
    assert agent.fleet.servers[FIRST].takes_work


async def test_what_waits_at_a_server_that_was_set_aside_goes_to_another_uncharged(make_room: MakeRoom) -> None:
    room = make_room(FIRST, SECOND, comfyui={"stall_seconds": 30})
    first, second = room.servers[FIRST], room.servers[SECOND]
    await room.submit("a", "b", "c", "d")
    agent = await room.start()
    first.obeys = False
    first.begin()
    waiting = list(first.waiting)
    for _ in range(2):
        second.render()
    await room.clock.advance(40)
    assert first.waiting == [], "what waits there is taken back"
    while second.waiting:
        second.render()
        await room.clock.advance(2)
    jobs = [await room.job(name) for name in "abcd"]
    assert [job.status for job in jobs].count("done") >= 3
    assert {job.strikes for job in jobs} == {0}
    assert waiting
    assert agent.fleet.servers[FIRST].health is Health.ASIDE


# Draining.


async def test_draining_takes_back_what_waits_and_lets_the_running_prompt_end(make_room: MakeRoom) -> None:
    room = make_room(FIRST, SECOND)
    first, second = room.servers[FIRST], room.servers[SECOND]
    await room.submit("a", "b", "c", "d")
    await room.start()
    first.begin()
    await room.store.run(ops.drain_server, FIRST)
    await room.clock.advance(3)
    assert first.waiting == []
    assert first.interrupted == []
    (state,) = await room.store.run(ops.servers_out_of_work)
    assert state.state == "draining"
    first.finish()
    await room.clock.advance(3)
    (state,) = await room.store.run(ops.servers_out_of_work)
    assert state.state == "drained"
    for _ in range(3):
        second.render()
        await room.clock.advance(2)
    jobs = [await room.job(name) for name in "abcd"]
    assert [(job.status, job.retries_attempted) for job in jobs] == [("done", 0)] * 4


# Memory.


async def test_after_out_of_memory_the_memory_is_freed_and_the_second_time_another_server_is_asked(
    make_room: MakeRoom,
) -> None:
    room = make_room(FIRST, SECOND)
    await room.submit("a")
    await room.start()
    small, big = room.servers[FIRST], room.servers[SECOND]
    big.memory *= 2
    small.begin()
    small.fail(FailureClass.OOM)
    await room.clock.advance(1)
    assert small.frees == 1
    job = await room.job()
    assert (job.status, job.retries_attempted) == ("pending", 1)
    await room.clock.advance(6)
    small.begin()
    small.fail(FailureClass.OOM)
    await room.clock.advance(8)
    assert big.waiting, "it goes to the server with more memory"
    big.render()
    await room.clock.advance(1)
    assert (await room.job()).status == "done"
    await room.submit("b")
    await room.clock.advance(1)
    assert big.waiting, "jobs with the same needs begin there"


async def test_out_of_memory_twice_fails_where_no_server_has_more_and_says_what_there_is(make_room: MakeRoom) -> None:
    room = make_room(FIRST, SECOND)
    await room.submit("a")
    await room.start()
    for _ in range(2):
        small = room.servers[FIRST]
        small.begin()
        small.fail(FailureClass.OOM, "CUDA out of memory. Tried to allocate 30.50 GiB")
        await room.clock.advance(7)
    job = await room.job()
    assert (job.status, job.failure_class, job.run_count) == ("failed", "oom", 2)
    assert "it needs 30.50 GiB at once, more than 24.0 GB" in (job.error_trace or "")
    assert "first:8188 24.0 GB, second:8188 24.0 GB" in (job.error_trace or "")


# Death.


async def test_a_job_that_kills_its_server_three_times_is_poison_and_the_other_is_done(room: Room) -> None:
    await room.submit("a", "b")
    await room.start()
    for _ in range(10):
        if (await room.job("a")).status != "pending" and room.comfy.waiting:
            prompt_id = room.comfy.begin()
            is_killer = prompt_id == (await room.job("a")).prompt_id
            await room.clock.advance(1)
            if is_killer:
                room.comfy.die()
                await room.clock.advance(2)
                room.comfy.start()
            else:
                room.comfy.finish()
        await room.clock.advance(4)
        if not room.comfy.waiting and (await room.job("a")).status == "failed":
            break
    poison, other = await room.job("a"), await room.job("b")
    assert (poison.status, poison.failure_class, poison.strikes, poison.retries_attempted) == ("failed", "poison", 3, 0)
    while room.comfy.waiting:
        room.comfy.render()
        await room.clock.advance(4)
    other = await room.job("b")
    assert (other.status, other.strikes, other.retries_attempted) == ("done", 0, 0)
    assert len(await room.events("alert.poison")) == 1


async def test_a_prompt_that_was_taken_over_while_it_ran_is_suspect_when_its_server_dies(room: Room) -> None:
    await room.submit("a")
    prompt_id = PromptId("11111111-1111-4111-8111-111111111111")
    await room.store.run(ops.lease_jobs, "killed", Window(FIRST, 2), [prompt_id], 30.0)
    room.comfy.running = prompt_id
    await room.start()
    await room.clock.advance(0.4)
    room.comfy.die()
    await room.clock.advance(2)
    room.comfy.start()
    await room.clock.advance(3)
    job = await room.job()
    assert (job.strikes, job.retries_attempted, job.run_count) == (1, 0, 2)


async def test_a_restarted_server_gets_its_prompts_again_and_they_are_not_charged(room: Room) -> None:
    await room.submit("a", "b")
    await room.start()
    room.comfy.die()
    await room.clock.advance(3)
    room.comfy.start()
    await room.clock.advance(5)
    for _ in range(2):
        room.comfy.render()
        await room.clock.advance(2)
    jobs = [await room.job(name) for name in "ab"]
    assert [(job.status, job.retries_attempted) for job in jobs] == [("done", 0)] * 2
    assert len(await room.events()) == 1, "one alert for both"


async def test_a_server_that_stays_away_loses_its_jobs_to_another_after_failover_seconds(make_room: MakeRoom) -> None:
    room = make_room(FIRST, SECOND, comfyui={"failover_seconds": 20})
    first, second = room.servers[FIRST], room.servers[SECOND]
    await room.submit("a")
    await room.store.run(ops.pause_server, SECOND)
    await room.start()
    first.begin()
    first.is_up = False
    await room.clock.advance(15)
    assert (await room.job()).status == "processing", "it is waited for"
    await room.clock.advance(10)
    job = await room.job()
    assert (job.status, job.failure_class, job.retries_attempted, job.waits_for_server) == (
        "pending",
        "server_lost",
        0,
        True,
    )
    assert len(await room.events()) == 1
    await room.store.run(ops.resume_server, SECOND)
    await room.clock.advance(5)
    second.render()
    await room.clock.advance(2)
    assert (await room.job()).status == "done"
    first.is_up = True
    await room.clock.advance(5)
    assert (first.running, len(first.interrupted)) == ("", 1), "its copy is deleted on sight"


async def test_a_server_that_comes_back_with_its_prompt_goes_on_with_it(make_room: MakeRoom) -> None:
    room = make_room(comfyui={"failover_seconds": 20})
    await room.submit("a")
    await room.start()
    room.comfy.begin()
    room.comfy.is_up = False
    await room.clock.advance(30)
    assert (await room.job()).waits_for_server
    room.comfy.is_up = True
    room.comfy.finish()
    await room.clock.advance(5)
    assert (await room.job()).status == "done"
    assert (len(room.comfy.posts), len(await room.attempts())) == (1, 1)


async def test_one_crash_before_poison_no_other_server_gets_the_job(make_room: MakeRoom) -> None:
    room = make_room(FIRST, SECOND, comfyui={"failover_seconds": 20})
    await room.submit("a")
    room.driver.database.execute("UPDATE jobs SET strikes = 2")
    await room.start()
    first = next(each for each in room.servers.values() if each.waiting)
    first.begin()
    first.is_up = False
    await room.clock.advance(40)
    job = await room.job()
    assert (job.status, job.hold) == ("pending", "server")
    assert sum(len(each.posts) for each in room.servers.values()) == 1


async def test_a_job_that_was_cancelled_while_its_server_is_away_is_closed_at_once(make_room: MakeRoom) -> None:
    room = make_room(comfyui={"failover_seconds": 20})
    await room.submit("a")
    await room.start()
    room.comfy.begin()
    room.comfy.is_up = False
    await room.clock.advance(30)
    await room.store.run(ops.cancel_jobs, [(await room.job()).id])
    await room.clock.advance(5)
    assert await room.store.run(ops.open_attempts) == []


async def test_a_result_that_cannot_be_fetched_from_a_silent_server_waits_and_is_no_suspect(
    make_room: MakeRoom,
) -> None:
    room = make_room(comfyui={"failover_seconds": 20})
    await room.submit("a")
    await room.start()
    room.comfy.begin()
    room.comfy.is_up = False
    room.comfy.finish()
    await room.clock.advance(40)
    job = await room.job()
    assert (job.status, job.strikes, job.waits_for_server) == ("pending", 0, True)
    assert [each.running_seconds for each in await room.attempts()] == [0.0], "it had ended"
    room.comfy.is_up = True
    await room.clock.advance(5)
    job = await room.job()
    assert (job.status, len(room.comfy.posts)) == ("done", 1)


async def test_an_agent_ends_when_all_its_servers_are_stuck(make_room: MakeRoom) -> None:
    room = make_room(comfyui={"stall_seconds": 10, "failover_seconds": 10})
    room.comfy.obeys = False
    await room.submit("a", "b")
    agent = await room.start()
    room.comfy.begin()
    await room.clock.advance(40)
    assert agent.blocked == "", "only an agent that works until idle ends"
    idleness = agent.idleness
    assert not await idleness.is_out_of_reach()
    await room.clock.advance(11)
    assert await idleness.is_out_of_reach()
    assert "is stuck since" in agent.blocked
