"""`e3 nodes install`: what it says, what a script gets, and how it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from comfyui_agent import __version__
from comfyui_agent.nodes.installer import build
from support.workspaces import call_e3, everything_in, run_e3


@pytest.fixture(scope="module")
def files() -> int:
    """How many the pack has."""
    return len(build())


@pytest.fixture
def comfyui(tmp_path: Path) -> Path:
    (tmp_path / "ComfyUI" / "custom_nodes").mkdir(parents=True)
    return tmp_path / "ComfyUI"


@pytest.fixture
def target(comfyui: Path) -> Path:
    return comfyui / "custom_nodes" / "e3_iterator"


def test_it_says_what_is_where_and_how_to_go_on(comfyui: Path, target: Path, files: int) -> None:
    answer = run_e3("nodes", "install", "ComfyUI", cwd=comfyui.parent)
    assert (answer.returncode, answer.stderr) == (0, "")
    first, then, later = answer.stdout.splitlines()
    assert first == f"Installed E3 Iterator {__version__} in {target} ({files} files)."
    assert then.startswith("Restart ComfyUI")
    assert "To update, give the same command" in later
    assert "To remove, delete that folder" in later
    assert (target / "__init__.py").is_file()


def test_again_it_says_that_nothing_changed(comfyui: Path, target: Path, files: int) -> None:
    call_e3("nodes", "install", str(comfyui))
    before = everything_in(comfyui)
    answer = call_e3("nodes", "install", str(comfyui))
    assert answer.returncode == 0
    assert answer.stdout == (f"E3 Iterator {__version__} is in {target} already ({files} files): nothing changed.\n")
    assert everything_in(comfyui) == before


def test_a_script_gets_one_document(comfyui: Path, target: Path, files: int) -> None:
    told = []
    for _ in range(2):
        told.append(json.loads(call_e3("nodes", "install", str(comfyui), "--json").stdout))
    (target / "README.md").unlink()
    told.append(json.loads(call_e3("nodes", "install", str(comfyui), "--json").stdout))
    always = {"path": str(target), "version": __version__, "files": files}
    assert told == [
        {**always, "replaced": False, "changed": True},
        {**always, "replaced": False, "changed": False},
        {**always, "replaced": True, "changed": True},
    ]


def test_changed_files_are_listed_and_force_replaces_them(comfyui: Path, target: Path) -> None:
    call_e3("nodes", "install", str(comfyui))
    for number in range(14):
        (target / f"mine_{number:02}.py").write_text("mine", encoding="utf-8")
    answer = call_e3("nodes", "install", str(comfyui), "--json")
    assert (answer.returncode, answer.stdout) == (1, "")
    first, *listed = answer.stderr.splitlines()
    assert first.startswith(f"e3: 14 files were changed or added in {target}")
    assert "--force" in first
    assert listed == [*(f"  mine_{number:02}.py" for number in range(12)), "  and 2 more"]
    answer = call_e3("nodes", "install", str(comfyui), "--force")
    assert answer.returncode == 0
    assert answer.stdout.startswith("Replaced the earlier installation by E3 Iterator")
    assert not (target / "mine_00.py").exists()


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("nowhere", "there is no folder nowhere: give ComfyUI's own"),
        ("ComfyUI/main.py", "ComfyUI/main.py is a file: give ComfyUI's folder"),
        ("ComfyUI/custom_nodes", "ComfyUI/custom_nodes is too deep: give the folder above custom_nodes, "),
        ("night", "night has no folder custom_nodes: give ComfyUI's folder"),
    ],
)
def test_another_folder_is_wrong_usage(comfyui: Path, given: str, says: str) -> None:
    (comfyui / "main.py").touch()
    (comfyui.parent / "night").mkdir()
    before = everything_in(comfyui.parent)
    answer = call_e3("nodes", "install", given, cwd=comfyui.parent)
    assert (answer.returncode, answer.stdout) == (2, "")
    (line,) = answer.stderr.splitlines()
    assert line.startswith(f"e3: {says}")
    assert everything_in(comfyui.parent) == before


def test_what_is_not_ours_is_refused_in_one_line(comfyui: Path, target: Path) -> None:
    target.mkdir()
    answer = call_e3("nodes", "install", str(comfyui), "--force")
    assert (answer.returncode, answer.stdout) == (1, "")
    (line,) = answer.stderr.splitlines()
    assert line.startswith(f"e3: {target} was not made by E3: move it out of custom_nodes")


def test_a_disk_that_refuses_is_one_line(comfyui: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, *_: object, **__: object) -> None:
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr(Path, "mkdir", full)
    answer = call_e3("nodes", "install", str(comfyui))
    assert (answer.returncode, answer.stdout) == (1, "")
    (line,) = answer.stderr.splitlines()
    assert "cannot be changed: No space left on device; nothing was installed" in line
    assert list((comfyui / "custom_nodes").iterdir()) == []
