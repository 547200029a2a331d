"""The pack in a ComfyUI of some version."""

from __future__ import annotations

import contextlib
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from comfyui_agent.nodes.core import feeder, iteration_state
from support.queued_members import GRID, Feeding


@pytest.fixture
def pack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Feeding]]:
    monkeypatch.setattr(feeder, "TICK_SECONDS", 0.005)
    monkeypatch.setattr(feeder, "REFUSED_SECONDS", 0.1)
    with contextlib.ExitStack() as stack:

        def enter(**version: Any) -> Feeding:
            entered = Feeding(tmp_path, **version)
            stack.callback(entered.close)
            monkeypatch.setattr(iteration_state, "_instance", entered.manager)
            return entered

        yield enter


@pytest.fixture
def _grids(monkeypatch: pytest.MonkeyPatch) -> None:
    """A grid is named, not made."""
    module = types.ModuleType("comfyui_agent.nodes.core.batch_grid")
    module.save_grid = lambda *_: [GRID]  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
