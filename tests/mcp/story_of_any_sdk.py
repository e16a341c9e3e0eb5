"""The short story, told with whatever version of the MCP SDK runs it: `python THIS COMMAND…`.

Not a test of its own: `test_any_sdk.py` runs it with each. COMMAND is what runs `nodrop`; with
`--url URL` and two tokens the agents come over HTTP instead.
"""

import asyncio
import importlib
import os
import sys
from contextlib import AsyncExitStack
from importlib.metadata import version
from typing import Any

from mcp.client.stdio import stdio_client

from mcp import ClientSession, StdioServerParameters

TOOLS = 12


async def use(session: ClientSession, tool: str, **arguments: Any) -> str:
    """Return what a tool says; one that had no answer in time is used again, as it says itself."""
    said, refused = await tried(session, tool, arguments)
    while refused and "with exactly the same arguments" in said:
        said, refused = await tried(session, tool, arguments)
    assert not refused, said
    return said


async def tried(
    session: ClientSession, tool: str, arguments: dict[str, Any]
) -> tuple[str, bool | None]:
    """Return what a tool says, and whether it refused, which versions spell differently."""
    result: Any = await session.call_tool(tool, arguments)
    refused = getattr(result, "is_error", None) or getattr(result, "isError", None)
    return result.content[0].text, refused


async def over_stdio(stack: AsyncExitStack, command: list[str], agent: str) -> ClientSession:
    """Start an agent's tools as its client would."""
    inherited = {name: value for name, value in os.environ.items() if name.startswith("NODROP_")}
    parameters = StdioServerParameters(
        command=command[0], args=[*command[1:], "mcp", "--agent", agent], env=inherited
    )
    streams = await stack.enter_async_context(stdio_client(parameters))
    return await stack.enter_async_context(ClientSession(streams[0], streams[1]))


async def over_http(stack: AsyncExitStack, url: str, token: str) -> ClientSession:
    """Reach the relay's own door with a token."""
    module: Any = importlib.import_module("mcp.client.streamable_http")
    headers = {"Authorization": f"Bearer {token}"}
    if hasattr(module, "streamablehttp_client"):  # as 1.x spells it
        opened = module.streamablehttp_client(f"{url}/mcp", headers=headers)
    else:
        made: Any = importlib.import_module("mcp.shared._httpx_utils")
        http = await stack.enter_async_context(made.create_mcp_http_client(headers=headers))
        opened = module.streamable_http_client(f"{url}/mcp", http_client=http)
    streams: Any = await stack.enter_async_context(opened)
    return await stack.enter_async_context(ClientSession(streams[0], streams[1]))


async def main(arguments: list[str]) -> None:
    """Hand work over and back, and be refused once."""
    async with AsyncExitStack() as stack:
        if arguments[0] == "--url":
            _, url, *tokens = arguments
            planner, coder = [await over_http(stack, url, token) for token in tokens]
        else:
            planner = await over_stdio(stack, arguments, "planner")
            coder = await over_stdio(stack, arguments, "coder")
        for session in (planner, coder):
            await session.initialize()
        listed = await planner.list_tools()
        assert len(listed.tools) == TOOLS, listed
        task = {"to": "coder", "title": f"Told by {sys.version_info[:2]} {os.getpid()}"}
        handoff = (await use(planner, "hand_off", **task)).split("handoff ")[1][:36]
        assert (await use(planner, "hand_off", **task)).startswith("stored before")
        assert handoff in await use(coder, "inbox")
        await use(coder, "ack", handoff=handoff)
        await use(coder, "update", handoff=handoff, status="done", result={"commit": "abc"})
        assert '{"result": {"commit": "abc"}}' in await use(planner, "wait", handoff=handoff)
        said, refused = await tried(coder, "hand_off", {"title": "To nobody"})
        assert refused, said
        assert "\nNext: " in said
    sys.stdout.write(f"told with {version('mcp')}\n")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
