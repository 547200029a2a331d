"""On `done` the file goes to the finished ones: once, whole, and never over something else."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
from pathlib import Path
from typing import Any

import pytest

from comfyui_agent.engine.intake import put_away_files as putting_away_module
from comfyui_agent.store import operations as ops
from comfyui_agent.store.records import Leased
from support.intake import KNIGHT, Intake, complaints, portrait

HERE = "jobs/processing/image/knight.yaml"
DONE = "jobs/finished/image/knight.yaml"


@pytest.fixture
async def done(room: Intake) -> Leased:
    """The job of a file that lies there, done and not yet put away."""
    room.drop()
    await room.look_once()
    leased = await room.run_job()
    await room.store.run(ops.complete_job, leased.lease, ["jobs/finished/image/knight.png"], 1.0)
    return leased


async def test_the_file_is_moved_to_the_folder_of_its_kind(room: Intake, done: Leased) -> None:
    await room.put_away(done)
    assert room.files() == {DONE}
    assert (room.root / DONE).read_text() == portrait()
    assert (await room.job()).resubmit is None


async def test_the_job_says_where_its_file_is_and_knows_it_when_it_is_dropped_again(room: Intake, done: Leased) -> None:
    assert (await room.job()).source == HERE
    await room.put_away(done)
    assert (await room.job()).source == DONE
    room.drop()
    await room.look_once()
    assert room.files() == {DONE}, "the same bytes are put away"
    room.drop(content=portrait(seed=2))
    await room.look_once()
    job = await room.job()
    assert (job.source, job.status, job.take) == (HERE, "pending", 2), "another file is another take"


async def test_a_failed_one_stays(room: Intake) -> None:
    room.drop()
    await room.look_once()
    await room.fail(await room.run_job())
    await room.look_once()
    assert room.files() == {HERE}


async def test_a_monitor_puts_away_what_an_agent_that_was_killed_left_there(room: Intake, done: Leased) -> None:
    assert room.files() == {HERE}
    await room.look_once()
    assert room.files() == {DONE}
    assert (await room.job()).id == done.lease.job_id


async def test_the_kind_decides_not_the_folder_that_it_lay_in(room: Intake) -> None:
    room.drop("film.yaml", "job_type: T2V\nworkflow_id: wf_text_to_video\ninputs: {prompt: x, seed: 1}\n", "image/deep")
    await room.look_once()
    await room.finish(await room.run_job("film.yaml"))
    assert room.files() == {"jobs/finished/video/film.yaml"}


async def test_a_folder_that_is_not_there_is_made(room: Intake, done: Leased) -> None:
    (room.finished / "image").rmdir()
    await room.put_away(done)
    assert room.files() == {DONE}


async def test_twice_and_by_several_at_once_does_no_harm(
    room: Intake, done: Leased, caplog: pytest.LogCaptureFixture
) -> None:
    await asyncio.gather(*(room.put_away(done) for _ in range(8)))
    await room.put_away(done)
    assert room.files() == {DONE}
    assert (room.root / DONE).read_text() == portrait()
    assert complaints(caplog) == []
    assert (await room.job()).resubmit is None


async def test_another_file_that_is_there_is_kept_under_another_name(room: Intake, done: Leased) -> None:
    (room.root / DONE).write_text("somebody else's")
    await room.put_away(done)
    assert room.files() == {DONE, "jobs/finished/image/knight.kept-1.yaml"}
    assert (room.root / DONE).read_text() == portrait()
    assert (room.finished / "image" / "knight.kept-1.yaml").read_text() == "somebody else's"


async def test_files_that_were_kept_before_are_kept(room: Intake, done: Leased) -> None:
    (room.finished / "image" / "knight.kept-1.yaml").write_text("the first")
    (room.root / DONE).write_text("the second")
    await room.put_away(done)
    assert (room.finished / "image" / "knight.kept-1.yaml").read_text() == "the first"
    assert (room.finished / "image" / "knight.kept-2.yaml").read_text() == "the second"


async def test_of_two_that_find_another_file_there_both_leave_the_job_file_in_its_place(
    room: Intake, done: Leased, monkeypatch: pytest.MonkeyPatch
) -> None:
    (room.root / DONE).write_text("somebody else's")
    real = putting_away_module.keep_aside
    calls: list[Path] = []

    def keep_aside(path: Path) -> Path:
        """The other one is through with it all between this one's look and its move."""
        calls.append(path)
        if len(calls) == 1:
            putting_away_module._move(room.root / HERE, done.digest, path)
        return real(path)

    monkeypatch.setattr(putting_away_module, "keep_aside", keep_aside)
    await room.put_away(done)
    assert len(calls) == 2
    assert (room.root / DONE).read_text() == portrait()


