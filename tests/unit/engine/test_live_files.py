"""What an agent tells other processes: what is at work, and pictures of it for as long as someone looks."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from comfyui_agent.comfy.frames import LARGEST_PREVIEW, Preview
from comfyui_agent.comfy.watch import Progress, Stage
from comfyui_agent.engine import live_files
from comfyui_agent.engine.live_files import LiveFile, live_run, preview_of, remove_stale
from comfyui_agent.engine.live_runs import (
    PREVIEWS_WANTED,
    WANTED_SECONDS,
    LiveRun,
    read_live,
    read_preview,
    want_previews,
)
from comfyui_agent.engine.run import Run
from comfyui_agent.fleet.server import Health
from comfyui_agent.store.agent_lock import AgentLock

JPEG, PNG = b"\xff\xd8\xff\xe0 a rough picture", b"\x89PNG\r\n\x1a\n a finer one"


def preview(image: bytes = JPEG) -> Preview:
    return Preview(image, "image/jpeg", "5", "prompt")


def rendering(job_id: int = 7, prompt_id: str = "prompt") -> LiveRun:
    return LiveRun(
        job_id, f"job_{job_id}.yaml", None, "http://a:1", "rendering", "KSampler", 3, 20, prompt_id, "5", 2, 7
    )


def pictures(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if ".preview" in path.name and path.name != PREVIEWS_WANTED)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "agents"


@pytest.fixture
def agent(folder: Path) -> Iterator[AgentLock]:
    lock = AgentLock(folder)
    yield lock
    lock.release()


@pytest.fixture
def file(folder: Path, agent: AgentLock) -> LiveFile:
    return LiveFile(folder, agent.worker)


def run_with(progress: Progress | None, *, is_collecting: bool = False) -> Run:
    leased = SimpleNamespace(
        lease=SimpleNamespace(job_id=7), config_name="a.yaml", batch_id="knights_1a2b3c4d", prompt_id="prompt"
    )
    server = SimpleNamespace(name="http://a:1", health=Health.UP)
    facts = SimpleNamespace(leased=leased, server=server, progress=progress, is_collecting=is_collecting)
    return cast("Run", facts)


# What is at work


def test_a_run_tells_its_prompt_its_node_and_how_many_are_done() -> None:
    progress = Progress(Stage.RUNNING, 0, "5", "KSampler", 3, 20, 2, 7, preview())
    run = run_with(progress)
    assert live_run(run) == LiveRun(
        job_id=7,
        config_name="a.yaml",
        batch_id="knights_1a2b3c4d",
        server="http://a:1",
        stage="rendering",
        node_type="KSampler",
        step=3,
        steps=20,
        prompt_id="prompt",
        node_id="5",
        nodes_done=2,
        nodes_total=7,
    )
    assert preview_of(run) is progress.preview


@pytest.mark.parametrize(
    ("progress", "is_collecting", "stage"),
    [
        (None, False, "sending"),
        (Progress(Stage.WAITING), False, "waiting"),
        (Progress(Stage.RUNNING), False, "rendering"),
        (Progress(Stage.ENDED), True, "fetching"),
    ],
)
def test_a_run_tells_its_stage(progress: Progress | None, is_collecting: bool, stage: str) -> None:
    run = run_with(progress, is_collecting=is_collecting)
    assert live_run(run).stage == stage
    assert preview_of(run) is None


def test_what_is_written_is_read_as_long_as_the_agent_lives(folder: Path, agent: AgentLock, file: LiveFile) -> None:
    file.write([(rendering(7), None), (rendering(8), None)])
    assert read_live(folder) == [rendering(7), rendering(8)]
    agent.release()
    assert read_live(folder) == []


def test_an_agent_of_an_older_version_is_understood(folder: Path, agent: AgentLock) -> None:
    facts = {"job_id": 7, "config_name": "a", "batch_id": None, "server": "http://a:1", "stage": "waiting"}
    (folder / f"{agent.worker}.live.json").write_text(json.dumps([{**facts, "of a later version": 1}]))
    assert read_live(folder) == [LiveRun(7, "a", None, "http://a:1", "waiting")]


@pytest.mark.parametrize("text", ["", "[", "{}", "[1]", "[[]]", '["job_id"]', "[{}]", '[{"job_id": 1}]', "[" * 100_000])
def test_nonsense_tells_nothing(folder: Path, agent: AgentLock, text: str) -> None:
    (folder / f"{agent.worker}.live.json").write_text(text)
    assert read_live(folder) == []


# Previews


def test_nothing_is_written_while_nobody_looks(folder: Path, file: LiveFile) -> None:
    file.write([(rendering(), preview())])
    assert pictures(folder) == []
    assert read_live(folder) == [rendering()]
    assert read_preview(folder, 7) is None


def test_while_someone_looks_the_newest_is_there_and_its_version_tells(folder: Path, file: LiveFile) -> None:
    want_previews(folder)
    rough, finer = preview(JPEG), preview(PNG)
    file.write([(rendering(), rough)])
    [first] = read_live(folder)
    assert read_preview(folder, 7) == JPEG
    file.write([(rendering(), rough)])
    assert read_live(folder) == [first]
    file.write([(rendering(), finer)])
    [second] = read_live(folder)
    assert read_preview(folder, 7) == PNG
    assert first.preview
    assert second.preview not in ("", first.preview)


def test_a_picture_that_did_not_change_is_not_hashed_or_written_again(
    folder: Path, file: LiveFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    want_previews(folder)
    same = preview()
    file.write([(rendering(), same)])
    monkeypatch.setattr(live_files, "_write", lambda path, _: pytest.fail(f"{path.name} was written again"))
    monkeypatch.setattr(live_files.hashlib, "sha256", lambda _: pytest.fail("it was hashed again"))
    file.write([(rendering(), same)])


def test_each_run_has_its_own(folder: Path, file: LiveFile) -> None:
    want_previews(folder)
    file.write([(rendering(7), preview(JPEG)), (rendering(8, "other"), preview(PNG)), (rendering(9, "third"), None)])
    assert [read_preview(folder, job_id) for job_id in (7, 8, 9)] == [JPEG, PNG, None]
    assert [bool(run.preview) for run in read_live(folder)] == [True, True, False]


def test_it_stays_while_the_result_is_fetched_and_goes_with_the_run(folder: Path, file: LiveFile) -> None:
    want_previews(folder)
    file.write([(rendering(), preview())])
    file.write([(rendering(), None)])
    assert read_preview(folder, 7) == JPEG
    assert read_live(folder)[0].preview
    file.write([])
    assert pictures(folder) == []


def test_the_next_try_of_a_job_does_not_show_the_last_one(folder: Path, file: LiveFile) -> None:
    want_previews(folder)
    file.write([(rendering(prompt_id="first"), preview())])
    file.write([(rendering(prompt_id="second"), None)])
    assert read_preview(folder, 7) is None
    assert read_live(folder) == [rendering(prompt_id="second")]


@pytest.mark.parametrize("seconds", [-WANTED_SECONDS - 1, WANTED_SECONDS + 1])
def test_when_nobody_looks_any_more_it_goes(folder: Path, file: LiveFile, seconds: float) -> None:
    """A clock that was set back does not keep it."""
    want_previews(folder)
    same = preview()
    file.write([(rendering(), same)])
    os.utime(folder / PREVIEWS_WANTED, (time.time() + seconds,) * 2)
    file.write([(rendering(), same)])
    assert pictures(folder) == []
    assert read_live(folder) == [rendering()]
    want_previews(folder)
    file.write([(rendering(), same)])
    assert read_preview(folder, 7) == JPEG, "and comes back for the next one who looks"


@pytest.mark.parametrize(
    "image", [b"", b"<html><script>alert(1)</script></html>", b"\0\0\0\x18ftypmp42", b"\0\x01" + JPEG]
)
def test_what_is_no_picture_is_not_shown(folder: Path, file: LiveFile, image: bytes) -> None:
    want_previews(folder)
    file.write([(rendering(), preview())])
    file.write([(rendering(), preview(image))])
    assert read_preview(folder, 7) == JPEG


def test_it_is_asked_for_where_no_agent_ever_was(folder: Path) -> None:
    want_previews(folder)
    assert (folder / PREVIEWS_WANTED).exists()
    assert read_preview(folder, 7) is None


def test_one_of_a_dead_agent_is_not_believed(folder: Path, agent: AgentLock, file: LiveFile) -> None:
    want_previews(folder)
    file.write([(rendering(), preview())])
    agent.release()
    assert pictures(folder)
    assert read_preview(folder, 7) is None


def test_one_that_is_too_large_is_not_read(folder: Path, agent: AgentLock) -> None:
    with (folder / f"{agent.worker}.7.preview").open("wb") as huge:
        huge.truncate(LARGEST_PREVIEW + 1)
    assert read_preview(folder, 7) is None


def test_at_the_stop_everything_goes_and_nothing_comes_after(folder: Path, agent: AgentLock, file: LiveFile) -> None:
    """A thread that was writing when its agent was stopped does not leave anything."""
    want_previews(folder)
    file.write([(rendering(), preview())])
    file.remove()
    late = threading.Thread(target=file.write, args=([(rendering(), preview(PNG))],))
    late.start()
    late.join(10)
    assert sorted(path.name for path in folder.iterdir()) == sorted([PREVIEWS_WANTED, f"{agent.worker}.lock"])


def test_what_a_dead_agent_left_is_removed_and_nothing_of_others(folder: Path, agent: AgentLock) -> None:
    other = AgentLock(folder)
    try:
        want_previews(folder)
        for lock in (agent, other):
            LiveFile(folder, lock.worker).write([(rendering(7), preview()), (rendering(8), preview())])
            (folder / f"{lock.worker}.7.preview.new").write_bytes(b"half")
            (folder / f"{lock.worker}.live.json.new").write_bytes(b"half")
        remove_stale(folder, agent.worker)
        names = {path.name for path in folder.iterdir()}
        assert {name for name in names if name.startswith(agent.worker)} == {f"{agent.worker}.lock"}
        assert len({name for name in names if name.startswith(other.worker)}) == 6
        assert PREVIEWS_WANTED in names
    finally:
        other.release()


def test_a_disk_that_takes_nothing_harms_nobody(folder: Path, file: LiveFile, monkeypatch: pytest.MonkeyPatch) -> None:
    want_previews(folder)

    def fail(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", fail)
        file.write([(rendering(), preview())])
    assert [path.name for path in folder.iterdir() if path.name.endswith(".new")] == []
    file.write([(rendering(), preview())])
    assert read_preview(folder, 7) == JPEG
    assert len(read_live(folder)) == 1
