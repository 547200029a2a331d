"""AI agents, as far as E3 sees them: the SDK's own client over both transports."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jsonschema
from mcp import StdioServerParameters
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client
from mcp_types import CallToolResult, ImageContent

PATIENCE = 90.0


@dataclass(frozen=True)
class AiAgent:
    """Calls tools. Every answer is checked against the schema that the server gave for it."""

    client: Client
    schemas: dict[str, dict[str, Any]]

    async def call(self, tool: str, **arguments: Any) -> CallToolResult:
        answer = await self.client.call_tool(tool, arguments, read_timeout_seconds=PATIENCE)
        assert isinstance(answer, CallToolResult)
        return answer

    async def ask(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """The structured answer of a tool that did not refuse."""
        answer = await self.call(tool, **arguments)
        assert not answer.is_error, answer.content
        said: dict[str, Any] = answer.structured_content or {}
        jsonschema.validate(said, self.schemas[tool])
        assert said["summary"]
        assert said["next"]
        return said

    async def refused(self, tool: str, **arguments: Any) -> str:
        """What a tool said that did nothing."""
        answer = await self.call(tool, **arguments)
        assert answer.is_error, answer.content
        text: str = answer.content[0].text  # type: ignore[union-attr]
        assert len(text) <= 2_000
        return text

    async def see(self, **arguments: Any) -> tuple[dict[str, Any], ImageContent | None]:
        """A result and its image."""
        answer = await self.call("get_result", **arguments)
        assert not answer.is_error, answer.content
        images = [each for each in answer.content if isinstance(each, ImageContent)]
        return answer.structured_content or {}, images[0] if images else None


@asynccontextmanager
async def agent_at(url: str, token: str = "", mode: str = "auto") -> AsyncIterator[AiAgent]:
    """An agent that uses the page at an address."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with (
        create_mcp_http_client(headers=headers) as http,
        Client(streamable_http_client(f"{url}/mcp", http_client=http), mode=mode) as client,
    ):
        yield await _known(client)


@asynccontextmanager
async def agent_with(folder: Path, mode: str = "auto", **environment: str) -> AsyncIterator[AiAgent]:
    """An agent that has started `e3 mcp` for a workspace."""
    words = ["-m", "comfyui_agent", "mcp", "-C", str(folder)]
    server = StdioServerParameters(command=sys.executable, args=words, env={**os.environ, **environment})
    async with Client(server, mode=mode) as client:
        yield await _known(client)


async def _known(client: Client) -> AiAgent:
    tools = (await client.list_tools()).tools
    return AiAgent(client, {tool.name: tool.output_schema or {} for tool in tools})
