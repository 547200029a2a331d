"""Servers that are started on first use and shared by a whole test run."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.agents import AgentWorkspace
from support.children import keep
from support.gateways import start_gateway
from support.servers import REAL_DIR, REAL_URL, ServerProcess, real_comfyui, simulator

RENDER_SECONDS = "1.5"

HAS_REAL = bool(REAL_URL or REAL_DIR)
KINDS = ["sim", *([pytest.param("real", marks=pytest.mark.real_comfyui)] if HAS_REAL else [])]

OLDER = "sim-0.7"
"""The simulator as an older ComfyUI."""

BEHIND = {"gateway": "sim", "real-gateway": "real"}
"""The server behind each gateway."""
GATEWAYS = [
    pytest.param("gateway", marks=pytest.mark.slow),
    *([pytest.param("real-gateway", marks=[pytest.mark.slow, pytest.mark.real_comfyui])] if HAS_REAL else []),
]


def server_process(kind: str, folder: Path, *, slow: bool) -> ServerProcess:
    """A server of that kind, not started. Sampling takes its time on a real one, and on a slow simulator."""
    if kind == "real":
        return real_comfyui(folder)
    version = ("--imitate", "0.7") if kind == OLDER else ()
    return simulator(folder, *version, *(("--render-seconds", RENDER_SECONDS) if slow else ()))


class Servers:
    """Started on first use and shared by the whole run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.started: dict[str, ServerProcess] = {}
        self.gateways: dict[str, tuple[AgentWorkspace, str]] = {}

    def url(self, kind: str, *, slow: bool = False) -> str:
        if kind in BEHIND:
            behind = self.url(BEHIND[kind], slow=slow)
            if behind not in self.gateways:
                self.gateways[behind] = start_gateway(self.folder / f"{kind}-{len(self.gateways)}", [behind])
            return self.gateways[behind][1]
        if kind == "real" and not REAL_DIR:
            return REAL_URL.rstrip("/")
        name = f"{kind}-slow" if slow and kind != "real" else kind
        if name not in self.started:
            self.started[name] = server_process(kind, self.folder / name, slow=slow).start()
            keep(self.started[name].process)
        return self.started[name].url

    def stop(self) -> None:
        for workspace, _ in self.gateways.values():
            workspace.stop_all()
        for process in self.started.values():
            process.stop()
