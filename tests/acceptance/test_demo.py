"""A newcomer's first command ends in pictures."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

from support.command import e3


def test_the_demo_renders_pictures_and_a_film_and_explains_the_one_that_cannot_be(tmp_path: Path) -> None:
    answer = e3("demo", cwd=tmp_path, timeout=90)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    folder = tmp_path / "demo_output"
    names = sorted(path.name for path in folder.iterdir())
    assert names == [
        "01_lighthouse.png",
        "02_lighthouse_again.png",
        "03_harbour.png",
        "04_harbour_in_ink.png",
        "05_knight.png",
        "06_knight_in_haste.png",
        "07_sunrise.webm",
    ]
    pictures = [path for path in folder.iterdir() if path.suffix == ".png"]
    shown = set()
    for path in pictures:
        with Image.open(path) as picture:
            assert picture.size == (768, 512)
            assert "prompt" in picture.info
            shown.add(picture.tobytes())
    assert len(shown) == len(pictures)
    lines = answer.stdout.splitlines()
    assert any("08_missing_model" in line and "not_installed.safetensors" in line for line in lines)
    assert "7 of 8 done, 1 needs attention, as it should." in lines
    assert str(folder) in lines[-1]


def test_a_second_demo_in_the_same_folder_works_too(tmp_path: Path) -> None:
    (tmp_path / "demo_output").mkdir()
    (tmp_path / "demo_output" / "01_lighthouse.png").write_bytes(b"old")
    assert e3("demo", cwd=tmp_path, timeout=90).returncode == 0
    assert (tmp_path / "demo_output" / "01_lighthouse.png").stat().st_size > 1000


def test_a_folder_that_cannot_be_made_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file")
    answer = e3("demo", "--output-dir", str(tmp_path / "taken"), timeout=90)
    assert answer.returncode == 1
    assert len(answer.stderr.splitlines()) == 1
    assert "--output-dir" in answer.stderr


@pytest.mark.parametrize("seconds", [0.3, 0.6, 2.0])
def test_ctrl_c_ends_the_demo_and_its_simulator(tmp_path: Path, seconds: float) -> None:
    command = [sys.executable, "-m", "comfyui_agent", "demo"]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    demo = subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.DEVNULL, start_new_session=True)
    with pytest.raises(subprocess.TimeoutExpired):
        demo.wait(timeout=seconds)
    demo.send_signal(signal.SIGINT)
    assert demo.wait(timeout=10) == 130
    assert _simulators_below(tmp_path) == []


def _simulators_below(folder: Path) -> list[str]:
    commands = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            commands.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode())
    return [command for command in commands if str(folder) in command]
