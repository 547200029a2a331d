"""Files that are gone: deleted, put back, or away with their drive."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import Any

import pytest

from comfyui_agent.domain.retry_policy import Retry
from comfyui_agent.engine.intake import monitor as monitor_module
from comfyui_agent.store import operations as ops
from comfyui_agent.usecases.job_files import resubmit
from support.intake import Intake, Running, complaints, intake, portrait, until
from support.stores import broken, intercept

DELETED = "cancelled: its file jobs/processing/image/knight.yaml was deleted"


async def is_let_go(room: Intake, *running: Running) -> bool:
    """Whether monitors have noticed that files are gone and have made up their minds."""
    return all(each.monitor.is_idle and not each.monitor._files.missing for each in running)


async def test_deleted_while_it_waits_it_is_cancelled(room: Intake) -> None:
    await room.watching()
    room.drop()
    await room.taken()
    room.path().unlink()
    job = await room.taken(status="failed")
    assert (job.failure_class, job.error_trace, job.run_count) == ("cancelled", DELETED, 0)
    assert [event.name for event in await room.events()] == ["job.submitted", "job.cancelled"]


async def test_deleted_while_nobody_watched_it_is_cancelled_by_the_next_monitor(room: Intake) -> None:
    for name in ("a.yaml", "b.yaml", "c.yaml"):
        room.drop(name)
    await room.look_once()
    room.path("b.yaml").unlink()
    await room.look_once()
    states = {job.config_name: (job.status, job.failure_class) for job in await room.store.run(ops.list_jobs)}
    assert states == {"a.yaml": ("pending", None), "b.yaml": ("failed", "cancelled"), "c.yaml": ("pending", None)}


async def test_deleted_with_its_own_folder_while_nobody_watched_it_is_cancelled(room: Intake) -> None:
    room.drop(folder="image/night/one")
    await room.look_once()
    shutil.rmtree(room.processing / "image")
    await room.look_once()
    assert (await room.job()).failure_class == "cancelled"


async def test_deleted_while_it_runs_the_job_goes_on(room: Intake) -> None:
    running = await room.watching()
    room.drop()
    await room.taken()
    leased = await room.run_job()
    room.path().unlink()
    await until(lambda: is_noticed(room, running), "the deletion to be noticed")
    assert (await room.job()).status == "processing"
    await room.finish(leased)
    assert (await room.job()).status == "done"
    assert room.files() == set()


async def is_noticed(room: Intake, running: Running) -> bool:
    return str(room.path()) not in running.monitor._files.known


@pytest.mark.parametrize("state", ["failed", "done"])
async def test_deleted_after_it_ended_nothing_happens(room: Intake, state: str) -> None:
    room.drop()
    await room.look_once()
    leased = await room.run_job()
    await (room.fail(leased) if state == "failed" else room.finish(leased))
    before = await room.job()
    running = await room.watching()
    room.path().unlink(missing_ok=True)
    await until(lambda: is_noticed(room, running), "the deletion to be noticed")
    assert await room.job() == before


async def test_deleted_in_backoff_it_is_cancelled(room: Intake) -> None:
    await room.watching()
    room.drop()
    await room.taken()
    leased = await room.run_job()
    await room.store.run(ops.requeue_job, leased.lease, broken(), Retry(60.0, charged=True))
    room.path().unlink()
    job = await room.taken(status="failed")
    assert (job.failure_class, job.next_attempt_at) == ("cancelled", None)


async def test_a_file_that_is_gone_for_less_than_a_second_was_not_deleted(room: Intake) -> None:
    running = await room.watching()
    room.drop()
    before = await room.taken()
    for _ in range(3):
        room.path().unlink()
        await asyncio.sleep(0.2)
        room.drop()
        await asyncio.sleep(0.2)
    await until(lambda: is_let_go(room, running), "the file to be judged")
    assert await room.job() == before


@pytest.mark.parametrize("is_running", [True, False], ids=["while it runs", "over a restart"])
@pytest.mark.parametrize("content", [portrait(), portrait(seed=2)], ids=["the same bytes", "other bytes"])
async def test_a_file_that_was_deleted_and_put_back_is_a_new_job(room: Intake, content: str, is_running: bool) -> None:
    running = await room.watching()
    room.drop()
    first = await room.taken()
    room.path().unlink()
    await room.taken(status="failed")
    if not is_running:
        await running.stop()
    room.drop(content=content)
    if not is_running:
        await room.look_once()
    job = await room.taken(status="pending")
    assert (job.id, job.error_trace, job.failure_class) == (first.id, None, None)
    assert await room.submissions() == 2


async def test_a_whole_folder_that_is_deleted_is_all_of_its_files(room: Intake) -> None:
    await room.watching()
    for number in range(20):
        room.drop(f"{number}.yaml", folder="video/night")
    room.drop()
    await until(lambda: counts_are(room, 21, 0), "all to be taken in")
    shutil.rmtree(room.processing / "video")
    await until(lambda: counts_are(room, 1, 20), "the jobs of the folder to be cancelled")
    assert (await room.job()).status == "pending"
    room.drop("new.yaml", folder="video")
    await room.taken("new.yaml", status="pending")


async def counts_are(room: Intake, pending: int, failed: int) -> bool:
    counts = await room.store.run(ops.count_jobs)
    return (counts.pending, counts.failed) == (pending, failed)


async def test_everything_in_the_folder_deleted_by_hand_is_cancelled(room: Intake) -> None:
    await room.watching()
    for number in range(5):
        room.drop(f"{number}.yaml")
    await until(lambda: counts_are(room, 5, 0), "all to be taken in")
    for number in range(5):
        room.path(f"{number}.yaml").unlink()
    await until(lambda: counts_are(room, 0, 5), "all to be cancelled")


async def test_a_drive_that_goes_away_cancels_nothing_and_comes_back_as_it_was(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """An unmounted drive is an empty folder of another identity, or none."""
    async with intake(tmp_path / "workspace", E3_RESCAN_SECONDS="0.3") as room:
        running = await room.watching()
        room.drop()
        before = await room.taken()
        away = room.root / "away"
        room.processing.rename(away)
        await until(lambda: is_noticed(room, running), "the loss of the folder to be noticed")
        assert await room.job() == before, "the folder is gone"
        room.processing.mkdir()
        for kind in ("image", "video"):
            (room.processing / kind).mkdir()
        await asyncio.sleep(1.5)
        assert await room.job() == before, "the folder is empty"
        assert any("is gone or was replaced" in words for words in complaints(caplog))
        shutil.rmtree(room.processing)
        away.rename(room.processing)
        await until(lambda: is_known(room, running), "the files to be seen again")
        assert await room.job() == before
        assert await room.submissions() == 1


async def is_known(room: Intake, running: Running) -> bool:
    return running.monitor._files.known.get(str(room.path()), (0,))[0] > 0


async def test_a_folder_that_is_replaced_by_an_empty_one_in_one_moment_cancels_nothing(tmp_path: Path) -> None:
    async with intake(tmp_path / "workspace", E3_RESCAN_SECONDS="0.3") as room:
        running = await room.watching()
        room.drop()
        before = await room.taken()
        empty = room.root / "empty"
        empty.mkdir()
        room.processing.rename(room.root / "away")
        empty.rename(room.processing)
        await until(lambda: is_noticed(room, running), "the loss of the files to be noticed")
        assert await room.job() == before


async def test_what_is_dropped_into_the_folder_that_came_in_its_place_is_taken_and_can_be_deleted(
    tmp_path: Path,
) -> None:
    async with intake(tmp_path / "workspace", E3_RESCAN_SECONDS="0.3") as room:
        running = await room.watching()
        room.drop()
        await room.taken()
        room.processing.rename(room.root / "away")
        (room.processing / "image").mkdir(parents=True)
        await until(lambda: is_noticed(room, running), "the loss of the files to be noticed")
        room.drop("new.yaml")
        await room.taken("new.yaml", status="pending")
        room.path("new.yaml").unlink()
        assert (await room.taken("new.yaml", status="failed")).failure_class == "cancelled"
        assert (await room.job()).status == "pending"


async def test_a_monitor_without_a_folder_waits_for_it(tmp_path: Path) -> None:
    async with intake(tmp_path / "workspace", E3_RESCAN_SECONDS="0.3") as room:
        room.drop()
        await room.look_once()
        away = room.root / "away"
        room.processing.rename(away)
        room.start()
        await asyncio.sleep(1.5)
        assert (await room.job()).status == "pending", "a folder that is not there is no folder without files"
        away.rename(room.processing)
        room.drop("new.yaml")
        await room.taken("new.yaml", status="pending")
        assert (await room.job()).status == "pending"


async def test_a_job_that_is_retried_after_its_file_was_deleted_is_not_cancelled_for_that(room: Intake) -> None:
    room.drop()
    await room.look_once()
    await room.fail(await room.run_job())
    room.path().unlink()
    (answer,) = await resubmit(room.store, room.admission(), room.workspace, [await room.job()])
    assert answer.problem == ""
    await room.look_once()
    assert (await room.job()).status == "pending"


async def test_a_deletion_that_cannot_be_written_down_is_tried_again(
    room: Intake, monkeypatch: pytest.MonkeyPatch
) -> None:
    from comfyui_agent.store.errors import StoreError

    monkeypatch.setattr(monitor_module, "TROUBLE_PAUSE", 0.1)
    await room.watching()
    room.drop()
    await room.taken()
    tries = []

    async def cancel_deleted(real: Any, sources: list[str]) -> list[str]:
        tries.append(sources)
        if len(tries) < 3:
            raise StoreError("the disk is full")
        return await real(sources)

    intercept(monkeypatch, room.store, ops.cancel_deleted, cancel_deleted)
    room.path().unlink()
    assert (await room.taken(status="failed")).failure_class == "cancelled"
    assert len(tries) == 3
