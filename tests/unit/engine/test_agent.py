"""An agent from lease to result, and what it does when it is stopped or its predecessor was killed."""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Callable
from typing import Any

import pytest

from comfyui_agent.domain.batches import BatchKind, NewBatch
from comfyui_agent.domain.failures import FailureClass
from comfyui_agent.domain.jobs import NewJob, Template
from comfyui_agent.domain.states import JobStatus
from comfyui_agent.files.folder import Folder
from comfyui_agent.pools import Pool
from comfyui_agent.store import operations as ops
from comfyui_agent.store.errors import DatabaseAway
from comfyui_agent.store.records import Digest, Window
from support.engine import FIRST, GRAPH, PICTURE, Room, run_here
from support.stores import intercept, register


async def test_a_job_is_rendered_once_and_its_result_is_there_when_it_is_done(room: Room) -> None:
    await room.submit("a")
    await room.start()
    room.comfy.render()
    await room.clock.advance(1)
    job = await room.job()
    assert (job.status, len(room.comfy.posts)) == (JobStatus.DONE, 1)
    assert [(room.workspace.root / path).read_bytes() for path in job.outputs] == [PICTURE]
    assert [each.outcome for each in await room.attempts()] == ["done"]


async def test_a_result_is_recorded_with_the_digest_of_its_bytes(room: Room) -> None:
    await room.submit("a")
    await room.start()
    room.comfy.render()
    await room.clock.advance(1)
    [path] = (await room.job("a")).outputs
    digest = Digest(hashlib.sha256(PICTURE).hexdigest(), len(PICTURE))
    assert await room.store.run(ops.digests_of, [path]) == {path: digest}


async def test_a_job_that_is_rendered_again_names_each_result_apart_also_after_a_kill(room: Room) -> None:
    """The second agent finds the name that the first one had claimed for the same take, and no other."""
    await room.submit("a")
    await room.start()
    room.comfy.render()
    await room.clock.advance(1)
    for number in (2, 3):
        job = await room.job()
        assert await room.store.run(ops.resubmit_jobs, [(job.id, None)]) == [job.id]
        await room.clock.advance(1)
        claimed = f"jobs/finished/image/a_{number}.png"
        await room.store.driver.write(
            lambda session, claimed=claimed: session.run("claim_file", path=claimed, job_id=1, sha256=None, bytes=None)
        )
        (room.workspace.root / claimed).write_bytes(b"half")
        room.comfy.render()
        await room.clock.advance(1)
        assert (await room.job()).outputs == (claimed,)
    folder = room.workspace.root / "jobs" / "finished" / "image"
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == dict.fromkeys(
        ("a.png", "a_2.png", "a_3.png"), PICTURE
    )


async def test_another_take_leaves_out_the_name_of_another_job(room: Room) -> None:
    await room.submit("a", "a_2")
    await room.start()
    for _ in range(2):
        room.comfy.render()
        await room.clock.advance(1)
    job = await room.job("a")
    await room.store.run(ops.resubmit_jobs, [(job.id, None)])
    await room.clock.advance(1)
    room.comfy.render()
    await room.clock.advance(1)
    assert (await room.job("a")).outputs == ("jobs/finished/image/a_3.png",)
    assert (await room.job("a_2")).outputs == ("jobs/finished/image/a_2.png",)


