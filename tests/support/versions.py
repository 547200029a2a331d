"""Which ComfyUI versions a check holds for: `@pytest.mark.since("0.12")` from that one on, `until` before it."""

from __future__ import annotations

from typing import TypeAlias

import pytest

Version: TypeAlias = tuple[int, ...]


def version(text: str) -> Version:
    return tuple(int(part) for part in text.split("."))


AT_GATEWAY = version("0.33.0")
"""What the gateway speaks, whatever is behind it."""


def skip_other_versions(request: pytest.FixtureRequest, server: Version) -> None:
    """End a test here if it is about other versions than this server's."""
    for mark in request.node.iter_markers("since"):
        if server < version(mark.args[0]):
            pytest.skip(f"since {mark.args[0]}")
    for mark in request.node.iter_markers("until"):
        if server >= version(mark.args[0]):
            pytest.skip(f"until {mark.args[0]}")
