"""A2A over gRPC, where it is wanted: one port for every agent, which a request names as its tenant.

Who asks is in the metadata, as it is in the headers of HTTP. Every refusal has a status of its own,
the relay's code and the next step in `ErrorInfo`; what a program did wrong is never UNKNOWN.
"""

import logging
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable
from contextlib import asynccontextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Final, TypeAlias, TypeVar, cast
from urllib.parse import unquote

import grpc
import grpc.aio
from a2a.extensions.common import HTTP_EXTENSION_HEADER, get_requested_extensions
from a2a.server.context import ServerCallContext
from a2a.server.request_handlers import GrpcHandler
from a2a.server.request_handlers.grpc_handler import GrpcServerCallContextBuilder
from a2a.types import a2a_pb2_grpc
from a2a.utils.errors import A2A_ERROR_REASONS, A2AError, VersionNotSupportedError
from a2a.utils.proto_utils import validation_errors_to_bad_request
from google.protobuf.any_pb2 import Any as Packed
from google.protobuf.message import DecodeError
from google.rpc.error_details_pb2 import ErrorInfo
from google.rpc.status_pb2 import Status
from packaging.version import InvalidVersion, Version

from nodrop.model.errors import (
    InvalidRequestError,
    NodropError,
    RelayFaultError,
    TooLargeError,
    UnavailableError,
)
from nodrop.protocol.errors import TABLE, retry_after
from nodrop.servers.a2a import refusals
from nodrop.servers.a2a.calling.visit import Visit
from nodrop.servers.a2a.door import A2ADoor
from nodrop.servers.a2a.handler import VISIT

log = logging.getLogger("nodrop.a2a")

T = TypeVar("T")
Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"

_VISIT: ContextVar[Visit] = ContextVar("visit")
_VERSION: Final = "a2a-version"
_AUTHORIZATION: Final = "authorization"
_MAJOR: Final = 1
_GRACE_SECONDS: Final = 2.0
_HANDSHAKE_SECONDS: Final = 15.0
"""Until a connection speaks HTTP/2, its TLS handshake included."""
_IDLE_MS_MAX: Final = 75_000
"""How long a connection without a call is kept, as over HTTP."""
_STREAMS_PER_CONNECTION_MAX: Final = 100
_NO_COMPRESSION: Final = 1
"""The set of `identity` alone: one megabyte that is unpacked may be a thousand."""
_DOMAIN: Final = "a2a-protocol.org"
_DETAILS: Final = "grpc-status-details-bin"
_SAID_ONCE: Final = frozenset({_AUTHORIZATION, _VERSION, "idempotency-key", "traceparent"})
"""Metadata of which there is one: with two, others may see another than we do."""

_BY_HTTP: Final = {
    400: grpc.StatusCode.INVALID_ARGUMENT,
    401: grpc.StatusCode.UNAUTHENTICATED,
    403: grpc.StatusCode.PERMISSION_DENIED,
    404: grpc.StatusCode.NOT_FOUND,
    409: grpc.StatusCode.FAILED_PRECONDITION,
    413: grpc.StatusCode.INVALID_ARGUMENT,
    422: grpc.StatusCode.INVALID_ARGUMENT,
    429: grpc.StatusCode.RESOURCE_EXHAUSTED,
    500: grpc.StatusCode.INTERNAL,
    501: grpc.StatusCode.UNIMPLEMENTED,
    503: grpc.StatusCode.UNAVAILABLE,
    507: grpc.StatusCode.RESOURCE_EXHAUSTED,
}
"""The status of a refusal of the relay, by the one it has over HTTP."""


@asynccontextmanager
async def serving(
    door: A2ADoor,
    *,
    host: str,
    port: int,
    certificate: tuple[Path, Path] | None = None,
    agent: str = "",
    handshake_seconds: float = _HANDSHAKE_SECONDS,
) -> AsyncGenerator[str]:
    """Speak gRPC on a port of its own; yields HOST:PORT. Port 0 is any free one.

    Args:
        door: whose agents they are.
        host: address to listen on.
        port: port to listen on.
        certificate: files of a certificate and its key, for TLS.
        agent: whom a request means that names no tenant.
        handshake_seconds: how long a connection may take to speak HTTP/2.

    Raises:
        UnavailableError: the address cannot be listened on.
    """
    service = await door.service()
    options = [
        ("grpc.max_receive_message_length", door.limits.frame_bytes_max),
        ("grpc.max_concurrent_streams", _STREAMS_PER_CONNECTION_MAX),
        ("grpc.max_connection_idle_ms", _IDLE_MS_MAX),
        ("grpc.server_handshake_timeout_ms", int(handshake_seconds * 1_000)),
        ("grpc.compression_enabled_algorithms_bitset", _NO_COMPRESSION),
        ("grpc.so_reuseport", 0),
    ]
    server = grpc.aio.server(
        options=options,
        interceptors=[_Reading()],
        maximum_concurrent_rpcs=door.limits.grpc_calls_max,
    )
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


class _Unreadable:
    """A request that is no message of its method."""

    tenant = ""


