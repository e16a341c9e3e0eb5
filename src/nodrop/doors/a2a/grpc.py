"""A2A over gRPC, where it is wanted: one port for every agent, which a request names as its tenant.

Who asks is in the metadata, as it is in the headers of HTTP.
"""

from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable
from contextlib import asynccontextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Final, TypeAlias, TypeVar

import grpc
import grpc.aio
from a2a.extensions.common import HTTP_EXTENSION_HEADER, get_requested_extensions
from a2a.server.context import ServerCallContext
from a2a.server.request_handlers import GrpcHandler
from a2a.server.request_handlers.grpc_handler import GrpcServerCallContextBuilder
from a2a.types import a2a_pb2_grpc
from a2a.utils.errors import A2AError, VersionNotSupportedError
from packaging.version import InvalidVersion, Version

from nodrop.core.errors import NodropError, UnauthenticatedError, UnavailableError
from nodrop.doors.a2a import refusals
from nodrop.doors.a2a.door import A2ADoor
from nodrop.doors.a2a.handler import VISIT
from nodrop.doors.a2a.visit import Visit

T = TypeVar("T")
Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"

_VISIT: ContextVar[Visit] = ContextVar("visit")
_VERSION: Final = "a2a-version"
_MAJOR: Final = 1
_GRACE_SECONDS: Final = 2.0


@asynccontextmanager
async def serving(
    door: A2ADoor,
    *,
    host: str,
    port: int,
    certificate: tuple[Path, Path] | None = None,
    agent: str = "",
) -> AsyncGenerator[str]:
    """Speak gRPC on a port of its own; yields HOST:PORT. Port 0 is any free one.

    Args:
        door: whose agents they are.
        host: address to listen on.
        port: port to listen on.
        certificate: files of a certificate and its key, for TLS.
        agent: whom a request means that names no tenant.

    Raises:
        UnavailableError: the address cannot be listened on.
    """
    service = await door.service()
    limits = [("grpc.max_receive_message_length", door.frame_bytes_max), ("grpc.so_reuseport", 0)]
    server = grpc.aio.server(options=limits)
    handler = _Servicer(service.handler, _Contexts(), door, agent)
    a2a_pb2_grpc.add_A2AServiceServicer_to_server(handler, server)  # pyright: ignore[reportUnknownMemberType]  # generated, without hints
    place = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    try:
        if certificate is None:
            bound = server.add_insecure_port(place)
        else:
            pair = (certificate[1].read_bytes(), certificate[0].read_bytes())
            bound = server.add_secure_port(place, grpc.ssl_server_credentials([pair]))
    except (OSError, RuntimeError) as error:
        raise UnavailableError(f"cannot speak gRPC on {place}: {error}") from None
    await server.start()
    door.grpc = f"{host}:{bound}"
    try:
        yield door.grpc
    finally:
        door.grpc = None
        await server.stop(_GRACE_SECONDS)


class _Contexts(GrpcServerCallContextBuilder):
    """Contexts that know who asks."""

    def build(self, context: Context) -> ServerCallContext:
        headers = _metadata(context)
        extensions = headers.get(HTTP_EXTENSION_HEADER.lower())
        return ServerCallContext(
            state={VISIT: _VISIT.get(), "headers": headers, "grpc_context": context},
            requested_extensions=get_requested_extensions([extensions] if extensions else []),
        )


class _Servicer(GrpcHandler):
    """The SDK's servicer, for callers that are known and speak a version that is spoken here."""

    def __init__(
        self, handler: Any, contexts: GrpcServerCallContextBuilder, door: A2ADoor, agent: str
    ) -> None:
        super().__init__(handler, contexts)
        self._door = door
        self._agent = agent

    async def _handle_unary(
        self,
        request: Any,
        context: Context,
        handler_func: Callable[[ServerCallContext], Awaitable[T]],
        default_response: T,
    ) -> T:
        await self._enter(request, context)
        return await super()._handle_unary(request, context, handler_func, default_response)  # pyright: ignore[reportUnknownMemberType]  # the SDK leaves its context bare

    async def _handle_stream(
        self,
        request: Any,
        context: Context,
        handler_func: Callable[[ServerCallContext], AsyncIterable[T]],
    ) -> AsyncIterable[T]:
        await self._enter(request, context)
        async for item in super()._handle_stream(request, context, handler_func):  # pyright: ignore[reportUnknownMemberType]  # the same
            yield item

    async def _enter(self, request: Any, context: Context) -> None:
        """Know who calls, or end the call."""
        headers = _metadata(context)
        try:
            _check_version(headers.get(_VERSION, ""))
            said = headers.get("authorization")
            agent = request.tenant or self._agent
            _VISIT.set(await self._door.visit(None if said is None else said.encode(), agent))
        except UnauthenticatedError as error:
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, error.detail)
        except NodropError as error:
            await self.abort_context(refusals.error(error), context)  # pyright: ignore[reportUnknownMemberType]  # the same
        except A2AError as error:
            await self.abort_context(error, context)  # pyright: ignore[reportUnknownMemberType]  # the same


def _metadata(context: Context) -> dict[str, str]:
    found = context.invocation_metadata() or ()
    return {name.lower(): value for name, value in found if isinstance(value, str)}


def _check_version(said: str) -> None:
    """Refuse what the SDK does not look at over gRPC."""
    try:
        spoken = not said or Version(said).major == _MAJOR
    except InvalidVersion:
        spoken = False
    if not spoken:
        raise VersionNotSupportedError(message=f"A2A {said[:20]} is not spoken here; 1.0 is")
