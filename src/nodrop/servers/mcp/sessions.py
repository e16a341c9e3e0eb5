"""The official SDK's end of `/mcp`: streamable HTTP without sessions. Needs `nodrop[mcp]`."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.types import Scope

from nodrop.servers.mcp.server import Context, server
from nodrop.servers.mcp.toolset import Answer


def sessions(
    use: Callable[[Scope, str, Mapping[str, Any]], Awaitable[Answer]], *, body_bytes_max: int
) -> StreamableHTTPSessionManager:
    """Return what answers MCP requests; tools are used on behalf of the request's scope."""

    async def use_for(context: Context, name: str, arguments: Mapping[str, Any]) -> Answer:
        assert context.request is not None, "over HTTP there is one"
        return await use(context.request.scope, name, arguments)

    return StreamableHTTPSessionManager(
        server(use_for), json_response=True, stateless=True, max_request_body_size=body_bytes_max
    )
