"""Where reports go: known before the measurement, whole or not at all, never over an earlier one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from comfyui_agent.lab.files import Unwritable, check_writable, file_stem, today, unused, write_json, write_text
from support.terminal import like_anyone


def test_a_folder_is_made_and_left_as_it_was(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    check_writable(folder)
    assert folder.is_dir()
    assert not list(folder.iterdir())


def test_a_file_in_the_way_is_one_line_that_names_the_option(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("kept")
    for folder in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(Unwritable, match=r"cannot write to .*; give another place with --there") as caught:
            check_writable(folder, "--there")
        assert "\n" not in str(caught.value)
    assert (tmp_path / "file").read_text() == "kept"


@pytest.mark.skipif(os.name == "nt", reason="rights are those of POSIX")
def test_a_folder_without_the_right_to_write_is_refused(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o555)
    code = (
        "import sys; from pathlib import Path; from comfyui_agent.lab.files import *\n"
        "try: check_writable(Path(sys.argv[1]))\n"
        "except Unwritable as e: sys.exit(3)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(closed)], preexec_fn=like_anyone, check=False)
    assert done.returncode == 3


def test_a_text_is_whole_or_not_there(tmp_path: Path) -> None:
    target = tmp_path / "report.json"
    write_json(target, {"words": "Füchse 狐狸 🦊"})
    assert json.loads(target.read_text(encoding="utf-8")) == {"words": "Füchse 狐狸 🦊"}
    assert "狐狸" in target.read_text(encoding="utf-8")
    (tmp_path / "folder").mkdir()
    with pytest.raises(Unwritable, match="folder"):
        write_text(tmp_path / "folder", "x")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", "report.json"]


def test_broken_unicode_is_written_all_the_same(tmp_path: Path) -> None:
    write_json(tmp_path / "x.json", {"words": "\ud800"})
    assert "words" in json.loads((tmp_path / "x.json").read_text(encoding="utf-8"))


def test_a_full_disk_leaves_the_earlier_file_and_no_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "report.json"
    write_text(target, "earlier")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(Unwritable, match=r"report\.json: No space left on device"):
        write_text(target, "later")
    assert target.read_text() == "earlier"
    assert [path.name for path in tmp_path.iterdir()] == ["report.json"]


def test_the_longest_name_that_a_file_may_have_can_be_written(tmp_path: Path) -> None:
    target = tmp_path / ("n" * 250 + ".json")
    target.write_text("")  # the file system takes it
    write_text(target, "x")
    assert target.read_text() == "x"


def test_a_name_that_is_too_long_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(Unwritable):
        write_text(tmp_path / ("n" * 300), "x")


def test_what_is_no_plain_file_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    """`--output /dev/null` by root would otherwise take the device away from everyone."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    handle = os.open(pipe, os.O_RDWR | os.O_NONBLOCK)  # somebody listens
    try:
        write_text(pipe, "x")
        assert pipe.is_fifo()
        assert os.read(handle, 10) == b"x"
    finally:
        os.close(handle)


def test_an_earlier_report_keeps_its_name(tmp_path: Path) -> None:
    endings = (".json", ".html")
    assert unused(tmp_path, "load_x", endings) == "load_x"
    (tmp_path / "load_x.html").write_text("")
    assert unused(tmp_path, "load_x", iter(endings)) == "load_x_2"
    (tmp_path / "load_x_2.json").write_text("")
    assert unused(tmp_path, "load_x", endings) == "load_x_3"


@pytest.mark.parametrize(
    ("text", "stem"),
    [
        ("book_medium", "book_medium"),
        ("a/b\\c:d", "a-b-c-d"),
        ("../../etc/passwd", "etc-passwd"),
        ("", "report"),
        ("...", "report"),
        ("Füchse 狐狸", "Füchse-狐狸"),
        ("\n\x1b[31m", "31m"),
    ],
)
def test_a_stem_is_a_name_that_every_file_system_takes(text: str, stem: str) -> None:
    assert file_stem(text) == stem


def test_a_stem_is_never_longer_than_a_name_may_be(tmp_path: Path) -> None:
    for letter in ("x", "狐", "🦊"):
        name = f"comfyui_metrics_load_{file_stem(letter * 500)}_2.ndjson"
        write_text(tmp_path / name, "")


def test_a_day_is_one_of_the_calendar() -> None:
    year, month, day = today().split("-")
    assert (len(year), len(month), len(day)) == (4, 2, 2)
