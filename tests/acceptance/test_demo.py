"""A newcomer's first command ends in pictures."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest
from PIL import Image

from support.command import e3
from support.sampling import some
from support.terminal import in_terminal


@pytest.mark.slow
def test_the_demo_renders_twelve_jobs_a_sweep_and_a_book_and_explains_what_cannot_be(tmp_path: Path) -> None:
    answer = e3("demo", cwd=tmp_path, timeout=110)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    finished = tmp_path / "demo_output" / "jobs" / "finished"
    names = sorted(path.name for path in (finished / "image").iterdir() if path.suffix == ".png")
    assert names == [
        "01_knight.png",
        "02_knight_again.png",
        "03_captain.png",
        "04_captain_in_ink.png",
        "05_gardener.png",
        "06_astronomer.png",
        "07_dancer.png",
        "09_violinist.png",
        "10_castle_in_watercolour.png",
        "11_castle_in_winter.png",
    ]
    assert [path.name for path in (finished / "video").iterdir() if path.suffix == ".webm"] == ["12_sunrise.webm"]
    shown = set()
    for name in names:
        with Image.open(finished / "image" / name) as picture:
            assert "prompt" in picture.info
            shown.add(picture.tobytes())
    assert len(shown) == len(names)
    everything = json.loads(e3("queue", "ls", "--json", "-C", "demo_output", cwd=tmp_path).stdout)
    assert len(everything) == 12 + 9 + 6
    rows = [row for row in everything if row["batch_id"] is None]
    assert len(rows) == 12
    assert len({row["workflow_id"] for row in rows}) == 3
    (failed,) = [row for row in rows if row["status"] == "failed"]
    assert failed["config_name"] == "08_dragon_tamer.yaml"
    assert failed["failure_class"] == "missing"
    assert [row["run_count"] for row in rows if row["retries_attempted"]] == [2]
    lines = answer.stdout.splitlines()
    assert any("08_dragon_tamer" in line and "not_installed.safetensors" in line for line in lines)
    assert "11 of 12 done, 1 needs attention, as it should:" in lines
    book, sweep = json.loads(e3("batch", "ls", "--json", "-C", "demo_output", cwd=tmp_path).stdout)
    assert (sweep["kind"], sweep["status"], sweep["done"], sweep["failed"]) == ("sweep", "complete", 9, 0)
    assert (book["id"], book["kind"], book["done"], book["failed"]) == ("winter_tales", "book", 5, 1)
    with Image.open(tmp_path / "demo_output" / sweep["grid"]) as grid:
        assert grid.width > 3 * 300
    assert (tmp_path / "demo_output" / sweep["grid"]).with_suffix(".html").is_file()
    pages = json.loads(e3("book", "show", "winter_tales", "--json", "-C", "demo_output", cwd=tmp_path).stdout)["pages"]
    assert [page["status"] for page in pages] == [*["Done"] * 3, "Needs attention", *["Done"] * 2]
    assert any("page 4" in line and "not_installed.safetensors" in line for line in lines)
    (left,) = (tmp_path / "demo_output" / "jobs" / "processing").rglob("*.yaml")
    assert left.name == "08_dragon_tamer.yaml"


@pytest.mark.slow
def test_a_second_demo_replaces_the_first_and_nothing_else(tmp_path: Path) -> None:
    folder = tmp_path / "demo_output"
    folder.mkdir()
    (folder / "holiday.png").write_bytes(b"mine")
    answer = e3("demo", cwd=tmp_path, timeout=90)
    assert answer.returncode == 1
    assert "is not empty" in answer.stderr
    assert (folder / "holiday.png").read_bytes() == b"mine"
    (folder / "holiday.png").rename(folder / ".e3_demo")
    assert e3("demo", cwd=tmp_path, timeout=110).returncode == 0
    assert (folder / "jobs" / "finished" / "image" / "01_knight.png").stat().st_size > 1000


def test_a_folder_that_cannot_be_made_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file")
    answer = e3("demo", "--output-dir", str(tmp_path / "taken"), timeout=90)
    assert answer.returncode == 1
    assert len(answer.stderr.splitlines()) == 1
    assert "--output-dir" in answer.stderr


@pytest.mark.parametrize("seconds", some([0.6, 0.3, 2.0], 3))
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


@pytest.mark.slow
def test_on_a_terminal_the_demo_keeps_its_page_up_until_ctrl_c_and_does_what_is_asked_there(tmp_path: Path) -> None:
    with in_terminal("demo", cwd=tmp_path, columns=160, environment={"CI": ""}) as terminal:
        terminal.wait_for("It stays up until Ctrl-C", timeout=100)
        found = re.search(r"The page\s+(http://127\.0\.0\.1:\d+)", terminal.text)
        assert found is not None
        page = found[1]
        with urllib.request.urlopen(f"{page}/books/winter_tales") as answer:
            assert "Needs attention" in answer.read().decode()
        body = json.dumps({"inputs": {"checkpoint": "auto"}}).encode()
        address = f"{page}/admin/books/winter_tales/regenerate-page/4"
        wish = urllib.request.Request(address, body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(wish) as answer:
            assert (answer.status, json.load(answer)) == (202, {"book_id": "winter_tales", "pages": [4]})
        deadline = time.monotonic() + 20
        while _badges(page) != ["Done"] * 6:
            assert time.monotonic() < deadline, _badges(page)
            time.sleep(0.2)
        terminal.press_ctrl_c()
        assert terminal.finish(15) == 0


def _badges(page: str) -> list[str]:
    with urllib.request.urlopen(f"{page}/api/v1/books/winter_tales") as answer:
        return [each["status"] for each in json.load(answer)["pages"]]
