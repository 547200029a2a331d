"""The tools, resources and prompts as an MCP server, over whichever transport."""

from __future__ import annotations

import base64
import inspect
import json
import re
from collections.abc import Callable
from contextvars import ContextVar
from pathlib import Path
from typing import Annotated, Any

from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.prompts import Prompt
from mcp.server.mcpserver.prompts.base import PromptArgument
from mcp.server.mcpserver.tools import Tool
from mcp_types import CallToolResult, ImageContent, TextContent, ToolAnnotations
from pydantic import BaseModel, ValidationError

from comfyui_agent import __version__
from comfyui_agent.access.gate import check_role
from comfyui_agent.access.problem import Problem
from comfyui_agent.domain.texts import whole
from comfyui_agent.domain.tokens import Role
from comfyui_agent.mcp.host import Client, Host
from comfyui_agent.mcp.tools import Tools
from comfyui_agent.store.errors import StoreError
from comfyui_agent.usecases.errors import Invalid, UseCaseError

LONGEST_REFUSAL = 2_000
HINT = re.compile(r"\n *For further information visit \S+")
TEXTS = json.loads(Path(__file__).with_name("texts.json").read_text(encoding="utf-8"))
"""What models read, but for the docstrings of tools and the descriptions in answers."""
Method = Callable[..., Any]
LOOKS, CHANGES = ([getattr(Tools, name) for name in TEXTS["tools"][kind]] for kind in ("looks", "changes"))
RESOURCES: dict[str, Method] = {
    "workspace": Tools.status,
    "workflows": Tools.list_workflows,
    "batches": Tools.list_batches,
}


def make_server(host: Host, client_of: Callable[[Any], Client]) -> MCPServer:
    """A server for whoever `client_of` finds behind a request of the transport; on stdio that is None."""
    asking: ContextVar[Client] = ContextVar("asking")

    async def with_client(ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        asking.set(client_of(ctx.request))
        return _bounded(await call_next(ctx))

    def tools() -> Tools:
        check_role(asking.get().caller, Role.READ)
        return Tools(host, asking.get())

    server: MCPServer = MCPServer(
        "e3",
        title="E3, the ComfyUI Agent",
        instructions=TEXTS["instructions"],
        version=__version__,
        tools=[_tool(method, tools, host) for method in (*LOOKS, *CHANGES)],
        subscriptions=False,
        log_level="WARNING",
        middleware=[with_client],
    )
    for name, method in RESOURCES.items():
        _add_resource(server, name, method, tools)
    for name, said in TEXTS["prompts"].items():
        server.add_prompt(_prompt(name, **said))
    return server


def _tool(method: Method, tools: Callable[[], Tools], host: Host) -> Tool:
    """A method of Tools as a tool. What is refused becomes a sentence and what to do; unknown arguments are refused."""

    async def call(**arguments: Any) -> CallToolResult:
        try:
            answer = await method(tools(), **arguments)
        except (UseCaseError, Problem, StoreError, ValidationError) as error:
            text = host.workspace.without_root(_refusal(error))
            return CallToolResult(content=[TextContent(text=text)], is_error=True)
        content: list[Any] = [TextContent(text=_json(answer))]
        if image := getattr(answer, "image", None):
            content.append(ImageContent(data=base64.b64encode(image).decode("ascii"), mime_type="image/webp"))
        return CallToolResult(content=content, structured_content=answer.model_dump(mode="json", exclude_none=True))

    signature = inspect.signature(method, eval_str=True)
    _, *parameters = signature.parameters.values()
    returns = Annotated[CallToolResult, signature.return_annotation]
    call.__name__ = method.__name__
    call.__signature__ = signature.replace(parameters=parameters, return_annotation=returns)  # type: ignore[attr-defined]
    looks, ends = method in LOOKS, method is Tools.cancel
    hints = ToolAnnotations(read_only_hint=looks, destructive_hint=ends, idempotent_hint=looks, open_world_hint=False)
    tool = Tool.from_function(call, method.__name__, description=method.__doc__, annotations=hints)
    model = tool.fn_metadata.arg_model
    model.model_config["extra"] = "forbid"
    model.model_rebuild(force=True)
    tool.parameters = model.model_json_schema()
    for name, schema in tool.parameters["properties"].items():
        schema["description"] = TEXTS["parameters"][name]
    return tool


def _refusal(error: Exception) -> str:
    """What is wrong and what to do, in a line."""
    match error:
        case Invalid() if error.found and not error.remedy:
            wrong = "; ".join(f"{each.key}: {each.message}" if each.key else each.message for each in error.found)
            return f"{wrong}. Nothing was made. Change this and send it again; describe_workflow shows what there is."
        case UseCaseError():
            return f"{error.message}. {error.remedy}"
        case Problem():
            return f"{error.detail}. {error.remedy}"
        case ValidationError():
            return "; ".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors())
        case _:
            return f"{error}. Nothing is lost: send the same again in a moment, with its key if it makes something."


def _bounded(result: HandlerResult) -> HandlerResult:
    """What the SDK says about wrong arguments repeats them: no more of that than is needed."""
    if isinstance(result, dict) and result.get("isError"):
        for block in result["content"]:
            block["text"] = whole(HINT.sub("", block["text"]), LONGEST_REFUSAL)
    return result


def _add_resource(server: MCPServer, name: str, method: Method, tools: Callable[[], Tools]) -> None:
    @server.resource(f"e3://{name}", name=name, description=method.__doc__, mime_type="application/json")
    async def read() -> str:
        return _json(await method(tools()))


def _prompt(name: str, title: str, what: str, text: str) -> Prompt:
    def fill(what: str = "") -> str:
        return text.replace("{what}", whole(what, LONGEST_REFUSAL))

    prompt = Prompt.from_function(fill, name, title, description=title)
    prompt.arguments = [PromptArgument(name="what", description=what, required=False)]
    return prompt


def _json(answer: BaseModel) -> str:
    return answer.model_dump_json(exclude_none=True)