async def test_the_same_file_that_is_there_already_is_no_second_one(room: Intake, done: Leased) -> None:
    (room.root / DONE).write_text(portrait())
    await room.put_away(done)
    assert room.files() == {DONE}


async def test_a_file_that_was_changed_stays_and_is_noted(
    room: Intake, done: Leased, caplog: pytest.LogCaptureFixture
) -> None:
    room.drop(content=portrait(seed=2))
    with caplog.at_level(logging.WARNING):
        await room.put_away(done)
    assert room.files() == {HERE}
    assert (room.root / HERE).read_text() == portrait(seed=2)
    assert (await room.job()).resubmit == 1
    assert HERE in caplog.text
    assert complaints(caplog) == []


async def test_a_file_that_is_replaced_between_the_look_and_the_move_goes_back(
    room: Intake, done: Leased, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = putting_away_module._rename

    def rename(path: Path, target: Path) -> None:
        room.drop(content=portrait(seed=2))
        real(path, target)

    monkeypatch.setattr(putting_away_module, "_rename", rename)
    await room.put_away(done)
    assert room.files() == {HERE}
    assert (room.root / HERE).read_text() == portrait(seed=2)
    assert (await room.job()).resubmit == 1


async def test_a_newer_file_that_came_meanwhile_is_not_overwritten_by_the_one_that_goes_back(
    room: Intake, done: Leased, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = putting_away_module._rename

    def rename(path: Path, target: Path) -> None:
        room.drop(content=portrait(seed=2))
        real(path, target)
        room.drop(content=portrait(seed=3))

    monkeypatch.setattr(putting_away_module, "_rename", rename)
    await room.put_away(done)
    assert (room.root / HERE).read_text() == portrait(seed=3)
    assert (await room.job()).resubmit == 1


async def test_a_file_that_is_gone_is_no_trouble(room: Intake, done: Leased, caplog: pytest.LogCaptureFixture) -> None:
    room.path().unlink()
    await room.put_away(done)
    assert room.files() == set()
    assert (await room.job()).resubmit is None
    assert complaints(caplog) == []


async def test_a_file_that_became_a_link_is_not_followed(room: Intake, done: Leased, tmp_path: Path) -> None:
    (tmp_path / "same.yaml").write_text(portrait())
    room.path().unlink()
    room.path().symlink_to(tmp_path / "same.yaml")
    await room.put_away(done)
    assert (tmp_path / "same.yaml").read_text() == portrait()
    assert not (room.root / DONE).exists()


def across_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    real = Path.replace

    def replace(self: Path, target: Any) -> Path:
        if self.name == KNIGHT and Path(target).name == KNIGHT:
            raise OSError(errno.EXDEV, "Invalid cross-device link")
        return real(self, target)

    monkeypatch.setattr(Path, "replace", replace)


async def test_a_file_on_another_drive_is_copied_and_removed(
    room: Intake, done: Leased, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    across_devices(monkeypatch)
    await room.put_away(done)
    assert room.files() == {DONE}
    assert (room.root / DONE).read_text() == portrait()
    assert complaints(caplog) == []


async def test_a_file_on_another_drive_that_was_changed_stays(
    room: Intake, done: Leased, monkeypatch: pytest.MonkeyPatch
) -> None:
    across_devices(monkeypatch)
    room.drop(content=portrait(seed=2))
    await room.put_away(done)
    assert room.files() == {HERE}
    assert (room.root / HERE).read_text() == portrait(seed=2)


async def test_a_file_that_cannot_be_moved_is_reported_and_the_job_is_done(
    room: Intake, done: Leased, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def replace(self: Path, target: Any) -> Path:
        raise PermissionError(errno.EACCES, "Permission denied", str(target))

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", replace)
        await room.put_away(done)
    assert room.files() == {HERE}
    (words,) = complaints(caplog)
    assert HERE in words
    assert "Permission denied" in words
    assert ((await room.job()).status, (await room.job()).resubmit) == ("done", None)
    await room.look_once()
    assert room.files() == {DONE}, "the next monitor tries again"


async def test_a_finished_folder_that_leads_out_of_the_workspace_gets_nothing(
    room: Intake, done: Leased, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "outside").mkdir()
    (room.finished / "image").rmdir()
    (room.finished / "image").symlink_to(tmp_path / "outside")
    await room.put_away(done)
    assert os.listdir(tmp_path / "outside") == []
    assert room.path().exists()
    assert "leads out of the workspace" in complaints(caplog)[0]
