"""A database of each kind, and a store on it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from comfyui_agent.store.store import Store
from support.stores import KINDS, Database


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Every test runs on every kind of database, unless it is about what only SQLite does."""
    if "database" in metafunc.fixturenames:
        marked = metafunc.definition.get_closest_marker
        kinds: list[Any] = ["sqlite"] if marked("sqlite_only") else list(KINDS)
        if marked("slow_on_postgres"):
            kinds = ["sqlite", pytest.param("postgres", marks=pytest.mark.slow)]
        metafunc.parametrize("database", kinds, indirect=True)


@pytest.fixture
async def database(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Database]:
    found: Database = KINDS[request.param](tmp_path)
    yield found
    await found.close()


@pytest.fixture
async def store(database: Database) -> Store:
    return database.open()
