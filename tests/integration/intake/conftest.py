"""A workspace of each test's own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from support.intake import Intake, intake


@pytest.fixture
async def room(tmp_path: Path) -> AsyncIterator[Intake]:
    async with intake(tmp_path / "workspace") as made:
        yield made
