"""A workspace whose page is served, shared by the tests of a module; each test has its own jobs in it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from comfyui_agent.domain.tokens import Role
from support.web import Keys, Served, served


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def house(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    """Without tokens: everyone on this machine is an admin."""
    async with served(tmp_path_factory.mktemp("house")) as open_to_all:
        yield open_to_all


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def locked_house(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[Served, Keys]]:
    """With a token of each role."""
    async with served(tmp_path_factory.mktemp("locked")) as asking:
        yield asking, Keys(**{role.value: await asking.token(role) for role in Role})
