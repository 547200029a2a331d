"""Servers to test against: the simulator as a child process, or a real ComfyUI that is up or is started here."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from comfyui_agent.sim.process import ServerProcess, free_port, simulator

__all__ = ["REAL_DIR", "REAL_URL", "ServerProcess", "free_port", "real_comfyui", "simulator"]

REAL_URL = os.environ.get("E3_COMFYUI_URL", "")
REAL_DIR = os.environ.get("E3_COMFYUI_DIR", "")
REAL_PYTHON = os.environ.get("E3_COMFYUI_PYTHON", "")


def real_comfyui(folder: Path, *flags: str, port: int | None = None) -> ServerProcess:
    """A ComfyUI from the checkout in E3_COMFYUI_DIR, on the CPU, with folders of its own."""
    checkout = Path(REAL_DIR)
    port = port or free_port()
    for name in ("custom_nodes", "input", "output", "models/checkpoints"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    sender = folder / "custom_nodes" / "websocket_image_save.py"  # a node that comes with ComfyUI
    sender.write_bytes((checkout / "custom_nodes" / sender.name).read_bytes())
    for checkpoint in (checkout / "models" / "checkpoints").glob("*.safetensors"):
        link = folder / "models" / "checkpoints" / checkpoint.name
        if not link.exists():
            link.symlink_to(checkpoint)
    command = [_real_python(checkout), "main.py", "--cpu", "--listen", "127.0.0.1", "--port", str(port)]
    command += ["--base-directory", str(folder), "--temp-directory", str(folder / "t")]
    command += ["--database-url", "sqlite:///:memory:", "--disable-api-nodes", *flags]
    return ServerProcess(command, f"http://127.0.0.1:{port}", folder, folder / "server.log", working_dir=checkout)


def _real_python(checkout: Path) -> str:
    if REAL_PYTHON:
        return REAL_PYTHON
    for candidate in ("venv/bin/python", ".venv/bin/python"):
        if (checkout / candidate).exists():
            return str(checkout / candidate)
    return shutil.which("python3") or sys.executable
