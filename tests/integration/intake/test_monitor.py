"""The monitor: every file that is dropped becomes one job, whatever else lies in the folder and whatever goes wrong."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from comfyui_agent.config.loader import load_workspace
from comfyui_agent.domain.jobs import Job
from comfyui_agent.engine.intake import folder_watch
from comfyui_agent.engine.intake import monitor as monitor_module
from comfyui_agent.engine.intake.folder_scan import make_folders
from comfyui_agent.engine.intake.monitor import Monitor
from comfyui_agent.store import operations as ops
from comfyui_agent.store.errors import StoreError
from support.agents import locked_database
from support.intake import KNIGHT, OLD, PATIENCE, Intake, complaints, intake, portrait, until
from support.stores import intercept

WATCHED = pytest.mark.parametrize("is_running", [True, False], ids=["while it runs", "before it starts"])


async def all_jobs(room: Intake) -> list[Job]:
    return sorted(await room.store.run(ops.list_jobs, limit=100_000), key=lambda job: job.id)


async def names(room: Intake) -> list[str]:
    return [job.config_name for job in await all_jobs(room)]


async def there_are(room: Intake, count: int) -> bool:
    return sum((await room.store.run(ops.count_jobs)).__dict__.values()) >= count


# What counts as a job file.


JOB_FILES = [
    ("image", "plain.yaml"),
    ("image", "short.yml"),
    ("video", "LOUD.YAML"),
    ("3d", "Mixed.YmL"),
    ("image", "two.dots.yaml"),
    ("image", "with space and 'quotes\".yaml"),
    ("image", "Ünïcödé 日本語 🎨.yaml"),
    ("image", "e\u0301.yaml"),
    ("image/one/two/three/four", "deep.yaml"),
    ("of my own", "elsewhere.yaml"),
    ("", "at the top.yaml"),
    ("image", "-rf.yaml"),
    ("image", "%s %(name)s {0}.yaml"),
    ("image", "x" * 250 + ".yaml"),
    ("folder.yaml", "in a folder like a file.yaml"),
]


@WATCHED
async def test_a_file_that_ends_in_yaml_is_a_job_wherever_it_lies(tmp_path: Path, is_running: bool) -> None:
    for number, (folder, name) in enumerate(JOB_FILES):
        async with intake(tmp_path / str(number)) as room:
            if is_running:
                (room.processing / folder).mkdir(parents=True, exist_ok=True)
                await room.watching()
            room.drop(name, folder=folder)
            if not is_running:
                room.start()
            job = await room.taken(name)
            assert (job.status, job.error_trace) == ("pending", None), name
            assert job.source == (Path("jobs/processing") / folder / name).as_posix()
            assert await names(room) == [name]


IGNORED = [
    ".hidden.yaml",
    ".knight.yaml.swp",
    "knight.yaml~",
    "#knight.yaml#",
    ".#knight.yaml",
    "knight.yaml.tmp",
    "knight.yaml.part",
    "knight.yaml.crdownload",
    "knight.yaml.rejected",
    "knight.txt",
    "knight.json",
    "yaml",
    "4913",
    ".yaml",
]


@WATCHED
async def test_hidden_files_and_those_that_editors_leave_are_none(room: Intake, is_running: bool) -> None:
    if is_running:
        await room.watching()
    for name in IGNORED:
        room.drop(name)
    room.drop("last.yaml")
    if not is_running:
        room.start()
    await room.taken("last.yaml")
    await asyncio.sleep(0.3)
    assert await names(room) == ["last.yaml"]
    assert all((room.processing / "image" / name).exists() for name in IGNORED)


@WATCHED
async def test_files_in_hidden_folders_are_none(room: Intake, is_running: bool) -> None:
    """Folders of deleted files and of synchronising programs hold old versions."""
    for folder in (".Trash-1000/files", "image/.stversions"):
        (room.processing / folder).mkdir(parents=True)
    if is_running:
        await room.watching()
    for folder in (".Trash-1000/files", "image/.stversions"):
        room.drop(f"{len(folder)}.yaml", folder=folder)
    room.drop("last.yaml")
    if not is_running:
        room.start()
    await room.taken("last.yaml")
    await asyncio.sleep(0.3)
    assert await names(room) == ["last.yaml"]


@WATCHED
async def test_a_link_to_a_folder_is_not_followed_and_reported(
    room: Intake, tmp_path: Path, is_running: bool, caplog: pytest.LogCaptureFixture
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (room.processing / "linked").symlink_to(other)
    if is_running:
        await room.watching()
    shutil.copyfile(room.drop("last.yaml"), other / "a.yaml")
    if not is_running:
        room.start()
    await room.taken("last.yaml")
    await asyncio.sleep(0.6)
    assert await names(room) == ["last.yaml"]
    assert any("linked" in words and "link to a folder" in words for words in complaints(caplog))


async def test_a_link_to_a_file_is_a_bad_file_and_its_bytes_are_not_read(room: Intake, tmp_path: Path) -> None:
    secret = tmp_path / "secret.yaml"
    secret.write_text("password: hunter2\n")
    await room.watching()
    room.path().symlink_to(secret)
    job = await room.taken(status="failed")
    assert "it is a link" in (job.error_trace or "")
    assert "hunter2" not in (job.error_trace or "")
    room.drop(content=portrait())
    assert (await room.taken(status="pending")).id == job.id


async def test_a_pipe_does_not_hold_anything_up(room: Intake) -> None:
    os.mkfifo(room.path("pipe.yaml"))
    room.drop()
    room.start()
    await room.taken()
    assert "not a file" in ((await room.taken("pipe.yaml", status="failed")).error_trace or "")


async def test_a_file_that_is_too_large_is_a_bad_file_and_others_go_on(room: Intake) -> None:
    await room.watching()
    room.drop("large.yaml", portrait() + "# " + "x" * 1024 * 1024)
    room.drop("next.yaml")
    await room.taken("next.yaml", status="pending")
    assert "at most 1 MB" in ((await room.taken("large.yaml", status="failed")).error_trace or "")
    room.drop("large.yaml")
    await room.taken("large.yaml", status="pending")


@WATCHED
async def test_a_name_that_cannot_be_written_down_is_reported_and_others_go_on(
    room: Intake, is_running: bool, caplog: pytest.LogCaptureFixture
) -> None:
    folder = os.fsencode(room.processing / "image")
    (room.root / "right.txt").write_text(portrait())
    if is_running:
        await room.watching()
    for name in (b"line\nfeed.yaml", b"not utf-8 \xff.yaml"):
        shutil.copyfile(os.fsencode(room.root / "right.txt"), folder + b"/" + name)
    room.drop("last.yaml")
    running = room.start()
    await room.settled(running)
    await room.taken("last.yaml")
    assert await names(room) == ["last.yaml"]
    assert sum("rename it" in words for words in complaints(caplog)) >= 2


# Bad files.

BAD = {
    "a workflow that does not exist": (portrait().replace("realistic", "realistc"), (":2:", "workflow_id", "portrait")),
    "a type that does not exist": (portrait().replace("T2I", "T2X"), (":1:", "job_type", "T2I")),
    "an input that is missing": (portrait().replace("  seed: 1\n", ""), (":3:", "inputs.seed", "seed")),
    "an input that is not there": (portrait().replace("steps", "stepps"), (":6:", "inputs.stepps", "steps")),
    "a value that does not fit": (portrait(seed="many"), (":5:", "inputs.seed", "whole number")),  # type: ignore[arg-type]
    "a key that is not known": (portrait(prioritty=1), (":7:", "prioritty", "priority")),
    "a priority that is none": (portrait(priority="high"), (":7:", "priority", "whole number")),
    "a negative retry limit": (portrait(retry_limit=-1), (":7:", "retry_limit", "from 0 to 1000")),
    "a timeout of nothing": (portrait(timeout_seconds=0), (":7:", "timeout_seconds", "above 0")),
    "a result outside": (
        portrait(outputs='{file_path: "../x.png"}'),
        (":7:", "outputs.file_path", "out of the workspace"),
    ),
    "a result in the queue": (
        portrait(outputs='{file_path: "jobs/processing/x.png"}'),
        (":7:", "outputs.file_path", "jobs/finished"),
    ),
    "a job that is too large": (
        portrait(metadata=f'{{note: "{"x" * 70_000}"}}'),
        (":7:", "metadata: inputs and metadata take 69 KB, and a job may have 64 KB"),
    ),
    "a node that is not there": (portrait(outputs="{node: 99}"), (":7:", "outputs.node", "99")),
    "a key that is there twice": (portrait(priority=1) + "priority: 2\n", (":8:", "priority", "twice")),
    "no yaml": (portrait() + "outputs: {\n", (":", "not YAML")),
    "a tab": (portrait() + "outputs:\n\tfile_path: x\n", (":8:", "not YAML")),
    "nothing at all": (" \n", ("empty", "job_type")),
    "a list": ("- job_type: T2I\n", ("not a mapping", "job_type: T2I")),
    "bytes": ("\x00\x01".encode("utf-16"), ("UTF-8",)),
}


@pytest.mark.parametrize("case", BAD)
async def test_a_bad_file_is_one_failed_row_that_names_line_key_and_remedy(room: Intake, case: str) -> None:
    content, parts = BAD[case]
    running = room.start()
    room.drop(content=content)
    job = await room.taken(status="failed")
    assert (job.failure_class, job.run_count, job.retries_attempted) == ("invalid", 0, 0)
    trace = job.error_trace or ""
    assert trace.startswith("invalid: jobs/processing/image/knight.yaml"), trace
    for part in parts:
        assert part in trace
    await room.settled(running)
    assert [event.name for event in await room.events()] == ["job.failed"]
    assert room.files() == {"jobs/processing/image/knight.yaml"}, "a failed one stays"


async def test_several_problems_of_a_file_are_all_reported(room: Intake) -> None:
    room.drop(content=portrait(priority="high", retry_limit="x"))
    await room.look_once()
    trace = (await room.job()).error_trace or ""
    assert "priority" in trace
    assert "retry_limit" in trace


async def test_other_files_go_on_and_bad_ones_are_submitted_anew_when_they_are_put_right(room: Intake) -> None:
    contents = [content for content, _ in BAD.values()]
    for number, content in enumerate(contents):
        room.drop(f"bad_{number}.yaml", content)
        room.drop(f"good_{number}.yaml")
    running = await room.watching()
    counts = await room.store.run(ops.count_jobs)
    assert (counts.failed, counts.pending) == (len(contents), len(contents))
    for number in range(len(contents)):
        room.drop(f"bad_{number}.yaml")
        await room.taken(f"bad_{number}.yaml", status="pending")
    await room.settled(running)
    assert (await room.store.run(ops.count_jobs)).failed == 0


async def test_a_bad_file_is_reported_once_over_restarts(room: Intake) -> None:
    room.drop(content="nonsense")
    for _ in range(3):
        await room.look_once()
    assert [event.name for event in await room.events()] == ["job.failed"]


LONG = "x" * 300


@pytest.mark.parametrize(
    "content",
    [
        portrait(outputs=f'{{file_path: "jobs/finished/image/{LONG}.png"}}'),
        portrait(outputs=f'{{file_path: "{LONG}/x.png"}}'),
        f"job_type: I2I\nworkflow_id: wf_image_to_image\ninputs: {{image: {LONG}.png, prompt: x, seed: 1}}\n",
        f"job_type: I2I\nworkflow_id: wf_image_to_image\ninputs: {{image: {LONG}/x.png, prompt: x, seed: 1}}\n",
    ],
    ids=["result", "folder of the result", "picture", "folder of the picture"],
)
async def test_a_name_that_is_too_long_does_not_keep_other_files_out(room: Intake, content: str) -> None:
    await room.watching()
    room.drop("a.yaml", content)
    room.drop("b.yaml")
    assert (await room.taken("b.yaml", timeout=2.5)).status == "pending"
    await room.taken("a.yaml", timeout=4)


# Order and numbers.


async def test_ids_follow_the_natural_order_of_the_names(room: Intake) -> None:
    dropped = ["take_10.yaml", "take_9.yaml", "take_1.yaml", "b.yaml", "take_2.yaml", "take_100.yaml", "a.yaml"]
    for number, name in enumerate(dropped):
        room.drop(name, folder=("image", "video", "3d")[number % 3])
    await room.look_once()
    expected = ["a.yaml", "b.yaml", *(f"take_{number}.yaml" for number in (1, 2, 9, 10, 100))]
    assert await names(room) == expected


@pytest.mark.slow
@WATCHED
async def test_two_thousand_files_at_once_are_two_thousand_jobs_in_order(room: Intake, is_running: bool) -> None:
    count = 2000
    staging = room.root / "staging"
    staging.mkdir()
    moment = time.time() - OLD
    for number in range(count):
        path = staging / f"take_{number}.yaml"
        path.write_text(portrait(seed=number))
        os.utime(path, (moment, moment))
    if is_running:
        await room.watching()
    for number in range(count):
        (staging / f"take_{number}.yaml").rename(room.path(f"take_{number}.yaml"))
    running = room.start()
    began = time.monotonic()
    await until(lambda: there_are(room, count), "all to be taken in", timeout=40)
    assert time.monotonic() - began < 20
    await room.settled(running)
    jobs = await all_jobs(room)
    assert sorted(job.config_name for job in jobs) == sorted(f"take_{number}.yaml" for number in range(count))
    if not is_running:
        assert [job.config_name for job in jobs] == [f"take_{number}.yaml" for number in range(count)]
    assert {job.status.value for job in jobs} == {"pending"}
    assert len(await room.events()) == count


async def test_a_restart_takes_nothing_in_again(room: Intake) -> None:
    for number in range(50):
        room.drop(f"{number}.yaml")
    await room.look_once()
    before, events = await all_jobs(room), await room.events()
    for _ in range(2):
        await room.look_once()
    assert (await all_jobs(room), await room.events()) == (before, events)


async def test_until_idle_takes_in_what_is_there_and_ends(tmp_path: Path) -> None:
    async with intake(tmp_path / "workspace", E3_RESCAN_SECONDS="0.3") as room:
        for number in range(300):
            room.drop(f"{number}.yaml")
        room.path("fresh.yaml").write_text(portrait())
        monitor = Monitor(room.store, room.workspace)
        await asyncio.wait_for(monitor.run(until_idle=True), PATIENCE)
        assert monitor.taken_in == 301
        assert len(await all_jobs(room)) == 301


async def test_until_idle_ends_as_soon_as_all_is_taken_in(tmp_path: Path) -> None:
    async with intake(tmp_path / "workspace", E3_RESCAN_SECONDS="3600") as room:
        room.drop()
        await asyncio.wait_for(Monitor(room.store, room.workspace).run(until_idle=True), 3)


# Folders.


async def test_a_folder_with_files_that_is_moved_into_place_is_picked_up_within_a_second(room: Intake) -> None:
    await room.watching()
    folder = room.root / "night"
    (folder / "deeper").mkdir(parents=True)
    for path in (folder / "a.yaml", folder / "deeper" / "b.yaml"):
        path.write_text(portrait())
        os.utime(path, (1, 1))
    folder.rename(room.processing / "image" / "night")
    for name in ("a.yaml", "b.yaml"):
        await room.taken(name, timeout=2.5)


async def test_a_folder_with_files_that_is_moved_into_place_is_found_by_the_next_look(tmp_path: Path) -> None:
    async with intake(tmp_path / "workspace", E3_RESCAN_SECONDS="0.3") as room:
        await room.watching()
        folder = room.root / "night"
        (folder / "deeper").mkdir(parents=True)
        for number, place in enumerate((folder, folder / "deeper")):
            (place / f"{number}.yaml").write_text(portrait())
        folder.rename(room.processing / "image" / "night")
        assert (await room.taken("0.yaml")).source == "jobs/processing/image/night/0.yaml"
        assert (await room.taken("1.yaml")).source == "jobs/processing/image/night/deeper/1.yaml"
        (room.processing / "image" / "night").rename(room.processing / "video" / "day")
        await until(lambda: is_moved(room), "the new places to be known")
        assert [job.status.value for job in await all_jobs(room)] == ["pending"] * 2


async def is_moved(room: Intake) -> bool:
    return all((job.source or "").startswith("jobs/processing/video/day/") for job in await all_jobs(room))


async def test_a_folder_that_is_made_while_it_runs_is_watched(tmp_path: Path) -> None:
    async with intake(tmp_path / "workspace", E3_RESCAN_SECONDS="3600") as room:
        await room.watching()
        (room.processing / "image" / "new").mkdir()
        await asyncio.sleep(0.5)
        room.drop("a.yaml", folder="image/new")
        await room.taken("a.yaml")


@pytest.mark.parametrize("where", ["../drop", "jobs/linked", "jobs//processing/./"])
async def test_the_folder_may_lie_elsewhere_or_be_a_link(tmp_path: Path, where: str) -> None:
    root = tmp_path / "workspace"
    (tmp_path / "drop").mkdir()
    (root / "jobs").mkdir(parents=True)
    (root / "jobs" / "linked").symlink_to(tmp_path / "drop")
    async with intake(root, E3_PATHS__JOBS_PROCESSING=where) as room:
        make_folders(room.workspace)
        room.drop("before.yaml")
        running = await room.watching()
        await room.taken("before.yaml")
        room.drop("after.yaml")
        job = await room.taken("after.yaml")
        assert (room.root / (job.source or "")).samefile(room.path("after.yaml"))
        await room.settled(running)
        await running.stop()
        await room.look_once()
        assert [each.status.value for each in await all_jobs(room)] == ["pending"] * 2
        assert await room.submissions("after.yaml") == 1
        room.path("after.yaml").unlink()
        await room.look_once()
        assert (await room.job("after.yaml")).failure_class == "cancelled"


async def test_a_workspace_that_is_named_by_a_relative_path_or_a_link_knows_its_files_again(
    room: Intake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    room.drop()
    await room.look_once()
    before = await room.job()
    (tmp_path / "link").symlink_to(room.root)
    monkeypatch.chdir(tmp_path)
    for number, name in enumerate(("workspace", "link", "./link/../link")):
        room.workspace = load_workspace(Path(name), {})
        running = await room.watching()
        room.drop(f"{number}.yaml")
        await room.taken(f"{number}.yaml", status="pending")
        await room.settled(running)
        await running.stop()
        assert await room.job() == before
    assert {job.status.value for job in await all_jobs(room)} == {"pending"}


async def test_a_job_goes_by_its_type_not_by_the_folder_it_lies_in(room: Intake) -> None:
    room.drop(folder="video")
    await room.look_once()
    job = await room.job()
    assert (job.job_type, job.source) == ("T2I", "jobs/processing/video/knight.yaml")
    await room.finish(await room.run_job())
    assert room.files() == {"jobs/finished/image/knight.yaml"}


# When something does not work.


async def is_silent(*_: object, **__: object) -> AsyncIterator[set[object]]:
    await asyncio.Event().wait()
    yield set()


async def fails(*_: object, **__: object) -> AsyncIterator[set[object]]:
    raise OSError("no more watches")
    yield set()


async def test_polling_finds_changes_that_nothing_announced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A network drive."""
    monkeypatch.setattr("watchfiles.awatch", is_silent)
    async with intake(tmp_path / "workspace", E3_RESCAN_SECONDS="0.3") as room:
        await room.watching()
        room.drop()
        first = await room.taken()
        room.drop(content=portrait(seed=2))
        await room.changed(first)
        room.path("written.yaml").write_text(portrait())
        await room.taken("written.yaml", status="pending")
        room.path().unlink()
        assert (await room.taken(status="failed")).failure_class == "cancelled"


