"""Servers that are started on first use and shared by a whole test run."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.children import keep
from support.servers import REAL_DIR, REAL_URL, ServerProcess, real_comfyui, simulator

RENDER_SECONDS = "1.5"

HAS_REAL = bool(REAL_URL or REAL_DIR)
KINDS = ["sim", *([pytest.param("real", marks=pytest.mark.real_comfyui)] if HAS_REAL else [])]


class Servers:
    """Started on first use and shared by the whole run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.started: dict[str, ServerProcess] = {}

    def url(self, kind: str, *, slow: bool = False) -> str:
        if kind == "real" and not REAL_DIR:
            return REAL_URL.rstrip("/")
        name = f"{kind}-slow" if slow and kind == "sim" else kind
        if name not in self.started:
            self.started[name] = self._process(name).start()
            keep(self.started[name].process)
        return self.started[name].url

    def _process(self, name: str) -> ServerProcess:
        folder = self.folder / name
        match name:
            case "real":
                return real_comfyui(folder)
            case "sim-slow":
                return simulator(folder, "--render-seconds", RENDER_SECONDS)
            case _:
                return simulator(folder)

    def stop(self) -> None:
        for process in self.started.values():
            process.stop()
