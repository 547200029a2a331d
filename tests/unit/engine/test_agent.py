"""An agent from lease to result, and what it does when it is stopped or its predecessor was killed."""

from __future__ import annotations

from comfyui_agent.domain.states import JobStatus
from comfyui_agent.store import operations as ops
from comfyui_agent.store.errors import DatabaseAway
from comfyui_agent.store.records import Window
from support.engine import FIRST, PICTURE, Room


async def test_a_job_is_rendered_once_and_its_result_is_there_when_it_is_done(room: Room) -> None:
    await room.submit("a")
    await room.start()
    room.comfy.render()
    await room.clock.advance(1)
    job = await room.job()
    assert (job.status, len(room.comfy.posts)) == (JobStatus.DONE, 1)
    assert [(room.workspace.root / path).read_bytes() for path in job.outputs] == [PICTURE]
    assert [each.outcome for each in await room.attempts()] == ["done"]


async def test_a_server_has_two_prompts_and_a_lower_priority_number_comes_first(room: Room) -> None:
    await room.submit("c", "d", priority=60)
    await room.submit("a", "b", priority=40)
    await room.start()
    names = [(await room.job(name)).status for name in "abcd"]
    assert names == ["processing", "processing", "pending", "pending"]


async def test_what_a_killed_agent_had_at_a_server_is_taken_over_and_not_sent_again(room: Room) -> None:
    await room.submit("a")
    prompt_id = "11111111-1111-4111-8111-111111111111"
    await room.store.run(ops.lease_jobs, "killed", Window(FIRST, 2), [prompt_id], 30.0)
    room.comfy.waiting.append(prompt_id)
    await room.start()
    room.comfy.render()
    await room.clock.advance(3)
    assert (await room.job()).status == "done"
    assert room.comfy.posts == []
    assert len(await room.attempts()) == 1


async def test_what_a_killed_agent_had_never_sent_is_a_new_attempt_that_is_not_charged(room: Room) -> None:
    await room.submit("a")
    prompt_id = "11111111-1111-4111-8111-111111111111"
    await room.store.run(ops.lease_jobs, "killed", Window(FIRST, 2), [prompt_id], 30.0)
    await room.start()
    await room.clock.advance(3)
    room.comfy.render()
    await room.clock.advance(1)
    job = await room.job()
    assert (job.status, job.retries_attempted, len(room.comfy.posts)) == ("done", 0, 1)
    assert [each.outcome for each in await room.attempts()] == ["server_lost", "done"]


async def test_a_living_agents_job_is_left_to_it_until_its_lease_ends(room: Room) -> None:
    first = await room.start()
    await room.submit("a")
    await room.clock.advance(2)
    second = await room.start()
    await room.clock.advance(20)
    assert (await room.job()).worker_id == first.worker
    assert second.runs == []
    assert len(room.comfy.posts) == 1


async def test_a_stopped_agent_leaves_its_prompts_and_the_next_one_takes_them_over(room: Room) -> None:
    await room.submit("a", "b")
    await room.start()
    room.comfy.begin()
    await room.stop()
    assert await room.store.run(ops.held_leases, "anybody") == frozenset()
    assert room.comfy.interrupted == []
    room.comfy.finish()
    room.comfy.render()
    await room.start()
    await room.clock.advance(3)
    assert [(await room.job(name)).status for name in "ab"] == ["done", "done"]
    assert len(room.comfy.posts) == 2


async def test_a_job_that_was_cancelled_is_taken_back_and_its_result_is_not_kept(room: Room) -> None:
    await room.submit("a")
    await room.start()
    room.comfy.begin()
    await room.store.run(ops.cancel_jobs, [(await room.job()).id])
    await room.clock.advance(3)
    assert len(room.comfy.interrupted) == 1
    assert (await room.job()).failure_class == "cancelled"
    assert await room.store.run(ops.open_attempts) == []


async def test_a_worker_that_lost_its_lease_changes_nothing_and_leaves_no_file(room: Room) -> None:
    """It was stopped past its lease: another agent has the job by now."""
    await room.submit("a")
    await room.start()
    room.comfy.begin()
    room.driver.database.execute("UPDATE jobs SET fence = fence + 1, worker_id = 'another', lease_expires_at = NULL")
    room.comfy.finish()
    await room.clock.advance(0.5)
    job = await room.job()
    assert (job.status, job.worker_id, job.outputs) == ("processing", "another", ())
    assert list(room.workspace.root.rglob("*.png")) == []


async def test_while_the_database_is_away_jobs_are_let_go_before_their_leases_end(room: Room) -> None:
    await room.submit("a")
    agent = await room.start()
    assert len(agent.runs) == 1
    room.driver.error = DatabaseAway("locked")
    await room.clock.advance(room.workspace.settings.lease_seconds)
    assert agent.runs == []
    room.driver.error = None
    room.comfy.render()
    await room.clock.advance(40)
    assert (await room.job()).status == "done"
    assert len(room.comfy.posts) == 1


async def test_a_result_that_could_not_be_recorded_for_a_while_is_recorded_later(room: Room) -> None:
    await room.submit("a")
    await room.start()
    room.driver.error = DatabaseAway("locked")
    room.comfy.render()
    await room.clock.advance(10)
    room.driver.error = None
    await room.clock.advance(2)
    assert (await room.job()).status == "done"
    assert len(await room.events("alert.database")) >= 1
