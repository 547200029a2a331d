"""ComfyUI folders whose main.py does what a test wants, and the slots that were launched from them."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from comfyui_agent.fleet.launch import process
from comfyui_agent.fleet.launch.launcher import STARTED
from comfyui_agent.fleet.launch.state import SlotFolder
from support.servers import free_port

FOR_EVER = "import time\nprint('To see the GUI go to', flush=True)\ntime.sleep(1000)\n"


def comfyui_folder(folder: Path, main: str = FOR_EVER) -> Path:
    """A folder with a main.py, which is run without any of ComfyUI's flags being looked at."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "main.py").write_text(main)
    return folder


def launch_section(directory: Path, **settings: Any) -> dict[str, Any]:
    """A section of `comfyui.launch` for one process on the CPU."""
    section = {"directory": str(directory), "python": sys.executable, "gpus": "cpu", "port_from": free_port()}
    return section | settings


def slots_in(workspace: Path) -> list[SlotFolder]:
    return [SlotFolder(path) for path in sorted((workspace / "comfyui").glob("*")) if path.is_dir()]


def starts_of(folder: SlotFolder) -> int:
    """How often a process was started there, by its log."""
    path = folder.path / "log.txt"
    return path.read_text(errors="replace").count(STARTED) if path.exists() else 0


def related(folder: SlotFolder) -> list[int]:
    """Everything that a slot has started and that lives."""
    return [pid for pid in process._relatives(folder) if not _is_zombie(pid)]


def _is_zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def ended(workspace: Path) -> Iterator[None]:
    """For fixtures: nothing that was launched in a workspace outlives the test."""
    yield
    for folder in slots_in(workspace):
        process.kill(folder)
        process.is_running(folder)


def signal_slot(folder: SlotFolder, number: int) -> None:
    os.kill(folder.pid, number)
