"""A report says on what it was measured, as far as that can be told."""

from __future__ import annotations

import sys

import pytest

from comfyui_agent import __version__
from comfyui_agent.comfy.client import ComfyClient
from comfyui_agent.lab.measurement.machine import server_facts, this_machine
from support.shared_servers import Servers
from support.workspaces import NOWHERE

KEYS = {"server", "comfyui_version", "python", "pytorch", "system", "devices", "driver", "nodes"}


def test_this_machine_is_described() -> None:
    facts = this_machine()
    assert set(facts) == {"platform", "python", "cpu", "cores", "memory_mb", "e3"}
    assert facts["python"] == sys.version.split()[0]
    assert facts["cores"] >= 1
    assert facts["memory_mb"] > 100
    assert facts["cpu"]
    assert facts["e3"] == __version__


async def test_a_server_is_described_by_its_own_word(servers: Servers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    url = servers.url("sim")
    async with ComfyClient(url, listen=False) as client:
        facts = (await server_facts(client)).as_json()
    assert set(facts) == KEYS
    assert facts["server"] == url
    assert facts["comfyui_version"]
    assert facts["devices"][0] == {"name": "cuda:0 E3 simulated GPU", "kind": "cuda", "vram_total_mb": 24 * 1024}
    assert facts["driver"] is None
    assert facts["nodes"] > 10


async def test_a_server_that_is_gone_leaves_a_report_possible() -> None:
    async with ComfyClient(NOWHERE, listen=False) as client:
        facts = (await server_facts(client)).as_json()
    assert set(facts) == KEYS
    assert facts["server"] == NOWHERE
    assert facts["devices"] == []
    assert facts["nodes"] is None
