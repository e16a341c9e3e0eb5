"""MCP on lines of text: what the SDK reads, and an answer to lines that are no JSON-RPC.

The SDK drops such a line in silence, and whoever sent it waits. Needs `nodrop[mcp]`.
"""

from types import TracebackType
from typing import Any, Final, Protocol, Self

import anyio
import mcp_types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.shared.message import SessionMessage
from pydantic import ValidationError

_NO_JSON: Final = "json_invalid"


async def serve(server: Server[Any]) -> None:
    """Serve whoever is at the other end of standard input and output, until they leave."""
    async with stdio_server() as (received, sent):
        options = server.create_initialization_options()
        await server.run(_Answered(received, sent), sent, options)


class _Received(Protocol):
    async def receive(self) -> SessionMessage | Exception: ...
    async def aclose(self) -> None: ...


class _Sent(Protocol):
    async def send(self, item: SessionMessage, /) -> None: ...


class _Answered:
    """What was received, all of it messages."""

    def __init__(self, received: _Received, sent: _Sent) -> None:
        self._received = received
        self._sent = sent

    async def receive(self) -> SessionMessage | Exception:
        while isinstance(item := await self._received.receive(), Exception):
            await self._sent.send(SessionMessage(_refusal(item)))
        return item

    async def aclose(self) -> None:
        await self._received.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        await self.aclose()


def _refusal(error: Exception) -> mcp_types.JSONRPCError:
    invalid = isinstance(error, ValidationError) and all(
        problem["type"] != _NO_JSON for problem in error.errors()
    )
    said = mcp_types.ErrorData(
        code=mcp_types.INVALID_REQUEST if invalid else mcp_types.PARSE_ERROR,
        message="the line is no JSON-RPC message" if invalid else "the line is no JSON",
    )
    return mcp_types.JSONRPCError(jsonrpc="2.0", id=None, error=said)