class _Reading(grpc.aio.ServerInterceptor):
    """Has the servicer refuse what cannot be read; gRPC itself would answer UNKNOWN."""

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        handler = await continuation(handler_call_details)
        if handler is None:
            return None
        read = handler.request_deserializer

        def readable(data: bytes) -> Any:
            try:
                return read(data)
            except DecodeError:
                return _Unreadable()

        made = (
            grpc.unary_stream_rpc_method_handler
            if handler.response_streaming
            else grpc.unary_unary_rpc_method_handler
        )
        run = handler.unary_stream if handler.response_streaming else handler.unary_unary
        return made(
            run, request_deserializer=readable, response_serializer=handler.response_serializer
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
        try:
            return await super()._handle_unary(request, context, handler_func, default_response)  # pyright: ignore[reportUnknownMemberType]  # the SDK leaves its context bare
        except Exception as error:  # noqa: BLE001  # told without its words, and logged
            await self._fault(error, context)
            return default_response

    async def _handle_stream(
        self,
        request: Any,
        context: Context,
        handler_func: Callable[[ServerCallContext], AsyncIterable[T]],
    ) -> AsyncIterable[T]:
        await self._enter(request, context)
        try:
            async for item in super()._handle_stream(request, context, handler_func):  # pyright: ignore[reportUnknownMemberType]  # the same
                yield item
        except Exception as error:  # noqa: BLE001  # the same
            await self._fault(error, context)

    async def _enter(self, request: Any, context: Context) -> None:
        """Know who calls, or end the call."""
        address = _address(context)
        try:
            if isinstance(request, _Unreadable):
                raise InvalidRequestError("the message cannot be read as one of this method")
            self._check_said_once(context, address)
            headers = _metadata(context)
            _check_version(headers.get(_VERSION, ""))
            said = headers.get(_AUTHORIZATION)
            agent = request.tenant or self._agent
            visit = await self._door.visit(
                None if said is None else said.encode(),
                agent,
                scope={"client": (address, 0)} if address else None,
            )
            if request.ByteSize() > (most := self._door.request_bytes_max(visit)):
                raise TooLargeError(f"the request is larger than {most} bytes")
            _VISIT.set(visit)
        except NodropError as error:
            await self.abort_context(refusals.error(error), context, because=error)
        except A2AError as error:
            await self.abort_context(error, context)

    def _check_said_once(self, context: Context, address: str | None) -> None:
        names = [name.lower() for name, _ in context.invocation_metadata() or ()]
        twice = next((name for name in sorted(_SAID_ONCE) if names.count(name) > 1), None)
        if twice is not None:
            why = f"{twice} is in the metadata more than once"
            error = InvalidRequestError(why, next_step="Send it once.")
            error.suspect = "header_twice"
            self._door.note_refusal(error, address)
            raise error

    async def _fault(self, error: Exception, context: Context) -> None:
        """End a call that failed here: the log has the reason, the caller has a code."""
        if isinstance(error, grpc.aio.AbortError):
            raise error
        log.error("a call over gRPC could not be carried out", exc_info=error)
        fault = RelayFaultError()
        await self.abort_context(refusals.error(fault), context, because=fault)

    async def abort_context(
        self, error: A2AError, context: Context, *, because: NodropError | None = None
    ) -> None:
        """End a call with an error of A2A; `because` is the refusal behind it, where one is."""
        because = because or (error.__cause__ if isinstance(error.__cause__, NodropError) else None)
        if because is None:
            await super().abort_context(error, context)  # pyright: ignore[reportUnknownMemberType]  # the same
            return
        code = _BY_HTTP[TABLE[type(because)].http]
        info = {"code": because.code, "next": because.next_step}
        if (seconds := retry_after(because)) is not None:
            info["retryAfterSeconds"] = str(seconds)
        details: list[Any] = [
            ErrorInfo(reason=A2A_ERROR_REASONS[type(error)], domain=_DOMAIN, metadata=info)
        ]
        data = cast("dict[str, Any]", error.data or {})
        if errors := data.get("errors"):
            details.append(validation_errors_to_bad_request(errors))
        status = Status(code=code.value[0], message=error.message)
        for detail in details:
            packed = Packed()
            packed.Pack(detail)
            status.details.append(packed)
        context.set_trailing_metadata(((_DETAILS, status.SerializeToString()),))
        await context.abort(code, error.message)


def _metadata(context: Context) -> dict[str, str]:
    found = context.invocation_metadata() or ()
    return {name.lower(): value for name, value in found if isinstance(value, str)}


def _address(context: Context) -> str | None:
    """Return where a call comes from: `ipv4:HOST:PORT`, `ipv6:%5BHOST%5D:PORT`."""
    kind, _, place = unquote(context.peer()).partition(":")
    return place.rpartition(":")[0].strip("[]") if kind in {"ipv4", "ipv6"} else None


def _check_version(said: str) -> None:
    """Refuse what the SDK does not look at over gRPC."""
    try:
        spoken = not said or Version(said).major == _MAJOR
    except InvalidVersion:
        spoken = False
    if not spoken:
        raise VersionNotSupportedError(message=f"A2A {said[:20]} is not spoken here; 1.0 is")
