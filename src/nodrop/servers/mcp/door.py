"""The MCP door over HTTP: `POST /mcp` with a bearer token, one request at a time, no sessions.

Who is asking is known from the token of each request, and what an agent was given is kept by its
name, so a relay that was restarted, or a client that lost its session, just goes on. The SDK is
loaded by the first request: a relay that no coding agent talks to does without it.
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from starlette.types import Message, Receive, Scope, Send

from nodrop.model.errors import (
    InvalidRequestError,
    NodropError,
    QueueFullError,
    TooLargeError,
    UnavailableError,
)
from nodrop.protocol import extras
from nodrop.protocol.asgi import Headers, address_of, bearer_in, prove, refuse
from nodrop.relay.relay import Caller, Relay
from nodrop.servers.mcp.toolset import Answer, Toolset
from nodrop.servers.mcp.way import ShortMemory, Way

if TYPE_CHECKING:
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

_CALLER: Final = "nodrop.caller"
_ALLOW: Final = (b"allow", b"POST")
_CLOSE: Final = (b"connection", b"close")


class MCPDoor:
    """The tools of every agent of one relay."""

    def __init__(self, relay: Relay, way: Callable[[Caller], Way]) -> None:
        """Open a door; `way` leads a caller to the relay."""
        self._relay = relay
        self._way = way
        self._memories: defaultdict[tuple[str, str], ShortMemory] = defaultdict(ShortMemory)
        self._used: set[asyncio.Task[Answer]] = set()
        self._wanted = asyncio.Event()
        self._sessions: asyncio.Future[StreamableHTTPSessionManager]
        self._sessions = asyncio.get_running_loop().create_future()
        self._closed = False

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Answer requests while the block runs."""
        serving = asyncio.create_task(self._serve(), name="nodrop mcp")
        try:
            yield
        finally:
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)

    async def _serve(self) -> None:
        await self._wanted.wait()
        try:
            sessions = await asyncio.to_thread(self._load)
        except NodropError as error:
            self._sessions.set_exception(error)
            return
        async with sessions.run():
            self._sessions.set_result(sessions)
            await asyncio.get_running_loop().create_future()  # until it is cancelled

    def _load(self) -> "StreamableHTTPSessionManager":
        try:
            from nodrop.servers.mcp.sessions import sessions  # noqa: PLC0415  # needs the extra
        except ImportError as error:
            raise extras.missing_at_relay(f"MCP ({error})") from error
        return sessions(self._use, body_bytes_max=self._relay.limits.frame_bytes_max)

    def close(self) -> None:
        """Let nobody wait any longer: the relay is about to stop."""
        self._closed = True
        for task in self._used:
            task.cancel()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["method"] != "POST":
            error = InvalidRequestError("MCP is spoken with POST here", next_step="Use POST.")
            await refuse(send, error, status=HTTPStatus.METHOD_NOT_ALLOWED, headers=[_ALLOW])
            return
        try:
            secret = bearer_in(Headers(scope["headers"]))
            address = address_of(scope)
            caller = await self._relay.authenticate(secret, address=address, operation="mcp")
            prove(scope, caller.team, caller.agent)
            self._wanted.set()
            sessions = await asyncio.shield(self._sessions)
        except NodropError as error:
            await refuse(send, error)
        else:
            with self._relay.incoming.counting((caller.team, caller.agent)) as counted:
                body = _Body(receive, counted)
                answer = _bounded(send, self._relay.limits.frame_bytes_max, body)
                try:
                    await sessions.handle_request({**scope, _CALLER: caller}, body, answer)
                except Exception:
                    if body.refused is None:
                        raise
            if body.refused is not None:
                await refuse(send, body.refused, headers=[_CLOSE])  # the rest of it is not read

    async def _use(self, scope: Scope, name: str, arguments: Mapping[str, Any]) -> Answer:
        caller: Caller = scope[_CALLER]
        memory = self._memories[caller.team, caller.agent]
        toolset = Toolset(self._way(caller), memory, limits=self._relay.limits)
        task = asyncio.ensure_future(toolset.call(name, arguments))
        self._used.add(task)
        if self._closed:
            task.cancel()
        try:
            await asyncio.wait({task})
            if task.cancelled():
                raise UnavailableError("the relay is stopping")
            return task.result()
        finally:
            self._used.discard(task)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


class _Body:
    """A request's body, counted for its agent as it comes; one too many ends here."""

    def __init__(self, receive: Receive, counted: Callable[[int], None]) -> None:
        self._receive = receive
        self._counted = counted
        self.refused: QueueFullError | None = None

    async def __call__(self) -> Message:
        message = await self._receive()
        try:
            self._counted(len(message.get("body", b"")))
        except QueueFullError as error:
            self.refused = error
            return {"type": "http.disconnect"}
        return message


def _bounded(send: Send, bytes_max: int, body: _Body) -> Send:
    """Return a `send` that says of too large a body what every door says, and not the SDK's words."""
    refused = False

    async def answer(message: Message) -> None:
        nonlocal refused
        if body.refused is not None:
            return
        if message.get("status") == HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
            refused = True
            error = TooLargeError(f"the body is larger than {bytes_max} bytes")
            await refuse(send, error, headers=[_CLOSE])  # the rest of it is not read
        elif not refused:
            await send(message)

    return answer
