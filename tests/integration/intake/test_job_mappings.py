"""A job that comes as a mapping, not as a file: checked by the same rules, and what is wrong is said by its key."""

from __future__ import annotations

import errno
import os
from typing import Any

import pytest

from comfyui_agent.config.validation import Complaints
from comfyui_agent.domain.jobs import NewJob
from comfyui_agent.engine.intake import input_files as keeping_module
from comfyui_agent.engine.intake.admission import LONGEST_NAME
from comfyui_agent.engine.intake.input_files import InputFiles, NotKept
from comfyui_agent.store import operations as ops
from support.intake import Intake, portrait
from support.pictures import png

KNIGHT: dict[str, Any] = {
    "job_type": "t2i",
    "workflow_id": "wf_realistic_portrait",
    "inputs": {"prompt": "a knight", "seed": 1, "steps": 4},
}
CASTLE: dict[str, Any] = {
    "job_type": "I2I",
    "workflow_id": "wf_image_to_image",
    "inputs": {"image": "pictures/red.png", "prompt": "a castle", "seed": 1},
}


def job_of(room: Intake, name: str = "knight", base: dict[str, Any] = KNIGHT, **changes: Any) -> NewJob:
    return room.admission().job_of({**base, **changes}, name)


def complaints_of(room: Intake, name: str = "knight", **changes: Any) -> list[tuple[str, str]]:
    with pytest.raises(Complaints) as caught:
        job_of(room, name, **changes)
    assert {each.where for each in caught.value.found} == {""}
    assert not str(caught.value).startswith(":")
    return [(each.key, each.message) for each in caught.value.found]


async def test_it_is_the_job_that_a_file_with_the_same_words_would_be(room: Intake) -> None:
    metadata = {"user": "ana", "tags": [1, None]}
    outputs = {"file_path": "jobs/finished/image/best.png", "node": 7}
    made = job_of(room, priority=3, retry_limit=2, timeout_seconds=60, metadata=metadata, outputs=outputs)
    room.drop(
        "knight.yaml",
        portrait(
            priority=3,
            retry_limit=2,
            timeout_seconds=60,
            metadata="{user: ana, tags: [1, null]}",
            outputs="{file_path: jobs/finished/image/best.png, node: 7}",
        ),
    )
    await room.look_once()
    (other,) = await room.store.run(ops.submit_jobs, [made])
    beside, filed = await room.job("knight"), await room.job("knight.yaml")
    assert beside.id == other
    own = {"id", "config_name", "created_at", "digest", "source"}
    assert {key: value for key, value in beside.as_json().items() if key not in own} == {
        key: value for key, value in filed.as_json().items() if key not in own
    }
    assert (beside.status, beside.source, beside.job_type) == ("pending", None, "T2I")


async def test_what_is_left_out_is_that_of_the_workspace(room: Intake) -> None:
    made = job_of(room, priority=None, metadata=None)
    assert (made.priority, made.metadata, made.file_path) == (room.workspace.settings.default_priority, None, None)


async def test_the_digest_is_that_of_what_was_said_whatever_the_order_of_its_keys(room: Intake) -> None:
    first = job_of(room).digest
    assert first is not None
    assert first == job_of(room, base=dict(reversed(KNIGHT.items()))).digest
    assert first != job_of(room, priority=1).digest


async def test_all_that_is_wrong_is_said_by_its_key(room: Intake) -> None:
    found = dict(complaints_of(room, hat=1, job_type="T2X", priority="soon"))
    assert found.keys() == {"job_type", "priority", "hat"}
    assert found["job_type"].startswith("job_type 'T2X' does not exist: use one of T2I")
    assert found["priority"] == "'soon' cannot be used: write a whole number; lower runs earlier, such as 50"
    assert found["hat"].startswith("there is no such key; ")


