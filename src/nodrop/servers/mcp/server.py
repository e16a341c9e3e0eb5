"""MCP around the tools: lists them, calls them, on whatever streams or requests it is given.

Needs the extra `nodrop[mcp]`. What the official SDK answers by itself is left to it: versions and
the handshake of the older ones, malformed JSON-RPC, unknown methods.
"""

from collections.abc import Awaitable, Callable, Mapping
from importlib.metadata import version
from typing import Any

import mcp_types
import msgspec
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError

from nodrop.model.errors import NodropError
from nodrop.protocol.errors import TABLE, document
from nodrop.servers.mcp.tools import INSTRUCTIONS, TOOLS
from nodrop.servers.mcp.toolset import Answer

Context = ServerRequestContext[Any, Any]
Use = Callable[[Context, str, Mapping[str, Any]], Awaitable[Answer]]
"""Uses a tool on behalf of whoever sent a request."""


def server(use: Use) -> Server[Any]:
    """Return a server whose tools are used by `use`."""

    async def list_tools(
        _: Context, __: mcp_types.PaginatedRequestParams | None
    ) -> mcp_types.ListToolsResult:
        return mcp_types.ListToolsResult(tools=_LISTED)

    async def call_tool(
        context: Context, called: mcp_types.CallToolRequestParams
    ) -> mcp_types.CallToolResult:
        try:
            answer = await use(context, called.name, called.arguments or {})
        except NodropError as error:
            raise refusal(error) from error
        text = mcp_types.TextContent(type="text", text=answer.text)
        return mcp_types.CallToolResult(content=[text], is_error=answer.refused)

    return Server(
        "nodrop",
        version=version("nodrop"),
        title="Nodrop",
        instructions=INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


def refusal(error: NodropError) -> MCPError:
    """Return an error of the protocol itself, with the problem document as its data."""
    problem = msgspec.to_builtins(document(error))
    return MCPError(TABLE[type(error)].jsonrpc, f"{error.detail}. {error.next_step}", problem)


_LISTED = [
    mcp_types.Tool(
        name=tool.name,
        description=tool.description,
        input_schema=tool.schema,
        annotations=mcp_types.ToolAnnotations(read_only_hint=True) if tool.reads else None,
    )
    for tool in TOOLS.values()
]
