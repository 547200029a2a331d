"""When a file counts as whole: renamed into place, or left alone for 300 ms and readable. Then within a second."""

from __future__ import annotations

import asyncio
import os
import statistics
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, TextIO

import pytest

from comfyui_agent.domain.job_files import ReadFile
from comfyui_agent.engine.intake import folder_watch
from comfyui_agent.engine.intake import monitor as monitor_module
from comfyui_agent.engine.intake.admission import Admission
from comfyui_agent.store import operations as ops
from support.intake import KNIGHT, OLD, Intake, intake, portrait, until

PIECES = ["job_type: T2I\n", "workflow_id: wf_realistic_portrait\n", "inputs:\n", "  prompt: x\n", "  seed: 7\n"]
LAST = "  steps: 3\n"
HALF = "job_type: T2I\nworkflow_id: wf_text_to_video\ninputs:\n  prompt: half\n  seed: 1\n"
"""Right as far as it goes; more may follow."""


async def test_a_file_that_was_moved_into_place_is_taken_at_once(room: Intake, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was whole when it came, and need not be left alone for a while, however long that is."""
    monkeypatch.setattr(folder_watch, "SETTLED_SECONDS", 6.0)
    await room.watching()
    room.drop()
    job = await room.taken(timeout=4)
    assert (job.status, job.source) == ("pending", "jobs/processing/image/knight.yaml")
    room.drop(content=portrait(seed=2))
    again = await room.changed(job, timeout=4)
    assert (again.id, '"5.seed":2' in (again.inputs or "")) == (job.id, True)


@pytest.mark.timing
async def test_a_file_is_left_alone_until_it_has_not_changed_for_a_while(room: Intake) -> None:
    await room.watching()
    began = time.monotonic()
    room.path().write_text(portrait())
    await room.taken()
    assert time.monotonic() - began > 0.28


async def test_a_file_that_is_written_with_short_pauses_is_taken_when_it_is_whole(room: Intake) -> None:
    await room.watching()
    with room.path().open("w") as file:
        for piece in [*PIECES, LAST]:
            write(file, piece)
            await asyncio.sleep(0.12)
            assert await room.store.run(ops.find_job_by_name, KNIGHT) is None
    job = await room.taken()
    assert (job.status, await room.submissions()) == ("pending", 1)
    assert '"5.steps":3' in (job.inputs or "")


async def test_half_a_file_that_is_wrong_as_it_stands_is_not_taken_while_it_is_written(
    room: Intake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(monitor_module, "BAD_SECONDS", 3.0)
    await room.watching()
    with room.path().open("w") as file:
        for piece in PIECES[:3]:
            write(file, piece)
            await asyncio.sleep(0.5)
            assert await room.store.run(ops.find_job_by_name, KNIGHT) is None
        write(file, "".join(PIECES[3:]) + LAST)
    job = await room.taken()
    assert (job.status, await room.submissions()) == ("pending", 1)
    assert [event.name for event in await room.events()] == ["job.submitted"]


@pytest.mark.timing
async def test_a_file_that_is_never_finished_is_a_bad_one(room: Intake) -> None:
    await room.watching()
    began = time.monotonic()
    room.path().write_text("".join(PIECES))
    job = await room.taken(status="failed")
    assert 0.9 < time.monotonic() - began < 4
    assert "steps" in (job.error_trace or "")


async def test_half_a_file_that_could_be_a_whole_one_is_taken_and_then_updated(room: Intake) -> None:
    await room.watching()
    path = room.path(folder="video")
    with path.open("w") as file:
        write(file, HALF)
        half = await room.taken()
        assert half.status == "pending"
        write(file, "  frames: 3\npriority: 7\n")
    job = await room.changed(half)
    assert (job.id, job.status, job.priority) == (half.id, "pending", 7)
    assert '"4.batch_size":3' in (job.inputs or "")
    assert len(await room.store.run(ops.list_jobs)) == 1


async def test_a_writer_that_goes_on_forever_is_waited_for(room: Intake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder_watch, "SETTLED_SECONDS", 1.0)
    await room.watching()
    with room.path().open("w") as file:
        write(file, portrait())
        for number in range(15):
            await asyncio.sleep(0.1)
            write(file, f"# {number}\n")
        assert await room.store.run(ops.find_job_by_name, KNIGHT) is None
    await room.taken()


async def test_a_file_from_the_future_is_taken(room: Intake) -> None:
    await room.watching()
    path = room.path()
    path.write_text(portrait())
    moment = time.time() + 3600
    os.utime(path, (moment, moment))
    assert (await room.taken()).status == "pending"


async def test_a_file_from_the_beginning_of_time_is_taken(room: Intake) -> None:
    await room.watching()
    path = room.root / "old.yaml"
    path.write_text(portrait())
    os.utime(path, (0, 0))
    path.rename(room.path())
    assert (await room.taken()).status == "pending"


async def test_a_file_that_is_saved_as_editors_save_is_one_job(room: Intake) -> None:
    """Written beside it, the old one renamed to a copy, the new one renamed into place, the copy removed."""
    await room.watching()
    room.drop()
    first = await room.taken()
    for seed in (2, 3):
        swap, copy = room.path(f".{KNIGHT}.swp"), room.path(f"{KNIGHT}~")
        swap.write_text(portrait(seed=seed))
        room.path().rename(copy)
        swap.rename(room.path())
        copy.unlink()
    job = await room.changed(first)
    await until(lambda: is_seed(room, 3), "the last version to be taken")
    assert (job.id, len(await room.store.run(ops.list_jobs))) == (first.id, 1)
    assert "job.cancelled" not in {event.name for event in await room.events()}


async def is_seed(room: Intake, seed: int) -> bool:
    return f'"5.seed":{seed}' in ((await room.job()).inputs or "")


@pytest.mark.timing
async def test_files_are_picked_up_within_a_second(room: Intake) -> None:
    """Of being whole: moved into place, or 300 ms after the last byte."""
    await room.watching()
    waits = []
    for number in range(7):
        began = time.monotonic()
        if number % 2:
            room.drop(f"{number}.yaml")
        else:
            room.path(f"{number}.yaml").write_text(portrait())
            began += 0.3
        await room.taken(f"{number}.yaml")
        waits.append(time.monotonic() - began)
    assert statistics.median(waits) < 1.0, waits


async def test_a_file_that_changes_while_it_is_read_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was read is what the file said when it was seen, or nothing; nobody needs to tell of the change."""
    real = Admission.read
    reads: list[Path] = []

    async def is_silent(*_: object, **__: object) -> AsyncIterator[set[object]]:
        await asyncio.Event().wait()
        yield set()

    async with intake(tmp_path / "workspace", E3_RESCAN_SECONDS="3600") as room:

        def read(self: Admission, path: Path, *arguments: Any, **options: Any) -> ReadFile:
            reads.append(path)
            if len(reads) == 1:
                room.drop(content=portrait(seed=2))
            return real(self, path, *arguments, **options)

        monkeypatch.setattr("watchfiles.awatch", is_silent)
        monkeypatch.setattr(Admission, "read", read)
        room.drop()
        room.start()
        job = await room.taken(timeout=5)
        assert '"5.seed":2' in (job.inputs or "")
        assert (len(reads), await room.submissions()) == (2, 1)


async def test_what_is_dropped_while_the_folder_is_looked_through_is_not_overlooked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look at a large folder takes a while, and what comes behind its back is known from the watch alone."""
    async with intake(tmp_path / "workspace", E3_RESCAN_SECONDS="3600") as room:
        real, looks = monitor_module.look, []

        def look(folder: Path) -> object:
            sight = real(folder)
            looks.append(sight)
            if len(looks) == 1:
                room.drop()
                time.sleep(0.5)
            return sight

        monkeypatch.setattr(monitor_module, "look", look)
        room.start()
        await room.taken(timeout=4)


def write(file: TextIO, text: str) -> None:
    """A piece, as others see it at once."""
    file.write(text)
    file.flush()


def test_what_is_dropped_in_these_tests_is_old_enough_to_be_whole() -> None:
    assert OLD > monitor_module.BAD_SECONDS > monitor_module.SETTLED_SECONDS == 0.3
