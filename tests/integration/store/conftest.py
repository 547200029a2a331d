"""A database of each kind, and a store on it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from comfyui_agent.store.store import Store
from support.stores import KINDS, Database


@pytest.fixture(params=KINDS)
async def database(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Database]:
    found: Database = KINDS[request.param](tmp_path)
    yield found
    await found.close()


@pytest.fixture
async def store(database: Database) -> Store:
    return database.open()