@pytest.mark.parametrize(
    ("changes", "key", "words"),
    [
        ({"workflow_id": "wf_realistic"}, "workflow_id", "did you mean wf_realistic_portrait?"),
        ({"workflow_id": "../../secret"}, "workflow_id", "is not in workflows.yaml"),
        (
            {"inputs": {"prompt": "a", "seed": 1, "steps": 4, "hat": 2}},
            "inputs.hat",
            "has no place in the workflow",
        ),
        ({"inputs": {"prompt": {"a": 1}, "seed": 1, "steps": 4}}, "inputs.prompt", ""),
        ({"inputs": {"seed": 1, "steps": 4}}, "inputs.prompt", "is missing"),
        ({"outputs": {"file_path": "../escape.png"}}, "outputs.file_path", "leads out of the workspace"),
        ({"outputs": {"file_path": "database/x.png"}}, "outputs.file_path", "E3 keeps its own files"),
        (
            {"outputs": {"file_path": "pictures/x.png"}},
            "outputs.file_path",
            "is not in jobs/finished, where results go",
        ),
        ({"outputs": {"file_path": "jobs/finished.png"}}, "outputs.file_path", "is not in jobs/finished"),
        ({"outputs": {"file_path": "jobs/finished/conftest.py"}}, "outputs.file_path", "ends in .py"),
        ({"outputs": {"node": "77"}}, "outputs.node", "the workflow has no node '77'"),
    ],
    ids=lambda each: next(iter(each)) if isinstance(each, dict) else "",
)
async def test_the_rules_are_those_of_files(room: Intake, changes: dict[str, Any], key: str, words: str) -> None:
    ((found, message),) = complaints_of(room, **changes)
    assert found == key
    assert words in message


@pytest.mark.parametrize("name", ["knight", "knight.yaml", "a knight of 3", "ritter ü", "v1.5", "x" * LONGEST_NAME])
async def test_a_name_that_a_file_could_have_is_taken_as_it_is(room: Intake, name: str) -> None:
    assert job_of(room, name).config_name == name


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("", "cannot name a file"),
        ("  ", "cannot name a file"),
        (".", "cannot name a file"),
        ("..", "cannot name a file"),
        (".hidden", "cannot name a file"),
        (".yaml", "cannot name a file"),
        ("../knight", "cannot name a file"),
        ("a\\b", "cannot name a file"),
        ("a\nb", "control characters"),
        ("a\0b", "control characters"),
        ("\ud800", "control characters"),
        ("ü" * (LONGEST_NAME // 2 + 1), "is too long"),
        ("17", "would be taken for the number of a job"),
    ],
    ids=ascii,
)
async def test_a_name_that_no_file_could_have_is_refused(room: Intake, name: str, words: str) -> None:
    ((key, message),) = complaints_of(room, name)
    assert key == "name"
    assert words in message
    assert message.isprintable()


async def test_a_bad_name_does_not_hide_what_else_is_wrong(room: Intake) -> None:
    assert [key for key, _ in complaints_of(room, "a/b", priority="soon")] == ["name", "priority"]


# Pictures.


async def test_a_picture_that_it_names_is_kept(room: Intake) -> None:
    picture = room.root / "pictures" / "red.png"
    picture.write_bytes(png((200, 0, 0)))
    os.utime(picture, (1, 1))
    made = job_of(room, base=CASTLE)
    assert list(made.pictures) == ["4.image"]
    assert (room.workspace.kept_inputs / made.pictures["4.image"]).read_bytes() == picture.read_bytes()


async def test_a_picture_that_is_being_written_is_waited_for(room: Intake) -> None:
    picture = room.root / "pictures" / "red.png"
    picture.write_bytes(png((200, 0, 0)))  # just now: it may not be whole
    assert job_of(room, base=CASTLE).pictures.keys() == {"4.image"}


async def test_one_that_is_never_whole_is_no_fault_of_the_job(room: Intake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeping_module, "PATIENCE", 0.05)
    monkeypatch.setattr(keeping_module, "SETTLED_SECONDS", 3600.0)
    (room.root / "pictures" / "red.png").write_bytes(png((200, 0, 0)))
    with pytest.raises(NotKept, match="an input picture is being written: try again when it is whole"):
        job_of(room, base=CASTLE)


async def test_no_room_for_a_picture_is_no_fault_of_the_job(room: Intake, monkeypatch: pytest.MonkeyPatch) -> None:
    picture = room.root / "pictures" / "red.png"
    picture.write_bytes(png((200, 0, 0)))
    os.utime(picture, (1, 1))

    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(keeping_module.tempfile, "mkstemp", full)
    with pytest.raises(NotKept, match=r"input pictures cannot be kept: .*No space left"):
        job_of(room, base=CASTLE)
    workflow = room.admission().workflows.find("wf_image_to_image")
    with pytest.raises(NotKept, match="No space left"):
        InputFiles(room.workspace).keep_patiently(workflow, {"4.image": "pictures/red.png"})


