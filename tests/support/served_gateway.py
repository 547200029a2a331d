"""The gateway of a workspace, served in this process."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from comfyui_agent.access.listen_address import listen
from comfyui_agent.config.loader import load_workspace
from comfyui_agent.domain.tokens import Role, hash_of, mint_token
from comfyui_agent.gateway.service import serving
from comfyui_agent.store import operations as ops
from comfyui_agent.store.connect import open_store
from comfyui_agent.store.store import Store
from support.workspaces import new_workspace


@dataclass(frozen=True)
class Served:
    url: str
    store: Store
    session: aiohttp.ClientSession
    workspace: Path

    async def token(self, role: Role) -> str:
        secret = mint_token()
        await self.store.run(ops.create_token, role.value, role, hash_of(secret))
        return secret

    async def status(self, path: str, method: str = "GET", **options: Any) -> int:
        async with self.session.request(method, self.url + path, **options) as response:
            return response.status


@asynccontextmanager
async def gateway(folder: Path, server: str, **environment: str) -> AsyncIterator[Served]:
    new_workspace(folder, server)
    workspace = load_workspace(folder, environment)
    store = open_store(workspace.database)
    try:
        with closing(await listen(store, "127.0.0.1", 0, section="gateway")) as listening:
            async with serving(store, workspace, listening), aiohttp.ClientSession() as session:
                yield Served(listening.url, store, session, folder)
    finally:
        await store.close()
