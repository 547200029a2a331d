"""Addresses of buckets: what is taken, and what is refused without repeating a secret."""

from __future__ import annotations

from pathlib import Path

import pytest

from comfyui_agent.config.settings import Paths, Settings
from comfyui_agent.config.workspace import Workspace
from comfyui_agent.domain.locations import Location, object_url


@pytest.mark.parametrize(
    ("given", "taken"),
    [
        ("s3://bucket", "s3://bucket"),
        ("s3://my.bucket-1/a/b/", "s3://my.bucket-1/a/b"),
        ("gs://bucket/with%20space", "gs://bucket/with%20space"),
        ("az://container/x", "az://container/x"),
    ],
)
def test_an_address_is_a_bucket_and_a_prefix(given: str, taken: str) -> None:
    assert object_url(given) == taken


@pytest.mark.parametrize(
    "given",
    [
        "s3://",
        "s3:///x",
        "ftp://host/x",
        "http://host/x",
        "s3://b/../c",
        "s3://bucket//x",
        "s3://bucket/x?y=1",
        "s3://b x/",
    ],
)
def test_anything_else_is_refused(given: str) -> None:
    with pytest.raises(ValueError, match="write s3://bucket/prefix"):
        object_url(given)


def test_credentials_are_refused_and_not_repeated() -> None:
    with pytest.raises(ValueError, match="credentials do not belong there") as refused:
        object_url("s3://user:hunter22@bucket/x")
    assert "hunter22" not in str(refused.value)


def test_inputs_are_folders_and_one_address() -> None:
    assert Paths(inputs="s3://bucket/inputs/").inputs == ("s3://bucket/inputs",)
    assert Paths(inputs=["/mnt/pictures", "gs://bucket/x"]).inputs == ("/mnt/pictures", "gs://bucket/x")
    with pytest.raises(ValueError, match="one address"):
        Paths(inputs=["s3://bucket/a", "s3://bucket/b"])


def test_names_are_the_same_wherever_results_lie(tmp_path: Path) -> None:
    for results in ("", "renders", str(tmp_path / "share"), "s3://bucket/x"):
        workspace = Workspace(tmp_path / "ws", Settings(paths=Paths(results=results)))
        path = workspace.inside("jobs/finished/image/fox.png")
        workspace.check_result(path)
        assert workspace.shown(path) == "jobs/finished/image/fox.png"
        assert workspace.finished("image") == path.parent
        assert workspace.finished_files("image") == tmp_path / "ws" / "jobs" / "finished" / "image"
        for outside in ("../x.png", "/etc/passwd"):
            with pytest.raises(ValueError, match="leads out"):
                workspace.inside(outside)
        with pytest.raises(ValueError, match="hidden"):
            workspace.check_result(workspace.inside("jobs/.x.png"))


def test_an_address_is_for_people() -> None:
    assert Location(Path("/ws")).address("a/b.png") == "/ws/a/b.png"
    assert Location(Path("/v"), "s3://bucket/x").address("a/b.png") == "s3://bucket/x/a/b.png"
