"""ComfyUI's own SDK, unchanged, pointed at E3: a gateway and an agent in front of simulators."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from comfy_sdk import Comfy

from support.agents import AgentWorkspace, wait_until
from support.fronts import comfyui_for_clients
from support.gateways import start_gateway
from support.servers import simulator
from support.shared_servers import KINDS


@pytest.fixture(scope="module", params=KINDS)
def house(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[AgentWorkspace, str]]:
    """A workspace of this module's own, and the address of its gateway."""
    folder = tmp_path_factory.mktemp("v2") / "server"
    is_real = request.param == "real"
    server = comfyui_for_clients(folder) if is_real else simulator(folder, "--render-seconds", "0.2")
    server.start()
    workspace, url = start_gateway(folder.with_name("workspace"), [server.url], E3_UI__PREVIEWS="always")
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
def workspace(house: tuple[AgentWorkspace, str]) -> AgentWorkspace:
    return house[0]


@pytest.fixture
def place(house: tuple[AgentWorkspace, str]) -> str:
    return house[1]


@pytest.fixture
def client(place: str) -> Iterator[Comfy]:
    with Comfy() as made:
        yield made
