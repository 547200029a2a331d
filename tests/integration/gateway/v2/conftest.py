"""ComfyUI's own SDK, unchanged, pointed at E3: a gateway and an agent in front of simulators."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from comfy_sdk import Comfy

from support.agents import AgentWorkspace, wait_until
from support.gateways import start_gateway
from support.servers import simulator


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[AgentWorkspace, str]]:
    """A workspace of this module's own, and the address of its gateway."""
    folder = tmp_path_factory.mktemp("v2")
    server = simulator(folder / "server", "--render-seconds", "0.2").start()
    workspace, url = start_gateway(folder / "workspace", [server.url], E3_UI__PREVIEWS="always")
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("COMFY_BASE_URL", url)
        patched.delenv("COMFY_API_KEY", raising=False)
        with Comfy() as client:
            wait_until(
                lambda: client._low.raw_request("POST", "/jobs", json={"workflow": {}}).status_code != 503, "nodes"
            )
        yield workspace, url
    workspace.stop_all()
    server.stop()


@pytest.fixture
def client(place: tuple[AgentWorkspace, str]) -> Iterator[Comfy]:
    with Comfy() as made:
        yield made
