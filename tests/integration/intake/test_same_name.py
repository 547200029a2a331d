"""The same name again: what becomes of the file depends on what has become of its job."""

from __future__ import annotations

import asyncio
import logging
import os

import pytest

from comfyui_agent.store import operations as ops
from support.intake import KNIGHT, Intake, Running, complaints, portrait, until

OTHER = portrait(seed=2)


def wrong(seed: int = 1) -> str:
    return portrait(seed, outputs="no_such")


WRONG = wrong()
DONE = "jobs/finished/image/knight.yaml"
HERE = "jobs/processing/image/knight.yaml"


async def is_rejected(room: Intake, path: str = HERE) -> bool:
    return (room.root / f"{path}.rejected").exists()


def is_other(inputs: str | None) -> bool:
    return '"5.seed":2' in (inputs or "")


async def bring_to(room: Intake, state: str) -> None:
    """The job of `knight.yaml`, in a state, its file where it is in that state."""
    room.drop()
    await room.look_once()
    if state == "pending":
        return
    leased = await room.run_job()
    if state == "failed":
        await room.fail(leased)
    elif state == "done":
        await room.finish(leased)


@pytest.mark.parametrize("is_running", [True, False], ids=["while it runs", "over a restart"])
@pytest.mark.parametrize("state", ["pending", "processing", "failed"])
async def test_the_same_bytes_again_are_nothing(room: Intake, state: str, is_running: bool) -> None:
    await bring_to(room, state)
    before, events = await room.job(), await room.events()
    if is_running:
        running = await room.watching()
        for _ in range(2):
            inode = room.drop().stat().st_ino
            await until(lambda known=inode: knows(running, known), "the copy to be judged")
    else:
        room.drop()
        await room.look_once()
    assert (await room.job(), await room.events()) == (before, events)
    assert room.files() == {HERE}


async def knows(running: Running, inode: int) -> bool:
    """Whether a monitor has judged the file of this inode."""
    return any(signature[2] == inode for signature in running.monitor._files.known.values())


async def test_a_touched_file_is_nothing(room: Intake) -> None:
    running = await room.watching()
    room.drop()
    before = await room.taken()
    os.utime(room.path(), (1, 1))
    await until(lambda: knows_time(running), "the file to be judged")
    assert await room.job() == before
    assert await room.submissions() == 1


async def knows_time(running: Running) -> bool:
    return any(signature[0] == 1_000_000_000 for signature in running.monitor._files.known.values())


@pytest.mark.parametrize("is_running", [True, False], ids=["while it runs", "over a restart"])
@pytest.mark.parametrize("state", ["pending", "failed"])
async def test_changed_while_it_waits_or_after_it_failed_it_is_submitted_as_it_is_now(
    room: Intake, state: str, is_running: bool
) -> None:
    await bring_to(room, state)
    before = await room.job()
    if is_running:
        await room.watching()
    room.drop(content=OTHER)
    if not is_running:
        await room.look_once()
    job = await room.changed(before)
    assert (job.id, job.status, job.error_trace) == (before.id, "pending", None)
    assert is_other(job.inputs)
    assert (await room.submissions(), room.files()) == (2, {HERE})


@pytest.mark.parametrize("is_running", [True, False], ids=["while it runs", "over a restart"])
async def test_changed_while_it_runs_it_is_not_moved_at_the_end_but_submitted_again(
    room: Intake, is_running: bool, caplog: pytest.LogCaptureFixture
) -> None:
    room.drop()
    await room.look_once()
    leased = await room.run_job()
    if is_running:
        await room.watching()
    room.drop(content=OTHER)
    if is_running:
        await until(lambda: is_to_be_submitted_again(room), "the change to be noted")
    await room.finish(leased)
    assert room.files() == {HERE}
    if not is_running:
        await room.look_once()
    job = await room.taken(status="pending")
    assert is_other(job.inputs)
    assert any(KNIGHT in record.getMessage() for record in caplog.records), "it is noted in the log"
    again = await room.run_job()
    await room.finish(again)
    assert room.files() == {DONE}
    assert (await room.job()).run_count == 2
    assert (room.root / DONE).read_text() == OTHER


async def is_to_be_submitted_again(room: Intake) -> bool:
    return bool((await room.job()).resubmit)


