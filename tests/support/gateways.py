"""The gateway in front of servers, with an agent beside it."""

from __future__ import annotations

from pathlib import Path

from comfyui_agent.sim.process import answers
from support.agents import AgentWorkspace, wait_until
from support.children import keep
from support.servers import free_port


def start_gateway(folder: Path, backends: list[str], **environment: str) -> tuple[AgentWorkspace, str]:
    """A workspace whose agent and gateway run until its end, and the gateway's address."""
    workspace = AgentWorkspace(folder, backends, environment)
    port = free_port()
    for process in (workspace.start_gateway(port), workspace.start()):
        keep(process)
    url = f"http://127.0.0.1:{port}"
    wait_until(lambda: answers(url), "the gateway", timeout=30)
    return workspace, url
