"""Files that people hand in by name: added from anywhere, and submitted again after they failed."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from comfyui_agent.domain.jobs import Job
from comfyui_agent.store import operations as ops
from comfyui_agent.store.store import Store
from comfyui_agent.usecases.job_files import add_file, resubmit
from comfyui_agent.usecases.jobs import JobAnswer
from support.intake import KNIGHT, Intake, painted, portrait, until
from support.pictures import png
from support.stores import submit_one

HERE = "jobs/processing/image/knight.yaml"
DONE = "jobs/finished/image/knight.yaml"
NEW_WORKFLOW = "job_type: T2I\nworkflow_id: night_portrait\ninputs: {prompt: x}\n"


async def add(room: Intake, path: Path, store: Store | None = None) -> JobAnswer:
    return await add_file(store or room.store, room.admission(), room.workspace, path)


async def again(room: Intake, *names: str) -> list[JobAnswer]:
    jobs = [await room.job(name) for name in names]
    return await resubmit(room.store, room.admission(), room.workspace, jobs)


async def failed(room: Intake, name: str = KNIGHT, content: str = "") -> Job:
    """A job of a file that has run and failed."""
    room.drop(name, content)
    await room.look_once()
    await room.fail(await room.run_job(name))
    return await room.job(name)


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    path = tmp_path / "at home" / KNIGHT
    path.parent.mkdir()
    path.write_text(portrait())
    return path


# Adding.


async def test_a_file_from_outside_is_copied_to_the_folder_of_its_kind_and_queued(room: Intake, outside: Path) -> None:
    answer = await add(room, outside)
    assert (answer.name, answer.problem) == (KNIGHT, "")
    job = await room.job()
    assert answer.job == job
    assert (job.status, job.source) == ("pending", HERE)
    assert room.files() == {HERE}
    assert room.path().read_text() == outside.read_text() == portrait()
    await room.look_once()
    assert (await room.job(), await room.submissions()) == (job, 1)


async def test_a_file_that_is_added_is_taken_without_waiting(room: Intake, outside: Path) -> None:
    outside.write_text(portrait(seed=2))
    assert (await add(room, outside)).job is not None


async def test_a_file_of_another_kind_goes_to_its_own_folder(room: Intake, tmp_path: Path) -> None:
    path = tmp_path / "Film 日本.YML"
    path.write_text("job_type: t2v\nworkflow_id: wf_text_to_video\ninputs: {prompt: x, seed: 1}\n")
    assert (await add(room, path)).problem == ""
    assert (await room.job(path.name)).source == f"jobs/processing/video/{path.name}"
    assert (await room.job(path.name)).job_type == "T2V"


async def test_a_file_that_lies_in_the_folder_is_queued_where_it_is(room: Intake) -> None:
    room.drop(folder="video/night")
    answer = await add(room, room.path(folder="video/night"))
    assert answer.problem == ""
    assert (await room.job()).source == "jobs/processing/video/night/knight.yaml"
    assert room.files() == {"jobs/processing/video/night/knight.yaml"}


async def test_adding_a_file_again_is_nothing(room: Intake, outside: Path) -> None:
    await add(room, outside)
    before = await room.job()
    for path in (outside, room.path()):
        answer = await add(room, path)
        assert (answer.job, answer.problem) == (before, "")
    assert await room.submissions() == 1


async def test_a_file_that_is_added_beside_a_monitor_is_one_job(room: Intake, outside: Path) -> None:
    running = await room.watching()
    answers = await asyncio.gather(*(add(room, outside, room.other_store()) for _ in range(5)))
    assert {answer.problem for answer in answers} == {""}
    await room.taken()
    await room.settled(running)
    assert await room.submissions() == 1
    assert room.files() == {HERE}


async def test_a_bad_file_from_outside_is_refused_and_leaves_nothing(room: Intake, outside: Path) -> None:
    outside.write_text(portrait().replace("seed", "sede"))
    answer = await add(room, outside)
    assert answer.job is None
    assert "inputs.sede" in answer.problem
    assert ":5:" in answer.problem
    assert (room.files(), await room.store.run(ops.list_jobs)) == (set(), [])


async def test_a_bad_file_in_the_folder_is_a_failed_row(room: Intake) -> None:
    room.drop(content=portrait().replace("seed", "sede"))
    answer = await add(room, room.path())
    assert "inputs.sede" in answer.problem
    assert answer.job is not None
    assert (answer.job.status, answer.job.run_count) == ("failed", 0)


@pytest.mark.parametrize(
    ("name", "words"),
    [("none.yaml", "there is no file"), ("folder.yaml", "is a folder"), ("notes.txt", ".yaml or .yml")],
)
async def test_what_is_no_job_file_is_refused(room: Intake, tmp_path: Path, name: str, words: str) -> None:
    (tmp_path / "folder.yaml").mkdir()
    (tmp_path / "notes.txt").write_text(portrait())
    answer = await add(room, tmp_path / name)
    assert (answer.job, await room.store.run(ops.list_jobs)) == (None, [])
    assert words in answer.problem


async def test_other_bytes_of_a_name_that_is_done_are_another_take_and_the_same_are_nothing(
    room: Intake, outside: Path
) -> None:
    await add(room, outside)
    await room.finish(await room.run_job())
    before = await room.job()
    answer = await add(room, outside)
    assert (answer.job, answer.problem, room.files()) == (before, "", {DONE})
    outside.write_text(portrait(seed=2))
    answer = await add(room, outside)
    assert answer.problem == ""
    assert answer.job is not None
    assert (answer.job.id, answer.job.status) == (before.id, "pending")
    assert room.files() == {DONE, "jobs/processing/image/knight.yaml"}


async def test_another_file_of_the_name_that_waits_is_not_overwritten(room: Intake, outside: Path) -> None:
    await add(room, outside)
    outside.write_text(portrait(seed=2))
    answer = await add(room, outside)
    assert "says something else" in answer.problem
    assert (room.path().read_text(), await room.submissions()) == (portrait(), 1)


async def test_a_name_that_belongs_to_a_file_in_another_folder_is_refused_and_nothing_is_copied(
    room: Intake, outside: Path
) -> None:
    room.drop(folder="video")
    await room.look_once()
    answer = await add(room, outside)
    assert "jobs/processing/video/knight.yaml" in answer.problem
    assert room.files() == {"jobs/processing/video/knight.yaml"}


async def test_a_file_whose_result_would_go_to_a_path_of_another_job_says_so(room: Intake, tmp_path: Path) -> None:
    for name in ("a.yaml", "b.yaml"):
        (tmp_path / name).write_text(portrait(outputs="{file_path: jobs/finished/image/x.png}"))
    assert (await add(room, tmp_path / "a.yaml")).problem == ""
    answer = await add(room, tmp_path / "b.yaml")
    assert "belongs to the job a.yaml" in answer.problem
    assert room.files() == {"jobs/processing/image/a.yaml"}
    assert [job.config_name for job in await room.store.run(ops.list_jobs)] == ["a.yaml"]


async def test_a_picture_that_an_added_file_names_is_kept(room: Intake, tmp_path: Path) -> None:
    (tmp_path / "painted.yaml").write_text(painted("pictures/castle.png"))
    answer = await add(room, tmp_path / "painted.yaml")
    assert answer.problem == ""
    assert answer.job is not None
    assert "4.image" in (answer.job.pictures or "")


# Submitting again.


async def test_a_job_that_failed_is_submitted_again_with_a_fresh_count(room: Intake) -> None:
    before = await failed(room)
    (answer,) = await again(room, KNIGHT)
    assert answer.problem == ""
    job = await room.job()
    assert answer.job == job
    assert (job.id, job.status, job.retries_attempted, job.run_count) == (before.id, "pending", 0, 1)
    assert (job.error_trace, job.failure_class, job.digest) == (None, None, before.digest)
    assert await room.submissions() == 2


async def test_a_workflow_that_was_put_right_is_used_with_the_same_bytes(room: Intake) -> None:
    room.drop(content=NEW_WORKFLOW)
    await room.look_once()
    before = await room.job()
    assert (before.status, before.run_count) == ("failed", 0)
    (answer,) = await again(room, KNIGHT)
    assert "night_portrait" in answer.problem, "nothing has been put right yet"
    assert (await room.job()).status == "failed"
    recipes = room.root / "config" / "workflows.yaml"
    entry = '\nnight_portrait:\n  template_path: workflows/wf_realistic_portrait.json\n  inputs: {prompt: "2.text"}\n'
    recipes.write_text(recipes.read_text() + entry)
    (answer,) = await again(room, KNIGHT)
    job = await room.job()
    assert (answer.problem, job.status, job.error_trace, job.run_count) == ("", "pending", None, 0)
    assert (job.digest, job.workflow_id) == (before.digest, "night_portrait")
    assert job.template_hash is not None
    assert (await room.run_job()).template_hash == job.template_hash


async def test_a_template_that_was_put_right_is_used_with_the_same_bytes(room: Intake) -> None:
    template = room.root / "workflows" / "wf_realistic_portrait.json"
    right = template.read_text()
    template.write_text('{"nodes"')
    room.drop()
    await room.look_once()
    assert "cannot be read" in ((await room.job()).error_trace or "")
    template.write_text(right)
    (answer,) = await again(room, KNIGHT)
    assert (answer.problem, (await room.job()).status) == ("", "pending")


async def test_a_picture_that_was_missing_is_kept_when_it_is_there(room: Intake) -> None:
    room.drop(content=painted("pictures/late.png"))
    await room.look_once()
    assert (await room.job()).status == "failed"
    (room.root / "pictures" / "late.png").write_bytes(png())
    (answer,) = await again(room, KNIGHT)
    assert (answer.problem, (await room.job()).status) == ("", "pending")
    assert (await room.job()).pictures is not None


async def test_a_file_that_was_changed_meanwhile_counts_as_it_is_now(room: Intake) -> None:
    await failed(room)
    room.drop(content=portrait(seed=2))
    (answer,) = await again(room, KNIGHT)
    assert answer.problem == ""
    assert '"5.seed":2' in ((await room.job()).inputs or "")
    await room.look_once()
    assert await room.submissions() == 2


async def test_a_file_that_has_become_bad_meanwhile_says_so_and_stays_failed(room: Intake) -> None:
    await failed(room)
    room.drop(content="nonsense")
    (answer,) = await again(room, KNIGHT)
    assert "not a mapping" in answer.problem
    job = await room.job()
    assert (job.status, job.failure_class) == ("failed", "invalid")


async def test_a_job_whose_file_is_gone_is_submitted_with_what_it_said(room: Intake) -> None:
    before = await failed(room)
    room.path().unlink()
    (answer,) = await again(room, KNIGHT)
    assert answer.problem == ""
    assert ((await room.job()).status, (await room.job()).inputs) == ("pending", before.inputs)


async def test_a_job_that_never_could_be_read_and_whose_file_is_gone_says_so(room: Intake) -> None:
    room.drop(content="nonsense")
    await room.look_once()
    room.path().unlink()
    before = await room.job()
    (answer,) = await again(room, KNIGHT)
    assert "is gone" in answer.problem
    assert HERE in answer.problem
    assert await room.job() == before


async def test_a_job_that_came_without_a_file_is_submitted_again(room: Intake) -> None:
    await submit_one(room.store)
    await room.fail(await room.run_job())
    (answer,) = await again(room, KNIGHT)
    assert (answer.problem, (await room.job()).status) == ("", "pending")


@pytest.mark.parametrize(
    ("state", "words"), [("pending", "waits already"), ("processing", "is rendering"), ("done", "is done already")]
)
async def test_a_job_that_has_not_failed_is_left_alone(room: Intake, state: str, words: str) -> None:
    room.drop()
    await room.look_once()
    if state != "pending":
        leased = await room.run_job()
        if state == "done":
            await room.finish(leased)
    before = await room.job()
    (answer,) = await again(room, KNIGHT)
    assert words in answer.problem
    assert await room.job() == before


@pytest.mark.parametrize("is_deleted", [False, True], ids=["by a person", "with its file"])
async def test_a_cancelled_job_is_submitted_again_by_its_name(room: Intake, is_deleted: bool) -> None:
    room.drop()
    await room.look_once()
    if is_deleted:
        room.path().unlink()
        await room.look_once()
    else:
        await room.store.run(ops.cancel_jobs, [(await room.job()).id])
    assert (await room.job()).failure_class == "cancelled"
    (answer,) = await again(room, KNIGHT)
    assert (answer.problem, (await room.job()).status) == ("", "pending")


async def test_hundreds_are_answered_in_their_order(room: Intake) -> None:
    names = [f"take_{number}.yaml" for number in range(600)]
    for number, name in enumerate(names):
        room.drop(name, NEW_WORKFLOW if number % 3 else portrait(seed=number))
    await room.look_once()
    jobs = [await room.job(name) for name in names]
    await room.store.run(ops.cancel_jobs, [job.id for job in jobs])
    wanted = [await room.job(name) for name in reversed(names)]
    answers = await resubmit(room.store, room.admission(), room.workspace, wanted)
    assert [answer.name for answer in answers] == list(reversed(names))
    for answer in answers:
        number = int(answer.name.removeprefix("take_").removesuffix(".yaml"))
        assert bool(answer.problem) == bool(number % 3)
    assert (await room.store.run(ops.count_jobs)).pending == 200


async def test_a_retry_beside_a_monitor_is_one_submission(room: Intake) -> None:
    await failed(room)
    running = await room.watching()
    await again(room, KNIGHT)
    inode = room.drop().stat().st_ino

    async def is_judged() -> bool:
        return any(signature[2] == inode for signature in running.monitor._files.known.values())

    await until(is_judged, "the file to be judged")
    assert await room.submissions() == 2
    assert (await room.job()).status == "pending"


async def test_a_retry_that_fails_at_once_for_another_jobs_path_says_so(room: Intake) -> None:
    going_to = portrait(outputs="{file_path: jobs/finished/image/x.png}")
    await failed(room, "a.yaml", going_to)
    await room.watching()
    room.drop("b.yaml", going_to)
    await room.taken("b.yaml", status="pending")
    (answer,) = await again(room, "a.yaml")
    assert (await room.job("a.yaml")).status == "failed"
    assert "b.yaml" in answer.problem