async def test_changed_while_it_runs_and_nobody_watches_the_agent_notices(
    room: Intake, caplog: pytest.LogCaptureFixture
) -> None:
    room.drop()
    await room.look_once()
    leased = await room.run_job()
    room.drop(content=OTHER)
    with caplog.at_level(logging.WARNING):
        await room.finish(leased)
    assert "changed while its job ran" in caplog.text
    assert [event.name for event in await room.events()][-1] == "alert.file"
    assert room.files() == {HERE}


async def test_changed_several_times_while_it_runs_the_last_one_is_submitted_once(room: Intake) -> None:
    await room.watching()
    room.drop()
    await room.taken()
    leased = await room.run_job()
    for seed in (5, 4, 3, 2):
        room.drop(content=portrait(seed=seed))
        await asyncio.sleep(0.15)
    await until(lambda: is_to_be_submitted_again(room), "the change to be noted")
    await room.finish(leased)
    job = await room.taken(status="pending")
    assert is_other(job.inputs)
    assert await room.submissions() == 2
    alerts = [event for event in await room.events() if event.name == "alert.file"]
    assert len(alerts) == 1


async def test_changed_and_changed_back_while_it_runs_it_is_moved_at_the_end(room: Intake) -> None:
    await room.watching()
    room.drop()
    await room.taken()
    leased = await room.run_job()
    room.drop(content=OTHER)
    await until(lambda: is_to_be_submitted_again(room), "the change to be noted")
    room.drop()

    async def is_forgotten() -> bool:
        return not await is_to_be_submitted_again(room)

    await until(is_forgotten, "the change to be forgotten")
    await room.finish(leased)
    assert room.files() == {DONE}
    assert await room.submissions() == 1


async def test_changed_while_it_runs_and_it_fails_it_is_submitted_again(room: Intake) -> None:
    await room.watching()
    room.drop()
    await room.taken()
    leased = await room.run_job()
    room.drop(content=OTHER)
    await until(lambda: is_to_be_submitted_again(room), "the change to be noted")
    await room.fail(leased)
    job = await room.taken(status="pending")
    assert is_other(job.inputs)


@pytest.mark.parametrize("is_running", [True, False], ids=["while it runs", "over a restart"])
async def test_after_done_another_file_of_the_name_makes_another_take(room: Intake, is_running: bool) -> None:
    await bring_to(room, "done")
    before = await room.job()
    if is_running:
        await room.watching()
    room.drop(content=OTHER)
    if not is_running:
        await room.look_once()
    job = await room.taken(status="pending")
    assert (is_other(job.inputs), job.take, job.outputs) == (True, 2, before.outputs)
    [kept] = await room.store.run(ops.list_takes, job.id)
    assert (kept.number, kept.outputs, kept.inputs) == (1, before.outputs, before.inputs)
    assert room.files() == {HERE, DONE}


@pytest.mark.parametrize("is_running", [True, False], ids=["while it runs", "over a restart"])
async def test_after_done_a_wrong_file_of_the_name_is_renamed_with_the_reason_in_the_log(
    room: Intake, is_running: bool, caplog: pytest.LogCaptureFixture
) -> None:
    await bring_to(room, "done")
    before = await room.job()
    if is_running:
        await room.watching()
    room.drop(content=WRONG)
    if not is_running:
        await room.look_once()
    await until(lambda: is_rejected(room), "the file to be renamed")
    assert room.files() == {f"{HERE}.rejected", DONE}
    assert (room.root / f"{HERE}.rejected").read_text() == WRONG
    assert await room.job() == before
    assert "no_such" in (await room.store.run(ops.rejections))[f"{HERE}.rejected"]
    assert any("no_such" in record.getMessage() for record in caplog.records)
    assert "alert.file" in {event.name for event in await room.events()}


async def test_a_second_rejected_file_of_a_name_does_not_overwrite_the_first(room: Intake) -> None:
    """Nor its reason."""
    await bring_to(room, "done")
    (room.root / f"{HERE}.rejected").write_text(wrong(1))
    await room.store.run(ops.reject_file, f"{HERE}.rejected", "the first reason")
    for seed in (2, 3):
        room.drop(content=wrong(seed))
        await room.look_once()
    texts = {path: (room.root / path).read_text() for path in room.files() if path.endswith(".rejected")}
    names = [f"{HERE}{kept}.rejected" for kept in (".kept-1", ".kept-2", "")]
    assert texts == {name: wrong(seed) for seed, name in enumerate(names, start=1)}
    reasons = await room.store.run(ops.rejections)
    assert set(reasons) == set(names)
    assert reasons[names[0]] == "the first reason"


