"""Checks hold for the simulator as the ComfyUI of today and as an older one, for a real one where it is given, and for
the gateway in front of either, but for what is marked `not_at_gateway`."""

from __future__ import annotations

import pytest

from support.shared_servers import BEHIND, GATEWAYS, KINDS, OLDER


@pytest.fixture(scope="session", params=[*KINDS, OLDER, *GATEWAYS])
def server_kind(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(autouse=True)
def _stated_exceptions(request: pytest.FixtureRequest) -> None:
    exception = request.node.get_closest_marker("not_at_gateway")
    kind = getattr(request.node, "callspec", None) and request.node.callspec.params.get("server_kind")
    if exception is not None and kind in BEHIND:
        pytest.skip(f"the gateway differs: {exception.args[0]}")
