"""Input pictures: a copy is kept from the moment the job is taken in, and only what may be read is read."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import json
import os
from pathlib import Path

import pytest

from comfyui_agent.engine.intake import input_files as keeping_module
from comfyui_agent.engine.intake import monitor as monitor_module
from comfyui_agent.engine.intake.input_files import InputFiles
from comfyui_agent.store import operations as ops
from support.intake import Intake, complaints, intake, painted
from support.pictures import png

PLACE = "4.image"
RED, GREEN = png((200, 0, 0)), png((0, 200, 0))


def kept_files(room: Intake) -> set[str]:
    folder = room.workspace.kept_inputs
    return {path.name for path in folder.iterdir()} if folder.exists() else set()


def name_of(data: bytes) -> str:
    return f"{hashlib.sha256(data).hexdigest()}.png"


async def taken_with(room: Intake, image: str, name: str = "job.yaml") -> str | None:
    """What is kept for a job that names this picture; None if its name goes to the server as it is."""
    room.drop(name, painted(image))
    await room.look_once()
    job = await room.job(name)
    assert (job.status, job.error_trace) == ("pending", None)
    assert json.loads(job.inputs or "")[PLACE] == image
    pictures = json.loads(job.pictures or "{}")
    assert set(pictures) <= {PLACE}
    found = pictures.get(PLACE)
    return None if found is None else str(found)


async def refusal_of(room: Intake, image: str, name: str = "job.yaml") -> str:
    """Why a job that names this picture has failed."""
    room.drop(name, painted(image))
    await room.look_once()
    job = await room.job(name)
    assert (job.status, job.run_count, job.pictures) == ("failed", 0, None)
    trace = job.error_trace or ""
    assert f"jobs/processing/image/{name}:4: inputs.image: " in trace
    return trace


async def test_a_copy_is_kept_under_the_digest_of_its_bytes(room: Intake) -> None:
    (room.root / "pictures" / "red.png").write_bytes(RED)
    kept = await taken_with(room, "pictures/red.png")
    assert kept == name_of(RED)
    assert (room.workspace.kept_inputs / kept).read_bytes() == RED
    assert kept_files(room) == {kept}, "nothing that was begun is left"


@pytest.mark.parametrize("fate", ["deleted", "changed", "replaced by a folder"])
async def test_the_copy_survives_whatever_becomes_of_the_original(room: Intake, fate: str) -> None:
    original = room.root / "pictures" / "red.png"
    original.write_bytes(RED)
    kept = await taken_with(room, "pictures/red.png")
    assert kept is not None
    if fate == "changed":
        original.write_bytes(GREEN)
    else:
        original.unlink()
    if fate == "replaced by a folder":
        original.mkdir()
    assert (room.workspace.kept_inputs / kept).read_bytes() == RED
    await room.look_once()
    assert (await room.job("job.yaml")).status == "pending"
    leased = await room.run_job("job.yaml")
    assert leased.pictures == json.dumps({PLACE: kept}, separators=(",", ":"))


async def test_the_same_picture_is_kept_once_however_often_and_wherever_it_is_named(room: Intake) -> None:
    for path in ("pictures/red.png", "pictures/again.png", "red at the top.png"):
        (room.root / path).write_bytes(RED)
        assert await taken_with(room, path, f"{Path(path).stem}.yaml") == name_of(RED)
    assert kept_files(room) == {name_of(RED)}


async def test_an_original_that_has_not_changed_is_not_read_again(
    room: Intake, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[Path] = []
    real = InputFiles._copy

    def copy(self: InputFiles, path: Path) -> str:
        reads.append(path)
        return real(self, path)

    monkeypatch.setattr(InputFiles, "_copy", copy)
    for number in range(50):
        room.drop(f"{number}.yaml", painted("pictures/castle.png", seed=number))
    await room.look_once()
    assert len(await room.store.run(ops.list_jobs, limit=100)) == 50
    assert len(reads) == 1


async def test_an_original_that_changes_is_kept_anew_for_jobs_that_come_after(room: Intake) -> None:
    original = room.root / "pictures" / "red.png"
    original.write_bytes(RED)
    await room.watching()
    room.drop("first.yaml", painted("pictures/red.png"))
    await room.taken("first.yaml")
    original.write_bytes(GREEN)
    room.drop("second.yaml", painted("pictures/red.png"))
    second = await room.taken("second.yaml")
    assert json.loads((await room.job("first.yaml")).pictures or "") == {PLACE: name_of(RED)}
    assert json.loads(second.pictures or "") == {PLACE: name_of(GREEN)}
    assert kept_files(room) == {name_of(RED), name_of(GREEN)}


async def test_a_kept_copy_that_somebody_removed_is_made_again(room: Intake) -> None:
    (room.root / "pictures" / "red.png").write_bytes(RED)
    await room.watching()
    for name in ("first.yaml", "second.yaml"):
        room.drop(name, painted("pictures/red.png"))
        await room.taken(name)
        (room.workspace.kept_inputs / name_of(RED)).unlink()


async def test_a_picture_that_the_recipe_names_is_kept_too(room: Intake) -> None:
    (room.root / "pictures" / "red.png").write_bytes(RED)
    recipes = room.root / "config" / "workflows.yaml"
    text = recipes.read_text().replace("required_inputs: [image, prompt, seed]", "required_inputs: [prompt, seed]")
    text = text.replace(
        '    checkpoint: auto\n  inputs:\n    image: "4.image"',
        '    checkpoint: auto\n    image: pictures/red.png\n  inputs:\n    image: "4.image"',
    )
    recipes.write_text(text)
    room.drop("job.yaml", "job_type: I2I\nworkflow_id: wf_image_to_image\ninputs: {prompt: x, seed: 1}\n")
    await room.look_once()
    job = await room.job("job.yaml")
    assert json.loads(job.pictures or "{}") == {PLACE: name_of(RED)}


async def test_the_extension_follows_the_bytes(room: Intake) -> None:
    (room.root / "pictures" / "red.jpg").write_bytes(RED)
    assert await taken_with(room, "pictures/red.jpg") == name_of(RED)


# Where pictures may lie.


async def test_a_picture_outside_the_workspace_is_refused(room: Intake, tmp_path: Path) -> None:
    (tmp_path / "secret.png").write_bytes(RED)
    for number, image in enumerate((f"{tmp_path}/secret.png", "../secret.png", "pictures/../../secret.png")):
        trace = await refusal_of(room, image, f"{number}.yaml")
        assert "outside the workspace" in trace
        assert "paths.inputs" in trace
    assert kept_files(room) == set()


async def test_a_picture_outside_is_taken_from_folders_that_the_settings_allow(tmp_path: Path) -> None:
    allowed = tmp_path / "mnt" / "pictures"
    (allowed / "deeper").mkdir(parents=True)
    (allowed / "deeper" / "red.png").write_bytes(RED)
    (tmp_path / "mnt" / "pictures of others").mkdir()
    (tmp_path / "mnt" / "pictures of others" / "red.png").write_bytes(RED)
    async with intake(tmp_path / "workspace", E3_PATHS__INPUTS=f"{allowed}, ../else") as room:
        assert await taken_with(room, f"{allowed}/deeper/red.png") == name_of(RED)
        assert await taken_with(room, "../mnt/pictures/deeper/red.png", "relative.yaml") == name_of(RED)
        (tmp_path / "else").mkdir()
        (tmp_path / "else" / "green.png").write_bytes(GREEN)
        assert await taken_with(room, "../else/green.png", "green.yaml") == name_of(GREEN)
        for number, image in enumerate((f"{allowed} of others/red.png", f"{allowed}/../pictures of others/red.png")):
            assert "outside the workspace" in await refusal_of(room, image, f"{number}.yaml")


async def test_a_link_is_where_it_leads(room: Intake, tmp_path: Path) -> None:
    (tmp_path / "secret.png").write_bytes(RED)
    (room.root / "pictures" / "green.png").write_bytes(GREEN)
    links = room.root / "links"
    links.mkdir()
    (links / "in.png").symlink_to("../pictures/green.png")
    (links / "out.png").symlink_to(tmp_path / "secret.png")
    (links / "folder").symlink_to(tmp_path)
    (links / "round.png").symlink_to("round.png")
    (links / "nowhere.png").symlink_to("../pictures/none.png")
    assert await taken_with(room, "links/in.png") == name_of(GREEN)
    assert "outside the workspace" in await refusal_of(room, "links/out.png", "out.yaml")
    assert "outside the workspace" in await refusal_of(room, "links/folder/secret.png", "folder.yaml")
    assert "links/round.png" in await refusal_of(room, "links/round.png", "round.yaml")
    assert "there is no file" in await refusal_of(room, "links/nowhere.png", "nowhere.yaml")
    assert kept_files(room) == {name_of(GREEN)}


# Names that are no paths.


@pytest.mark.parametrize(
    "image", ["pictures/castle.png [input]", "castle.png [output]", "sub/x.png [temp]", "x.png[input] "]
)
async def test_a_name_with_a_folder_of_the_server_behind_it_goes_to_the_server(room: Intake, image: str) -> None:
    assert await taken_with(room, image) is None
    assert kept_files(room) == set()


@pytest.mark.parametrize(
    "image",
    ["/etc/passwd [input]", "../../x.png [output]", "a/../../x.png [temp]", "C:\\x.png [input]", "~/x.png[input]"],
)
async def test_a_name_that_leads_out_of_the_servers_folder_is_refused(room: Intake, image: str) -> None:
    assert "leads out of the server's folder" in await refusal_of(room, image)


async def test_a_bare_name_is_a_file_of_the_workspace_if_there_is_one_else_of_the_server(room: Intake) -> None:
    (room.root / "red.png").write_bytes(RED)
    assert await taken_with(room, "red.png") == name_of(RED)
    assert await taken_with(room, "example.png", "server.yaml") is None
    assert await taken_with(room, "castle.png", "not looked for elsewhere.yaml") is None


async def test_texts_of_other_nodes_are_not_taken_for_files(room: Intake) -> None:
    room.drop("job.yaml", painted("example.png").replace("a castle", "pictures/castle.png"))
    await room.look_once()
    assert (await room.job("job.yaml")).pictures is None


@pytest.mark.parametrize("image", ["pictures/none.png", "pictures/", "./none.png", "C:\\pictures\\x.png", "~/x.png"])
async def test_what_looks_like_a_path_and_is_no_file_is_refused(room: Intake, image: str) -> None:
    trace = await refusal_of(room, image)
    assert "[input]" in trace or "paths.inputs" in trace


async def test_a_picture_whose_name_is_not_plain_ascii_is_kept(room: Intake) -> None:
    path = "pictures/Ünïcödé 日本語 🎨.png"
    (room.root / path).write_bytes(RED)
    assert await taken_with(room, path) == name_of(RED)


# Pictures that are none.


NO_PICTURES = {
    "empty.png": (b"", "no picture"),
    "text.png": (b"I am no picture", "no picture"),
    "notes.txt": (b"notes", "no picture"),
    "headless.png": (RED[8:], "no picture"),
    "key.pem": (b"-----BEGIN PRIVATE KEY-----", "no picture"),
    "cut.png": (RED[:-20], "cut.png"),
    "noise.png": (RED[:45] + bytes(range(20)) + RED[65:], "noise.png"),
    "cut.mp4": (b"\x00\x00\x00\x18ftypmp42\x00\x00\x00\x00mp42isom\x00\x00\x10\x00moov", "cut short"),
}


@pytest.mark.parametrize("name", NO_PICTURES)
async def test_what_is_no_whole_picture_is_refused_and_not_kept(room: Intake, name: str) -> None:
    data, reason = NO_PICTURES[name]
    (room.root / "pictures" / name).write_bytes(data)
    trace = await refusal_of(room, f"pictures/{name}")
    assert reason in trace
    assert "PRIVATE" not in trace
    assert kept_files(room) == set()


async def test_a_picture_that_is_too_large_is_refused(room: Intake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeping_module, "LARGEST", len(RED) - 1)
    (room.root / "pictures" / "red.png").write_bytes(RED)
    assert "larger than" in await refusal_of(room, "pictures/red.png")
    assert kept_files(room) == set()


async def test_a_job_whose_picture_was_missing_is_taken_when_it_is_changed_after_the_picture_came(room: Intake) -> None:
    await refusal_of(room, "pictures/late.png")
    (room.root / "pictures" / "late.png").write_bytes(RED)
    room.drop("job.yaml", painted("pictures/late.png", seed=2))
    await room.look_once()
    job = await room.job("job.yaml")
    assert (job.status, json.loads(job.pictures or "")) == ("pending", {PLACE: name_of(RED)})


# No room.


def without_room(monkeypatch: pytest.MonkeyPatch, times: int) -> list[int]:
    """The disk is full so many times when a picture is to be kept."""
    tries: list[int] = []
    real = os.fsync

    def fsync(handle: int) -> None:
        tries.append(handle)
        if len(tries) <= times:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(handle)

    monkeypatch.setattr(keeping_module.os, "fsync", fsync)
    monkeypatch.setattr(monitor_module, "TROUBLE_PAUSE", 0.05)
    return tries


async def test_when_there_is_no_room_for_a_picture_it_is_reported_once_and_tried_again(
    room: Intake, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (room.root / "pictures" / "red.png").write_bytes(RED)
    await room.watching()
    tries = without_room(monkeypatch, 3)
    room.drop("job.yaml", painted("pictures/red.png"))
    job = await room.taken("job.yaml")
    assert (job.status, job.error_trace) == ("pending", None)
    assert json.loads(job.pictures or "") == {PLACE: name_of(RED)}
    assert len(tries) > 3
    assert kept_files(room) == {name_of(RED)}
    (words,) = complaints(caplog)
    assert "No space left" in words
    assert [event.name for event in await room.events()] == ["job.submitted"]


async def test_when_there_is_no_room_for_a_picture_files_without_one_are_taken_in(
    room: Intake, monkeypatch: pytest.MonkeyPatch
) -> None:
    (room.root / "pictures" / "red.png").write_bytes(RED)
    await room.watching()
    without_room(monkeypatch, 1_000_000)
    room.drop("a.yaml", painted("pictures/red.png"))
    await asyncio.sleep(0.3)
    room.drop("b.yaml")
    await room.taken("b.yaml", timeout=2.5)
