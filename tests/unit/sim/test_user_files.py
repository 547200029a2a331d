"""The files that the simulator keeps for ComfyUI's page."""

from __future__ import annotations

import pytest

from comfyui_agent.sim import user_files
from comfyui_agent.sim.user_files import TooManyUserFiles, UserFiles, user_path


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("a/b.json", "a/b.json"),
        ("a%2Fb%20c.json", "a/b c.json"),
        ("./a/../b", "b"),
        ("..a/b", "..a/b"),
        (".", ""),
        ("..", None),
        ("a/../../b", None),
        ("%2E%2E/b", None),
        ("/etc/passwd", None),
    ],
)
def test_a_path_stays_in_the_folder_of_the_user(name: str, path: str | None) -> None:
    assert user_path(name) == path


def test_there_are_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(user_files, "MOST_ENTRIES", 3)
    monkeypatch.setattr(user_files, "MOST_BYTES", 10)
    kept = UserFiles()
    kept.write("a", b"12345678")
    with pytest.raises(TooManyUserFiles):
        kept.write("b", b"123")
    kept.write("b", b"")
    kept.write("c", b"")
    with pytest.raises(TooManyUserFiles):
        kept.write("d", b"")
    kept.make_folder("many/folders/in/each/other")
    assert len(kept.folders) == 3


def test_a_file_can_be_written_again_when_all_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(user_files, "MOST_ENTRIES", 1)
    monkeypatch.setattr(user_files, "MOST_BYTES", 5)
    kept = UserFiles()
    for content in (b"12345", b"54321", b"1"):
        kept.write("a", content)
    assert kept.files["a"].content == b"1"
