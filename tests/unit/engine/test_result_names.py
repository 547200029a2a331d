"""What results are called, and that nothing leads out of the workspace."""

from __future__ import annotations

from pathlib import Path

import pytest

from comfyui_agent.config.settings import Settings
from comfyui_agent.config.workspace import Workspace
from comfyui_agent.domain.jobs import AttemptId, JobId
from comfyui_agent.domain.prompts import PromptId
from comfyui_agent.domain.retry_policy import Tally
from comfyui_agent.engine.result_names import stem_of, targets
from comfyui_agent.files.folder import keep_aside
from comfyui_agent.store.records import Lease, Leased


def leased(config_name: str = "knight.yaml", job_type: str = "T2I", file_path: str | None = None) -> Leased:
    return Leased(
        Lease(JobId(1), 1, AttemptId(1)),
        config_name,
        job_type,
        "wf",
        None,
        None,
        "http://s",
        PromptId("p"),
        Tally(),
        file_path=file_path,
    )


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path, Settings())


@pytest.mark.parametrize(
    ("job", "expected"),
    [
        (leased(), "jobs/finished/image/knight"),
        (leased("a.yml", "T2V"), "jobs/finished/video/a"),
        (leased("v1.5 test.yaml", "3D"), "jobs/finished/3d/v1.5 test"),
        (leased("no ending", "tts"), "jobs/finished/speech/no ending"),
        (leased(file_path="out/k.png"), "out/k"),
        (leased(file_path="out/k.v2"), "out/k.v2"),
        (leased(file_path="out/deep/../k.JPEG"), "out/k"),
    ],
)
def test_results_go_where_the_job_says_or_are_named_after_it(workspace: Workspace, job: Leased, expected: str) -> None:
    assert workspace.shown(stem_of(job, workspace)) == expected


@pytest.mark.parametrize(
    "job",
    [
        leased(file_path="../k.png"),
        leased(file_path="/etc/k.png"),
        leased(file_path="out/../../k.png"),
        leased(file_path="link/k.png"),
        leased(file_path="a\0b.png"),
        leased(file_path="."),
        leased("../k.yaml"),
        leased("a/b.yaml"),
        leased("a\\b.yaml"),
        leased("..yaml"),
        leased(".yaml"),
        leased(job_type="PAINTING"),
    ],
)
def test_what_leads_out_or_names_nothing_is_refused(workspace: Workspace, job: Leased) -> None:
    (workspace.root / "link").symlink_to("/tmp")
    with pytest.raises(ValueError):
        stem_of(job, workspace)


def test_the_first_result_has_the_plain_name_and_each_its_own_extension() -> None:
    paths = targets(Path("/w/v1.5"), ["png", "mp4", "png"])
    assert [path.name for path in paths] == ["v1.5.png", "v1.5_2.mp4", "v1.5_3.png"]


def test_another_take_leaves_out_the_numbers_of_the_others() -> None:
    taken = ["out/k.png", "out/k_3.f7.mp4", "out/k_x.png", "out/other_2.png"]
    names = [path.name for path in targets(Path("/w/k"), ["png", "png", "png"], taken)]
    assert names == ["k_2.png", "k_4.png", "k_5.png"]


def test_a_file_in_the_way_is_kept_and_never_overwrites_another(tmp_path: Path) -> None:
    kept = []
    for text in ("one", "two"):
        (tmp_path / "k.png").write_text(text)
        kept.append(keep_aside(tmp_path / "k.png"))
    assert [path.name for path in kept] == ["k.kept-1.png", "k.kept-2.png"]
    assert [path.read_text() for path in kept] == ["one", "two"]