@pytest.mark.timing
async def test_where_watching_fails_it_is_reported_once_and_files_are_still_taken_within_two_seconds(
    room: Intake, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("watchfiles.awatch", fails)
    monkeypatch.setattr(folder_watch, "TROUBLE_PAUSE", 0.1)
    await room.watching()
    for number in range(3):
        began = time.monotonic()
        room.drop(f"{number}.yaml")
        await room.taken(f"{number}.yaml")
        assert time.monotonic() - began < 2.5
    (words,) = complaints(caplog)
    assert "cannot be watched" in words
    assert "no more watches" in words


async def test_watching_that_fails_again_after_it_had_worked_is_reported_again(
    room: Intake, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    rounds = 0

    async def fails_works_fails(*_: object, **__: object) -> AsyncIterator[set[tuple[int, str]]]:
        nonlocal rounds
        rounds += 1
        if rounds == 3:
            yield {(1, str(room.path("x.yaml")))}
        raise OSError("no more watches")

    monkeypatch.setattr("watchfiles.awatch", fails_works_fails)
    monkeypatch.setattr(folder_watch, "TROUBLE_PAUSE", 0.01)
    await room.watching()

    async def is_over() -> bool:
        return rounds > 4

    await until(is_over, "watching that fails again")
    assert len(complaints(caplog)) == 2


async def test_a_database_that_is_locked_for_a_while_costs_nothing_but_time(
    room: Intake, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries = []

    async def file_jobs(real: Any, files: object) -> object:
        tries.append(files)
        return await real(files)

    intercept(monkeypatch, room.store, ops.file_jobs, file_jobs)
    await room.watching()
    with locked_database(Path(room.workspace.database)):
        for number in range(20):
            room.drop(f"{number}.yaml")
        await until(lambda: is_true(tries), "an attempt to write")
        await asyncio.sleep(1)
        room.drop("late.yaml")
    await until(lambda: there_are(room, 21), "all to be taken in", timeout=30)
    assert len(await room.events()) == 21


async def is_true(value: object) -> bool:
    return bool(value)


async def test_a_database_that_refuses_for_a_while_is_reported_once_and_asked_again(
    room: Intake, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tries = []

    async def file_jobs(real: Any, files: object) -> object:
        tries.append(files)
        if len(tries) <= 3:
            raise StoreError("the disk is full")
        return await real(files)

    monkeypatch.setattr(monitor_module, "TROUBLE_PAUSE", 0.05)
    intercept(monkeypatch, room.store, ops.file_jobs, file_jobs)
    await room.watching()
    room.drop()
    await room.taken()
    assert len(tries) == 4
    assert complaints(caplog) == ["the disk is full"]
    assert await room.submissions() == 1


async def test_a_monitor_that_starts_while_the_database_does_not_answer_waits_for_it(
    room: Intake, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries = []

    async def pending_sources(real: Any) -> list[str]:
        tries.append(1)
        if len(tries) <= 2:
            raise StoreError("the database is locked")
        return await real()

    monkeypatch.setattr(monitor_module, "TROUBLE_PAUSE", 0.05)
    intercept(monkeypatch, room.store, ops.pending_sources, pending_sources)
    room.drop()
    room.start()
    await room.taken()


async def test_a_wrong_workflows_yaml_is_reported_and_what_it_said_before_still_counts(
    room: Intake, caplog: pytest.LogCaptureFixture
) -> None:
    await room.watching()
    room.drop("before.yaml")
    await room.taken("before.yaml", status="pending")
    recipes = room.root / "config" / "workflows.yaml"
    right = recipes.read_text()
    recipes.write_text(right + "\nbroken: {\n")
    room.drop()
    assert (await room.taken()).status == "pending"
    assert any("workflows.yaml" in words and "still counts" in words for words in complaints(caplog))
    recipes.write_text(right + "\nnew_one:\n  template_path: workflows/wf_realistic_portrait.json\n")
    room.drop("new.yaml", "job_type: T2I\nworkflow_id: new_one\n")
    assert (await room.taken("new.yaml")).status == "pending"


async def test_a_template_that_changes_counts_for_files_that_come_after(room: Intake) -> None:
    await room.watching()
    room.drop("before.yaml")
    before = await room.taken("before.yaml")
    template = room.root / "workflows" / "wf_realistic_portrait.json"
    template.write_text(template.read_text().replace('"E3"', '"other"').replace("512", "640"))
    room.drop("after.yaml")
    after = await room.taken("after.yaml", status="pending")
    assert before.template_hash != after.template_hash
    assert (await room.job("before.yaml")).template_hash == before.template_hash


async def test_what_was_taken_in_is_in_the_log(room: Intake, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        await room.watching()
        room.drop()
        job = await room.taken()
        room.drop(content=portrait(seed=2))
        await room.changed(job)
    lines = [record.getMessage() for record in caplog.records if KNIGHT in record.getMessage()]
    assert lines == ["knight.yaml: accepted", "knight.yaml: updated"]
