"""What people do to files while their jobs wait or run, and what must come of it."""

from __future__ import annotations

import asyncio
import os
import time

import pytest

from comfyui_agent.engine.intake import monitor
from comfyui_agent.engine.intake.monitor import Monitor
from comfyui_agent.pools import Pool
from comfyui_agent.usecases.job_files import add_file
from support.intake import Intake, portrait, until

OUTPUT = '{file_path: "jobs/finished/image/x.png"}'


async def test_a_file_that_is_renamed_while_it_waits_is_a_job_of_its_new_name(room: Intake) -> None:
    await room.watching()
    room.drop("a.yaml", portrait(outputs=OUTPUT))
    await room.taken("a.yaml")
    room.path("a.yaml").rename(room.path("b.yaml"))
    assert (await room.taken("b.yaml", timeout=5)).status == "pending"
    assert (await room.taken("a.yaml", status="failed", timeout=5)).failure_class == "cancelled"


async def test_a_folder_that_is_made_anew_is_watched_again(room: Intake) -> None:
    await room.watching()
    for number in range(2):
        folder = room.processing / "audio"
        folder.rename(room.root / f"old_{number}")
        folder.mkdir()
        await asyncio.sleep(1.2)  # for whoever thinks that it is the folder that it was
        room.drop(f"job_{number}.yaml", folder="audio")
        await room.taken(f"job_{number}.yaml", timeout=2.5)


async def test_a_file_is_known_by_its_place_whichever_way_it_was_named(room: Intake) -> None:
    room.drop()
    roundabout = room.root / "examples" / ".." / "jobs" / "processing" / "image" / "knight.yaml"
    answer = await add_file(room.store, room.admission(), room.workspace, roundabout)
    assert answer.problem == ""
    assert (await room.job()).source == "jobs/processing/image/knight.yaml"
    await room.look_once()
    assert room.files() >= {"jobs/processing/image/knight.yaml"}


async def test_a_picture_that_is_still_written_is_waited_for(room: Intake) -> None:
    content = "job_type: I2I\nworkflow_id: wf_image_to_image\ninputs: {image: pictures/new.png, prompt: x, seed: 1}\n"
    whole = (room.root / "pictures" / "castle.png").read_bytes()
    picture = room.root / "pictures" / "new.png"
    await room.watching()
    picture.write_bytes(whole[: len(whole) // 2])
    room.drop("i.yaml", content)
    deadline = time.monotonic() + 0.8
    while time.monotonic() < deadline:  # a writer that does not pause for long
        os.utime(picture)
        await asyncio.sleep(0.05)
    picture.write_bytes(whole)
    job = await room.taken("i.yaml", timeout=5)
    assert job.status == "pending"
    (kept,) = (room.root / "database" / "inputs").iterdir()
    assert kept.read_bytes() == whole


async def test_until_idle_does_not_wait_for_runs_that_are_not_its_own(room: Intake) -> None:
    room.drop()
    await room.look_once()
    await room.run_job()
    room.drop(content=portrait(seed=99))
    await asyncio.wait_for(Monitor(room.store, room.workspace).run(until_idle=True), 5)
    assert (await room.job()).resubmit == 1


@pytest.mark.timing
async def test_leaving_does_not_wait_for_pictures_that_are_being_kept(
    room: Intake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread that copies them looks up from its work."""
    content = "job_type: I2I\nworkflow_id: wf_image_to_image\ninputs: {image: pictures/%s, prompt: x, seed: 1}\n"
    whole = (room.root / "pictures" / "castle.png").read_bytes()
    for number in range(40):
        picture = room.root / "pictures" / f"p{number}.png"
        picture.write_bytes(whole)
        os.utime(picture, (1, 1))
        room.drop(f"i{number}.yaml", content % picture.name)
    from comfyui_agent.engine.intake.input_files import InputFiles

    real = InputFiles._copy

    def slow(self: InputFiles, path: object) -> str:
        time.sleep(0.25)
        return real(self, path)  # type: ignore[arg-type]

    monkeypatch.setattr(InputFiles, "_copy", slow)
    threads = Pool("e3-intake", 1)
    monkeypatch.setattr(monitor, "INTAKE", threads)
    running = asyncio.create_task(Monitor(room.store, room.workspace).run())

    async def is_copying() -> bool:
        return any((room.root / "database").glob("inputs/*.png"))

    await until(is_copying, "the first copy", timeout=5)
    began = time.monotonic()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await threads.run(int)  # the thread has nothing else to do any more
    assert time.monotonic() - began < 1.5