async def test_all_mistakes_are_reported_and_not_only_the_first(room: Intake) -> None:
    found = complaints_of(
        room,
        job_type="T9I",
        priority="high",
        colour="red",
        inputs={"sed": 1, "steps": "many"},
        outputs={"file_path": "../x.png", "node": "99"},
    )
    keys = [key for key, _ in found]
    wrong = ["job_type", "priority", "colour", "outputs.file_path", "outputs.node"]
    assert sorted(keys) == sorted([*wrong, "inputs.prompt", "inputs.seed", "inputs.sed", "inputs.steps"])
    found = complaints_of(room, workflow_id=7, inputs=[1], outputs={"file_path": "../x.png"})
    assert [key for key, _ in found] == ["workflow_id", "inputs", "outputs.file_path"]


# What a job leaves open is drawn when it is accepted, and recorded.


def write(room: Intake, path: str, text: str) -> None:
    target = room.workspace.root / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text, encoding="utf-8")


def value_of(job: NewJob, name: str) -> Any:
    """What goes to the first input of a node that is called so."""
    return next(value for place, value in job.inputs.items() if place.endswith(f".{name}"))


async def test_what_is_open_is_drawn_from_the_files_of_the_workspace_and_recorded(room: Intake) -> None:
    write(room, "wildcards/animals.txt", "# what lives here\nfox\n\nowl\n")
    write(room, "prompts/night/scene.txt", "an {old|old} __animals__, ${seed}\n")
    job = job_of(
        room, inputs={"prompt_file": "night/scene.txt", "seed": "random", "steps": 4}, metadata={"user": "ana"}
    )
    seed = value_of(job, "seed")
    assert {f"an old fox, {seed}", f"an old owl, {seed}"} & set(job.inputs.values())
    assert job.metadata is not None
    drawn = job.metadata["drawn"]
    assert (job.metadata["user"], type(drawn["seed"])) == ("ana", int)
    assert drawn["written"] == {"prompt": "an {old|old} __animals__, ${seed}", "seed": "random"}


async def test_two_jobs_of_the_same_words_are_drawn_apart(room: Intake) -> None:
    seeds = {value_of(job_of(room, inputs={"prompt": "a knight", "seed": -1, "steps": 4}), "seed") for _ in range(4)}
    assert len(seeds) == 4


@pytest.mark.parametrize(
    ("inputs", "key", "message"),
    [
        ({"prompt": "__animlas__"}, "inputs.prompt", "did you mean animals?"),
        ({"prompt": "__a/../../secret__"}, "inputs.prompt", "is no wildcard"),
        ({"prompt": "__empty__"}, "inputs.prompt", "wildcards/empty.txt is empty: write a line for each choice"),
        ({"prompt": "__image__"}, "inputs.prompt", "image.txt is not UTF-8 text"),
        ({"prompt_file": "../config/global_config.yaml"}, "inputs.prompt_file", "is no file below the folder prompts"),
        ({"prompt_file": "/etc/passwd"}, "inputs.prompt_file", "is no file below the folder prompts"),
        ({"prompt_file": "link.txt"}, "inputs.prompt_file", "is no file below the folder prompts"),
        ({"prompt_file": "long.txt"}, "inputs.prompt_file", "long.txt has more than 64,000 bytes"),
    ],
)
async def test_files_that_cannot_be_drawn_from_are_said_by_the_key(
    room: Intake, inputs: dict[str, Any], key: str, message: str
) -> None:
    write(room, "wildcards/animals.txt", "fox")
    write(room, "wildcards/empty.txt", "# nothing yet\n")
    write(room, "secret.txt", "sesame")
    write(room, "prompts/long.txt", "x" * 64_001)
    (room.workspace.root / "wildcards/image.txt").write_bytes(b"\xff\xfe\x00\xd8")
    (room.workspace.root / "prompts/link.txt").symlink_to(room.workspace.root / "secret.txt")
    ((found, said),) = complaints_of(
        room, inputs={"seed": 1, "prompt": "x", **inputs} if "prompt" in inputs else inputs
    )
    assert (found, message in said, "sesame" in said) == (key, True, False), said
