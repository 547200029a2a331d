"""A file name made from a server's word leads nowhere but into the folder that it is used in."""

from __future__ import annotations

import errno
from pathlib import Path, PurePosixPath, PureWindowsPath

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from comfyui_agent.comfy.content import FileKind
from comfyui_agent.comfy.downloads import LONGEST_NAME, RESERVED, StagedFile, safe_name
from comfyui_agent.comfy.results import ResultFile

NAMES = st.text(st.characters() | st.sampled_from("./\\:~ \0\n\ud800"))


@pytest.mark.parametrize(
    ("server_name", "name"),
    [
        ("a_00001_.png", "a_00001_.png"),
        ("../../etc/passwd", "passwd"),
        ("/etc/passwd", "passwd"),
        ("C:\\Windows\\x.png", "x.png"),
        ("C:x.png", "C_x.png"),
        (".hidden", "hidden"),
        ("..", "_"),
        ("", "_"),
        ("a/", "_"),
        ("   ", "_"),
        ("con", "_con"),
        ("NUL.png", "_NUL.png"),
        ("a\0b\n.png", "a_b_.png"),
        ("ünïcode 🎨.png", "ünïcode 🎨.png"),
        ("e\u0301.png", "é.png"),
        ("trailing. . ", "trailing"),
    ],
)
def test_names_are_made_safe(server_name: str, name: str) -> None:
    assert safe_name(server_name) == name


@given(NAMES)
@example("x" * 500 + ".png")
@example("é" * 500)
@example("a." + "🎨" * 100)
@example("a" * 119 + " b")
@example("a.xxxxxxxxxxxxxxx y")
@example("con.a.b")
@example(". .a")
def test_no_name_leads_outside_or_trips_a_file_system(server_name: str) -> None:
    name = safe_name(server_name)
    assert name
    assert PurePosixPath(name).parts == (name,)
    assert PureWindowsPath(name).parts == (name,)
    assert (Path("/folder") / name).parent == Path("/folder")
    assert not name.startswith(".")
    assert not name.endswith((".", " "))
    assert name.isprintable()
    assert len(name.encode()) <= LONGEST_NAME + 80
    assert not RESERVED.fullmatch(name)


@given(NAMES)
def test_a_safe_name_stays_as_it_is(server_name: str) -> None:
    assert safe_name(safe_name(server_name)) == safe_name(server_name)


def test_without_hard_links_a_taken_name_is_still_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_links(*_: object) -> None:
        raise OSError(errno.EPERM, "this file system has no hard links")

    monkeypatch.setattr("os.link", no_links)
    result = ResultFile("1", "images", "a.png", "", "output")
    for name in ("first", "second"):
        (tmp_path / name).write_text(name)
    first, second = (StagedFile(result, tmp_path / name, FileKind("png", "image"), 5) for name in ("first", "second"))
    first.publish(tmp_path / "a.png", overwrite=False)
    with pytest.raises(FileExistsError):
        second.publish(tmp_path / "a.png", overwrite=False)
    assert (tmp_path / "a.png").read_text() == "first"
    assert not (tmp_path / "first").exists()
