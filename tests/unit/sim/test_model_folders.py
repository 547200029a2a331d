"""Where the models that are offered lie, and where a server keeps its files."""

from __future__ import annotations

from pathlib import Path

import pytest

from comfyui_agent.sim.engine.definitions import model_folders
from comfyui_agent.sim.settings import CHECKPOINTS, Folders


def test_a_bare_name_is_a_checkpoint() -> None:
    assert model_folders(CHECKPOINTS)["checkpoints"] == list(CHECKPOINTS)


def test_a_folder_before_the_name_is_where_it_goes() -> None:
    folders = model_folders(("loras/ink.safetensors", "vae/sharp.pt", "embeddings/sub/bad_hands.pt"))
    assert folders["loras"] == ["ink.safetensors"]
    assert folders["vae"] == ["sharp.pt"]
    assert folders["embeddings"] == ["sub/bad_hands.pt"]
    assert folders["checkpoints"] == []


def test_an_unknown_folder_is_part_of_a_checkpoints_name() -> None:
    assert model_folders(("sdxl/base.safetensors",))["checkpoints"] == ["sdxl/base.safetensors"]


def test_names_are_listed_once_and_as_people_count() -> None:
    assert model_folders(("v10", "v9", "v10"))["checkpoints"] == ["v9", "v10"]


@pytest.mark.parametrize("name", ["", "  ", "loras/", "/"])
def test_what_names_no_file_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="names no model: give NAME or FOLDER/NAME"):
        model_folders((name,))


@pytest.mark.parametrize(
    "name", ["/etc/passwd", "/etc/passwd [input]", "../x [output]", "../../input/../x", "out/x", "\0"]
)
def test_a_file_outside_its_folder_is_not_found(tmp_path: Path, name: str) -> None:
    folders = Folders.below(tmp_path / "output")
    folders.input.mkdir(parents=True)
    (folders.input / "out").symlink_to(tmp_path)
    assert folders.locate(name) is None


@pytest.mark.parametrize("name", ["x.png", "sub/x.png", "sub/../x.png [input]"])
def test_a_file_in_its_folder_is_found(tmp_path: Path, name: str) -> None:
    folders = Folders.below(tmp_path)
    found = folders.locate(name)
    assert found is not None
    assert found.is_relative_to(folders.input)