async def test_a_rejected_file_under_another_name_is_a_new_job(room: Intake) -> None:
    await bring_to(room, "done")
    await room.watching()
    room.drop(content=WRONG)
    await until(lambda: is_rejected(room), "the file to be renamed")
    (room.root / f"{HERE}.rejected").unlink()
    room.drop("knight_2.yaml", OTHER)
    job = await room.taken("knight_2.yaml")
    assert is_other(job.inputs)


async def test_after_done_the_same_bytes_again_are_put_away_and_that_is_said(room: Intake) -> None:
    await bring_to(room, "done")
    before, events = await room.job(), await room.events()
    await room.watching()
    room.drop()
    await until(lambda: is_away(room), "the file to be put away")
    assert room.files() == {DONE}
    assert await room.job() == before
    (event,) = (await room.events())[len(events) :]
    assert (event.name, event.config_name) == ("job.file_repeated", KNIGHT)
    assert "it is done already, so the file is put away" in (event.message or "")


@pytest.mark.parametrize("folder", ["", "calendar", "video"])
async def test_after_done_other_bytes_in_whichever_folder_are_another_take(room: Intake, folder: str) -> None:
    await bring_to(room, "done")
    before = await room.job()
    room.drop(content=OTHER, folder=folder)
    await room.look_once()
    job = await room.job()
    assert (job.id, job.status, is_other(job.inputs)) == (before.id, "pending", True)
    await room.finish(await room.run_job())
    assert DONE in room.files()
    assert not any("processing" in path for path in room.files())


async def test_after_done_the_same_bytes_in_another_folder_are_put_away(room: Intake) -> None:
    await bring_to(room, "done")
    before = await room.job()
    room.drop(folder="video")
    await room.look_once()
    assert (room.files(), await room.job()) == ({DONE}, before)


async def test_after_done_the_name_for_another_kind_is_renamed_with_the_reason(room: Intake) -> None:
    await bring_to(room, "done")
    before = await room.job()
    dropped = room.drop(content=OTHER.replace("T2I", "T2V"), folder="video")
    await room.look_once()
    there = "jobs/processing/video/knight.yaml"
    assert not dropped.exists()
    assert room.files() == {f"{there}.rejected", DONE}
    words = f"the name belongs to {DONE}: give the file another name"
    assert await room.store.run(ops.rejections) == {f"{there}.rejected": words}
    assert (await room.events())[-1].message == f"{there}.rejected: {words}"
    assert await room.job() == before


async def is_away(room: Intake) -> bool:
    return not room.path().exists()


@pytest.mark.parametrize("content", [portrait(), OTHER], ids=["the same bytes", "other bytes"])
@pytest.mark.parametrize("state", ["pending", "processing", "failed"])
async def test_the_same_name_in_another_folder_is_renamed_and_the_first_is_left_alone(
    room: Intake, state: str, content: str
) -> None:
    await bring_to(room, state)
    before = await room.job()
    there = "jobs/processing/video/knight.yaml"
    room.drop(content=content, folder="video")
    await room.look_once()
    assert room.files() == {HERE, f"{there}.rejected"}
    assert (room.root / f"{there}.rejected").read_text() == content
    assert await room.job() == before
    assert HERE in (await room.store.run(ops.rejections))[f"{there}.rejected"]


async def test_two_files_of_one_name_that_come_at_once_are_one_job_and_one_rejected_file(room: Intake) -> None:
    for folder in ("image", "video", "image/deeper"):
        room.drop(content=portrait(seed=len(folder)), folder=folder)
    await room.look_once()
    (job,) = await room.store.run(ops.list_jobs)
    assert job.status == "pending"
    rejected = {path for path in room.files() if path.endswith(".rejected")}
    assert room.files() - rejected == {job.source}
    assert len(rejected) == 2