async def test_a_working_agent_keeps_the_time_of_its_lock_file_fresh_also_while_the_database_hangs(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = await room.start()

    async def hang(*_: object, **__: object) -> None:
        await room.clock.sleep(3600)

    with monkeypatch.context() as patch:
        patch.setattr(room.store, "run", hang)
        await room.clock.advance(60)
        os.utime(agent.lock.path, times=(0, 0))
        await room.clock.advance(1)
        assert agent.lock.path.stat().st_mtime > 0


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
    agent = await room.start()
    room.comfy.begin()
    assert len(await room.store.run(ops.held_leases, agent.worker)) == 2
    await room.stop()
    assert await room.store.run(ops.held_leases, agent.worker) == frozenset()
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


async def test_a_result_is_not_named_once_the_lease_could_have_run_out(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process was stopped right after its lease was proved."""

    async def prove_and_sleep(really: Any, *facts: Any, **options: Any) -> Any:
        proved = await really(*facts, **options)
        await room.clock.sleep(room.workspace.settings.lease_seconds)
        return proved

    intercept(monkeypatch, room.store, ops.claim_files, prove_and_sleep)
    await room.submit("a")
    agent = await room.start()
    room.comfy.render()
    monkeypatch.setattr(agent.leases, "_drop_unproved", lambda: None)
    await room.clock.advance(room.workspace.settings.lease_seconds + 1)
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


async def test_a_full_disk_is_reported_once_for_all_that_wait_and_again_when_it_is_full_again(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    def is_full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    await room.submit("a", "b", "c")
    await room.start()
    for alerts in (1, 2):
        monkeypatch.setattr(Folder, "publish", is_full)
        room.comfy.render()
        room.comfy.render() if room.comfy.waiting else None
        await room.clock.advance(5)
        assert len(await room.events("alert.disk")) == alerts
        monkeypatch.undo()
        monkeypatch.setattr(Pool, "run", run_here)
        await room.clock.advance(3)
    assert [(await room.job(name)).status for name in "abc"] == ["done"] * 3
    assert [each for each in room.workspace.root.rglob(".*") if each.is_file() and each.suffix == ".png"] == []


async def test_a_file_of_somebody_is_not_replaced_by_a_result(room: Room) -> None:
    mine = room.workspace.root / "pictures" / "mine.png"
    mine.parent.mkdir()
    await room.submit("a", file_path="pictures/mine.png")
    await room.start()
    mine.write_bytes(b"mine")
    room.comfy.render()
    await room.clock.advance(2)
    job = await room.job()
    assert (job.status, job.failure_class, mine.read_bytes()) == ("failed", "output", b"mine")
    assert "is there already and is no result of E3" in (job.error_trace or "")


async def test_a_late_prompt_of_ours_that_no_run_owns_is_deleted_on_sight(room: Room) -> None:
    await room.start()
    room.comfy.waiting.append("22222222-2222-4222-8222-222222222222")
    await room.clock.advance(3)
    assert room.comfy.waiting == []


async def test_an_unwanted_prompt_that_does_not_stop_makes_its_server_stuck_and_is_reported_seldom(room: Room) -> None:
    room.comfy.obeys = False
    agent = await room.start()
    room.comfy.running = "22222222-2222-4222-8222-222222222222"
    await room.clock.advance(20)
    assert len(room.comfy.interrupted) == 1
    assert await room.store.run(ops.stuck_prompts) == []
    await room.clock.advance(200)
    assert len(await room.store.run(ops.stuck_prompts)) == 1
    assert not agent.fleet.servers[FIRST].takes_work
    assert len(room.comfy.interrupted) < 10


async def make_pair(room: Room) -> None:
    jobs = [NewJob(name, "T2I", "w", Template.of(GRAPH), batch_id="pair") for name in "ab"]
    await room.store.run(ops.create_batch, NewBatch("pair", "pair", BatchKind.FILES), None)
    await room.store.run(ops.fill_batch, jobs)
    await room.store.run(ops.open_batch, "pair")


async def status_of_pair(room: Room) -> str:
    batch = await room.store.run(ops.find_batch, "pair")
    assert batch is not None
    return batch.status


async def test_a_batch_completes_with_its_last_member(room: Room) -> None:
    await make_pair(room)
    await room.start()
    for status in ("collecting", "complete"):
        room.comfy.render()
        await room.clock.advance(1)
        assert await status_of_pair(room) == status


async def test_a_batch_that_renders_for_too_long_without_a_result_expires(make_room: Callable[..., Room]) -> None:
    room = make_room(batch_expiry_seconds=60, comfyui={"timeout_seconds": 300, "stall_seconds": 300})
    await make_pair(room)
    await room.start()
    await room.clock.advance(100)
    assert await status_of_pair(room) == "active", "waiting is not rendering"
    room.comfy.begin()
    await room.clock.advance(50)
    assert await status_of_pair(room) == "active"
    await room.clock.advance(30)
    assert await status_of_pair(room) == "expired"
    assert len(room.comfy.interrupted) == 1


async def test_a_slow_download_is_left_to_the_next_agent_when_the_first_is_stopped(
    room: Room, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def never_ends(*_: object, **__: object) -> None:
        await room.clock.sleep(1_000)

    await room.submit("a")
    await room.start()
    with monkeypatch.context() as patch:
        patch.setattr(room.comfy, "download", never_ends)
        room.comfy.render()
        await room.clock.advance(1)
        await room.stop()
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []
    await room.start()
    await room.clock.advance(3)
    assert ((await room.job()).status, len(room.comfy.posts)) == ("done", 1)


# A result is fetched as soon as its server says that there is one.


async def test_what_was_fetched_before_the_history_had_it_is_not_fetched_again(room: Room) -> None:
    await room.submit("a")
    await room.start()
    prompt_id = room.comfy.begin()
    room.comfy.tell_success()
    await room.clock.settle()
    assert room.comfy.downloads == [f"{prompt_id}.png"]
    assert (await room.job()).status == JobStatus.PROCESSING, "the history has the last word"
    room.comfy.finish()
    await room.clock.advance(1)
    assert ((await room.job()).status, room.comfy.downloads) == (JobStatus.DONE, [f"{prompt_id}.png"])


async def test_what_was_fetched_of_a_prompt_that_failed_after_all_is_thrown_away(room: Room) -> None:
    await room.submit("a", retry_limit=0)
    await room.start()
    room.comfy.begin()
    room.comfy.tell_success()
    await room.clock.settle()
    assert len(pictures(room)) == 1
    room.comfy.fail(FailureClass.EXECUTION)
    await room.clock.advance(1)
    assert ((await room.job()).status, pictures(room)) == (JobStatus.FAILED, [])


async def test_what_could_not_be_fetched_early_is_fetched_when_the_history_has_it(room: Room) -> None:
    await room.submit("a")
    await room.start()
    room.comfy.begin()
    room.comfy.is_up = False
    room.comfy.tell_success()
    await room.clock.settle()
    room.comfy.is_up = True
    assert pictures(room) == []
    room.comfy.finish()
    await room.clock.advance(1)
    assert ((await room.job()).status, len(pictures(room))) == (JobStatus.DONE, 1)


async def test_a_prompt_whose_job_was_dropped_is_not_fetched(room: Room) -> None:
    await room.submit("a")
    await room.start()
    room.comfy.begin()
    await register(room.store, "another", host="elsewhere")
    room.driver.database.execute(
        "UPDATE jobs SET fence = fence + 1, worker_id = 'another'; UPDATE attempts SET worker_id = 'another'"
    )
    await room.clock.advance(15)  # the lease is renewed, and is not there any more
    room.comfy.tell_success()
    await room.clock.settle()
    assert (room.comfy.downloads, pictures(room)) == ([], [])


def pictures(room: Room) -> list[str]:
    """The names of all pictures in the workspace, also of those that are on their way."""
    return [path.name for path in room.workspace.root.rglob("*.png")]
