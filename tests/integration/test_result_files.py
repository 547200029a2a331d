"""Results come home: never onto files that are not theirs, never onto the last of the disk, loaded from nowhere else.

An agent and a simulator in this process.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from comfyui_agent.comfy import downloads
from comfyui_agent.config.loader import load_workspace
from comfyui_agent.config.scaffold import start_workspace
from comfyui_agent.config.workspace import Workspace
from comfyui_agent.domain.batches import BatchKind, NewBatch
from comfyui_agent.domain.jobs import Job, NewJob, Template
from comfyui_agent.domain.states import JobStatus
from comfyui_agent.engine import health_checks
from comfyui_agent.engine.composition import make_agent
from comfyui_agent.sim.settings import SimSettings
from comfyui_agent.sim.simulator import Simulator
from comfyui_agent.store import operations as ops
from comfyui_agent.store.connect import open_store
from comfyui_agent.store.store import Store
from support.agents import sized_picture
from support.pictures import png
from support.stores import in_the_shell

TEMPLATE = Template.of(sized_picture())
OPEN = "jobs/finished/image/mine.png"


class House(NamedTuple):
    root: Path
    store: Store
    workspace: Workspace

    async def work(self) -> None:
        """An agent, until nothing is left."""
        await asyncio.wait_for(make_agent(self.store, self.workspace).run(until_idle=True), 30)

    async def render(self, *jobs: NewJob) -> list[Job]:
        """What becomes of jobs."""
        await self.store.run(ops.submit_jobs, jobs)
        await self.work()
        return [await self.job(each.config_name) for each in jobs]

    async def job(self, name: str) -> Job:
        found = await self.store.run(ops.find_job_by_name, name)
        assert found is not None
        return found


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    list(start_workspace(tmp_path))
    async with Simulator(SimSettings()) as server:
        workspace = load_workspace(tmp_path, {"E3_COMFYUI__SERVERS": server.url, "E3_RETRY_LIMIT": "0"})
        store = open_store(workspace.database)
        yield House(tmp_path, store, workspace)
        await store.close()


def wanted(name: str, file_path: str | None, color: int = 1, **facts: Any) -> NewJob:
    return NewJob(name, "T2I", "wf", TEMPLATE, {"1.color": color}, file_path=file_path, **facts)


@pytest.mark.parametrize("said", [OPEN, "jobs/finished/image/mine", "pictures/mine.webp"])
async def test_a_file_that_is_no_result_is_never_replaced(house: House, said: str) -> None:
    """Known before it is rendered, or when it has come and its ending is known."""
    lands = (house.root / said).with_suffix(".png")
    lands.parent.mkdir(parents=True, exist_ok=True)
    lands.write_bytes(b"mine")
    (job,) = await house.render(wanted("a", said))
    shown = lands.relative_to(house.root).as_posix()
    words = f"{shown} is there already and is no result of E3: move it, or give the job another file_path"
    assert job.status is JobStatus.FAILED
    assert words in (job.error_trace or "")
    assert lands.read_bytes() == b"mine"
    lands.unlink()
    await house.store.run(ops.retry_jobs, [job.id])
    await house.work()
    assert (await house.job("a")).status is JobStatus.DONE


async def test_a_job_file_in_a_batch_replaces_no_picture_either(house: House) -> None:
    mine = house.root / "pictures" / "mine.png"
    mine.parent.mkdir(exist_ok=True)
    mine.write_bytes(b"mine")
    [job_id] = await house.store.run(
        ops.submit_jobs, [wanted("a.yaml", "pictures/mine.png", source="jobs/processing/image/a.yaml")]
    )
    assert job_id is not None
    await house.store.run(ops.group_jobs, NewBatch("files_00000001", "files", BatchKind.FILES), [job_id])
    await house.work()
    job = await house.job("a.yaml")
    assert (job.status, mine.read_bytes()) == (JobStatus.FAILED, b"mine")
    assert "pictures/mine.png is there already and is no result of E3" in (job.error_trace or "")


async def test_what_cannot_be_kept_is_reported_without_the_place_of_the_workspace(house: House) -> None:
    in_the_way = house.root / "jobs/finished/image/base.png"
    in_the_way.parent.mkdir(parents=True, exist_ok=True)
    in_the_way.write_bytes(b"no folder")
    (job,) = await house.render(wanted("a", "jobs/finished/image/base.png/x.png"))
    assert job.status is JobStatus.FAILED
    assert "jobs/finished/image/base.png" in (job.error_trace or "")
    assert str(house.root) not in (job.error_trace or "")


async def test_a_result_is_kept_beside_the_next_one_of_its_job_and_also_if_its_job_is_gone(house: House) -> None:
    (first,) = await house.render(wanted("a", OPEN))
    before = (house.root / OPEN).read_bytes()
    await house.store.run(ops.resubmit_jobs, [(first.id, wanted("a", OPEN, color=7))], avoid_cache=True)
    await house.work()
    again = await house.job("a")
    newer = OPEN.replace("mine.png", "mine_2.png")
    assert (again.status, again.run_count, again.outputs) == (JobStatus.DONE, 2, (newer,))
    assert (house.root / OPEN).read_bytes() == before != (house.root / newer).read_bytes()
    in_the_shell(house.root / "database" / "comfyui_agent.db", "DELETE FROM jobs WHERE config_name = 'a'")
    (other,) = await house.render(wanted("b", OPEN, color=9))
    assert (other.status, other.outputs) == (JobStatus.DONE, (OPEN,))
    assert (house.root / "jobs/finished/image/mine.kept-1.png").is_file()


@pytest.mark.parametrize(
    "said",
    [
        "workflows/wf_realistic_portrait.png",
        "Config/x.png",
        "database/x",
        "jobs/processing/image/x.png",
        ".env",
        "a.py",
        "n" * 300 + ".png",
    ],
)
async def test_a_row_by_hand_is_held_to_the_same_places(house: House, said: str) -> None:
    (job,) = await house.render(wanted("a", said))
    assert (job.status, job.run_count) == (JobStatus.FAILED, 0)
    assert (job.error_trace or "").startswith("invalid: ")
    assert not os.path.lexists(house.root / said)


async def test_results_leave_room_on_their_disk(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(house.root)
    free = 0.9 * 1024**3
    monkeypatch.setattr(downloads.shutil, "disk_usage", lambda _: usage._replace(total=100 * 1024**3, free=round(free)))
    await house.store.run(ops.submit_jobs, [wanted("a", OPEN), wanted("b", None)])
    working = asyncio.create_task(house.work())
    try:
        while not (alerts := await alerts_of(house.store)):
            assert not working.done()
            await asyncio.sleep(0.02)
        assert "No space left but what paths.keep_free_gb keeps free" in alerts[0]
        assert (await house.store.run(ops.count_jobs)).failed == 0
        assert not (house.root / OPEN).exists()
        free = 2 * 1024**3
        await working
    finally:
        working.cancel()
    jobs = [await house.job("a"), await house.job("b")]
    assert [(job.status, job.run_count) for job in jobs] == [(JobStatus.DONE, 1)] * 2


async def alerts_of(store: Store) -> list[str]:
    return [event.message or "" for event in await store.run(ops.events_after, 0, 1000) if event.name == "alert.disk"]


@pytest.mark.parametrize(("total", "is_room"), [(1024**3, True), (3 * 1024**3, False)])
def test_of_a_small_disk_at_most_half_is_kept_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, total: int, is_room: bool
) -> None:
    usage = shutil.disk_usage(tmp_path)._replace(total=total, free=600 * 1024**2)
    monkeypatch.setattr(downloads.shutil, "disk_usage", lambda _: usage)
    if is_room:
        downloads.expect_room(tmp_path, 50 * 1024**2, 1024**3)
    else:
        with pytest.raises(OSError, match="No space left"):
            downloads.expect_room(tmp_path, 50 * 1024**2, 1024**3)


LOADED = {
    "1": {"class_type": "LoadImage", "inputs": {"image": "example.png"}},
    "2": {"class_type": "SaveImage", "inputs": {"images": ["1", 0], "filename_prefix": "x"}},
}


@pytest.mark.parametrize(
    "graph",
    [
        {"1": {"class_type": "LoadImage", "inputs": {"image": {"__value__": "{private} [input]"}}}},
        {"1": {"class_type": "WebcamCapture", "inputs": {"image": "{private}"}}},
        {"1": {"class_type": "WebcamCapture", "inputs": {"image": "{private} [input]"}}},
        {"1": {"class_type": "Load3D", "inputs": {"image": {"image": "x.png", "mask": "../../{name} [output]"}}}},
    ],
    ids=["wrapped", "another class", "another class, marked", "an object of names"],
)
async def test_no_value_hides_a_file_outside_the_servers_folders(
    house: House, tmp_path: Path, graph: dict[str, Any]
) -> None:
    private = tmp_path / "private.png"
    private.write_bytes(png())
    said = json.loads(json.dumps(graph).replace("{private}", str(private)).replace("{name}", private.name))
    given = {"1.image": said["1"]["inputs"]["image"]}
    template = Template.of({**said, "2": LOADED["2"]})
    (job,) = await house.render(NewJob("a", "I2I", "wf", template, given))
    assert (job.status, job.run_count) == (JobStatus.FAILED, 0)
    assert "1.image names a file outside the server's folders" in (job.error_trace or "")


@pytest.mark.parametrize("name", ["{private} [input]", "../../{name} [output]", "{private}"])
@pytest.mark.parametrize("is_given", [True, False], ids=["given", "in the template"])
async def test_no_file_outside_the_servers_folders_is_loaded(
    house: House, tmp_path: Path, name: str, is_given: bool
) -> None:
    """Whichever way the name came: by a job, a burst, a row by hand, or the template."""
    private = tmp_path / "private.png"
    private.write_bytes(png())
    said = name.format(private=private, name=private.name)
    graph = json.loads(json.dumps(LOADED))
    graph["1"]["inputs"]["image"] = "x.png" if is_given else said
    template = Template.of(graph)
    (job,) = await house.render(NewJob("a", "I2I", "wf", template, {"1.image": said} if is_given else {}))
    assert job.status is JobStatus.FAILED
    if is_given or "[" in said:
        assert "1.image names a file outside the server's folders" in (job.error_trace or "")
    else:  # whoever set E3 up may say so; the server refuses it
        assert "Invalid image file" in (job.error_trace or "")


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        (None, "wf_realistic_portrait needs prompt, seed, steps: submit a job file that gives them"),
        ({"2.text": "a knight", "5.seed": 7}, "wf_realistic_portrait needs steps: "),
        ({"2.text": "a knight", "5.seed": 7, "5.steps": 2}, None),
    ],
)
async def test_a_row_by_hand_needs_what_its_workflow_requires(
    house: House, inputs: dict[str, Any] | None, words: str | None
) -> None:
    said = "NULL" if inputs is None else f"'{json.dumps(inputs)}'"
    row = "INSERT INTO jobs (config_name, job_type, workflow_id, status, inputs) VALUES "
    in_the_shell(
        house.root / "database" / "comfyui_agent.db",
        f"{row} ('knight.yaml', 'T2I', 'wf_realistic_portrait', 'pending', {said})",
    )
    await house.work()
    job = await house.job("knight.yaml")
    if words is None:
        assert job.status is JobStatus.DONE
    else:
        assert (job.status, job.run_count, job.failure_class) == (JobStatus.FAILED, 0, "invalid")
        assert words in (job.error_trace or "")


async def test_a_grid_and_a_job_do_not_take_each_others_place(house: House) -> None:
    """What a store refuses, the agent says; results of a batch keep their names."""
    await house.store.run(ops.create_batch, NewBatch("fox", "fox", BatchKind.BOOK), None)
    await house.store.run(ops.open_batch, "fox")
    assert await house.store.run(ops.claim_grid_files, "fox", ["jobs/finished/image/fox/grid.png"], []) == ""
    (job,) = await house.render(wanted("a", "jobs/finished/image/fox/grid.webp"))
    assert "jobs/finished/image/fox/grid.png belongs to the grid of fox" in (job.error_trace or "")


def test_the_doctor_says_that_results_wait_for_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(tmp_path)._replace(total=100 * 1024**3, free=3 * 1024**3)
    monkeypatch.setattr(health_checks.shutil, "disk_usage", lambda _: usage)
    found = health_checks.look_at_disk(load_workspace(tmp_path, {"E3_PATHS__KEEP_FREE_GB": "5"}))
    words = "3.0 GB free, and results leave 5 GB (paths.keep_free_gb): make room"
    assert (found.is_fine, found.message) == (False, words)