@pytest.mark.parametrize("is_running", [True, False], ids=["while it runs", "over a restart"])
@pytest.mark.parametrize("state", ["pending", "failed"])
async def test_a_file_that_is_moved_to_another_folder_is_the_same_job(
    room: Intake, state: str, is_running: bool
) -> None:
    await bring_to(room, state)
    before = await room.job()
    if is_running:
        running = await room.watching()
    room.path().rename(room.path(folder="video"))
    if is_running:
        await until(lambda: is_at(room, "jobs/processing/video/knight.yaml"), "the file to be found")
        await until(lambda: has_nothing_missing(running), "the old place to be forgotten")
    else:
        await room.look_once()
    job = await room.job()
    assert (job.id, job.status, job.source) == (before.id, state, "jobs/processing/video/knight.yaml")
    assert (job.digest, await room.submissions()) == (before.digest, 1)
    assert room.files() == {"jobs/processing/video/knight.yaml"}


async def is_at(room: Intake, source: str) -> bool:
    return (await room.job()).source == source


async def has_nothing_missing(running: Running) -> bool:
    return not running.monitor._files.missing


async def test_a_file_that_is_moved_and_changed_while_it_waits_is_the_same_job_with_what_it_says_now(
    room: Intake,
) -> None:
    await bring_to(room, "pending")
    await room.watching()
    before = await room.job()
    room.path().unlink()
    room.drop(content=OTHER, folder="video")
    job = await room.changed(before)
    assert (job.id, job.status, job.source) == (before.id, "pending", "jobs/processing/video/knight.yaml")


async def test_a_file_that_is_moved_while_its_job_runs_goes_to_the_finished_ones_at_the_end(room: Intake) -> None:
    await room.watching()
    room.drop()
    await room.taken()
    leased = await room.run_job()
    room.path().rename(room.path(folder="video"))
    await until(lambda: is_at(room, "jobs/processing/video/knight.yaml"), "the file to be found")
    await room.finish(leased)

    async def is_put_away() -> bool:
        return room.files() == {DONE}

    await until(is_put_away, "the file to be put away", timeout=7)


async def test_two_monitors_take_each_file_once_and_without_an_error(
    room: Intake, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = room.start(), room.start(room.other_store())
    names = [f"take_{number}.yaml" for number in range(30)]
    for number, name in enumerate(names):
        room.drop(name, portrait(seed=number) if number % 5 else "job_type: nonsense\n")
    await until(lambda: are_taken(room, len(names)), "all to be taken in")
    for running in (first, second):
        await room.settled(running)
    for number, name in enumerate(names):
        told = [event.name for event in await room.events() if event.config_name == name]
        assert told == ["job.submitted" if number % 5 else "job.failed"]
    assert complaints(caplog) == []


async def are_taken(room: Intake, count: int) -> bool:
    return len(await room.store.run(ops.list_jobs, limit=100_000)) == count


async def test_two_monitors_see_a_change_and_a_deletion_once(room: Intake, caplog: pytest.LogCaptureFixture) -> None:
    for running in [room.start(), room.start(room.other_store())]:
        await room.settled(running)
    room.drop()
    first = await room.taken()
    room.drop(content=OTHER)
    await room.changed(first)
    room.path().unlink()
    await room.taken(status="failed")
    await asyncio.sleep(0.3)
    assert [event.name for event in await room.events()] == ["job.submitted", "job.submitted", "job.cancelled"]
    assert complaints(caplog) == []


async def test_two_monitors_reject_a_file_once(room: Intake, caplog: pytest.LogCaptureFixture) -> None:
    await bring_to(room, "done")
    monitors = [room.start(), room.start(room.other_store())]
    for running in monitors:
        await room.settled(running)
    for number in range(5):
        room.drop(content=wrong(10 + number))
        await until(lambda: is_away(room), "the file to be renamed")
        for running in monitors:
            await room.settled(running)
        assert room.files() == {DONE, f"{HERE}.rejected"}
        (room.root / f"{HERE}.rejected").unlink()
    assert complaints(caplog) == []


async def test_two_monitors_put_a_file_away_without_an_error(room: Intake, caplog: pytest.LogCaptureFixture) -> None:
    await bring_to(room, "done")
    for running in [room.start(), room.start(room.other_store())]:
        await room.settled(running)
    for _ in range(3):
        room.drop()
        await until(lambda: is_away(room), "the file to be put away")
    assert room.files() == {DONE}
    assert complaints(caplog) == []
