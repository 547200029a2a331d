"""That results cannot be kept is told once for all that wait, and again when it comes again."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any, cast

import pytest

from comfyui_agent.comfy.results import ResultFile, Results
from comfyui_agent.config.loader import load_workspace
from comfyui_agent.engine import collector
from comfyui_agent.engine.collector import Collector

FULL = OSError(errno.ENOSPC, "No space left on device")


class Disk:
    """Says what fails, one try after another; an empty list of troubles is room."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        self.told: list[str] = []
        self.troubles: list[OSError] = []
        self._folder = folder
        nobody = cast("Any", None)
        alert = cast("Any", lambda message, _: self.told.append(message))
        workspace = load_workspace(folder, {})
        self.collecting = Collector(nobody, workspace, nobody, "me", alert, patience=1.0)
        monkeypatch.setattr(collector, "PAUSE", 0.0)
        monkeypatch.setattr(collector, "stem_of", lambda *_: folder / "fox")
        monkeypatch.setattr(Collector, "_fetch", self._fetch)
        monkeypatch.setattr(Collector, "_publish", self._publish)
        monkeypatch.setattr(Collector, "_done", self._nothing)

    async def _fetch(self, *_: Any) -> None:
        if self.troubles:
            raise self.troubles.pop()

    async def _publish(self, *_: Any) -> list[str]:
        return []

    async def _nothing(self, *_: Any) -> None: ...

    async def keep(self, *troubles: OSError) -> None:
        self.troubles += troubles
        leased = cast("Any", type("L", (), {"lease": type("K", (), {"job_id": 1})(), "output_node": None})())
        outcome = cast(
            "Any", type("O", (), {"results": Results((ResultFile("1", "images", "a.png", "", "output"),), ())})()
        )
        await self.collecting.collect(leased, cast("Any", None), outcome, check_server=lambda: None)


async def test_a_full_disk_is_told_once_and_again_when_it_is_full_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    disk = Disk(monkeypatch, tmp_path)
    await disk.keep(FULL, FULL, FULL)
    assert len(disk.told) == 1
    await disk.keep()
    assert len(disk.told) == 1
    await disk.keep(FULL)
    assert len(disk.told) == 2, "a second time within minutes is told, too"
