"""What only a real ComfyUI can show: that one took part, and that the simulator describes each node as it does."""

from __future__ import annotations

from typing import Any

import aiohttp
import pytest

from comfyui_agent.sim.settings import SimSettings
from comfyui_agent.sim.simulator import Simulator
from support.shared_servers import HAS_REAL, Servers
from support.wire import Wire

pytestmark = pytest.mark.skipif(not HAS_REAL, reason="no real ComfyUI took part: set E3_COMFYUI_URL or E3_COMFYUI_DIR")

MEASURED = ["0.7.0", "0.33.0"]
FILES = {"ckpt_name", "lora_name", "vae_name", "unet_name", "clip_name", "control_net_name", "model_name", "image"}
"""Inputs whose choices are files of an installation."""


async def test_a_server_of_a_known_version_took_part(wire: Wire) -> None:
    version = (await wire.get("/system_stats")).body["system"]["comfyui_version"]
    assert version.split(".")[0].isdecimal()


@pytest.mark.real_comfyui
async def test_the_simulator_describes_each_node_as_the_server_does(servers: Servers) -> None:
    async with aiohttp.ClientSession() as session:
        real = Wire(session, servers.url("real"))
        version = (await real.get("/system_stats")).body["system"]["comfyui_version"]
        if version not in MEASURED:
            pytest.skip(f"the nodes of {version} are not known")
        async with Simulator(SimSettings(imitate=version)) as simulator:
            simulated = (await Wire(session, simulator.url).get("/object_info")).body
        described = (await real.get("/object_info")).body
    del simulated["Sleep"]
    for name, info in simulated.items():
        assert without_files(info) == without_files(described[name]), name


def without_files(info: dict[str, Any]) -> dict[str, Any]:
    """A description without the choices that an installation makes."""
    for inputs in info["input"].values():
        for name in inputs.keys() & FILES:
            kind, *options = inputs[name]
            if isinstance(kind, list):
                inputs[name] = ["files", *options]
            elif kind == "COMBO":
                inputs[name] = [kind, {**options[0], "options": "files"}]
    return info
