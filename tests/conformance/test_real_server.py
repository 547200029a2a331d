"""The same tests run against a real ComfyUI where one is given; this one says whether that was so."""

from __future__ import annotations

import pytest

from support.shared_servers import HAS_REAL
from support.wire import Wire


@pytest.mark.skipif(not HAS_REAL, reason="no real ComfyUI took part: set E3_COMFYUI_URL or E3_COMFYUI_DIR")
async def test_a_server_of_a_known_version_took_part(wire: Wire) -> None:
    version = (await wire.get("/system_stats")).body["system"]["comfyui_version"]
    assert version.split(".")[0].isdecimal()
