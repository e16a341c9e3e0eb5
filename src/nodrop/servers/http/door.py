"""The HTTP door: one request, one operation.

A request that arrived whole is taken without ASGI and without a task: it is read, asked for with
`Relay.ask`, and answered from there. What cannot be, because it is large, slow, to be refused or not
at its turn, comes by bare ASGI; it is read by the same functions. Whatever is not an operation goes to
`pages`.
"""

import asyncio
import logging
from functools import partial
from hmac import compare_digest
from http import HTTPStatus
from time import perf_counter
from typing import Final

from msgspec.structs import replace
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from nodrop.model.errors import (
    InvalidRequestError,
    NodropError,
    NotFoundError,
    RelayFaultError,
    UnavailableError,
)
from nodrop.protocol import routes
from nodrop.protocol.asgi import (
    Exchange,
    Header,
    Headers,
    address_of,
    bearer_in,
    prove,
    refusal,
)
from nodrop.protocol.requests import GetLog, Offer, OfferGroup, Request
from nodrop.protocol.routes import Route
from nodrop.protocol.traces import is_traceparent
from nodrop.relay.relay import Caller, Relay, stranger
from nodrop.relay.room import COSTLY_SECONDS, LARGE_BYTES
from nodrop.servers.http import prometheus, stream
from nodrop.servers.http.answers import (
    RefusedError,
    encode,
    refusing,
    send_answer,
    send_options,
)
from nodrop.servers.http.bodies import BODY_SECONDS_MAX, Bodies, check_kind
from nodrop.servers.http.direct import Direct
from nodrop.servers.http.pages import pages
from nodrop.servers.http.parking import Parking

log = logging.getLogger(__name__)

_OPERATIONS: Final = b"/v1/"
_JSON: Final = b"application/json"


class HTTPDoor:
    """The operations of one relay, and the pages around them."""

    def __init__(
        self,
        relay: Relay,
        *,
        body_seconds_max: float = BODY_SECONDS_MAX,
        dashboard: bool = True,
        prepared: asyncio.Event | None = None,
    ) -> None:
        self._relay = relay
        self._prepared = prepared
        self._bodies = Bodies(bytes_max=relay.limits.frame_bytes_max, seconds_max=body_seconds_max)
        self._parking = Parking()
        self._waiting: set[Direct] = set()
        """What waits without ASGI."""
        self._pages: ASGIApp = pages(self._parking, self._require_ready, page=dashboard)

    def close(self) -> None:
        """Let nobody wait any longer: the relay is about to stop."""
        self._parking.close()
        for asking in tuple(self._waiting):
            asking.give_up(UnavailableError("the relay is stopping"))

    async def _require_ready(self) -> None:
        if self._prepared is not None and not self._prepared.is_set():
            raise UnavailableError("the relay is starting")
        await self._relay.require_store()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        await refusing(send, self._route(scope, receive, send))

    async def _route(self, scope: Scope, receive: Receive, send: Send) -> None:
        team, path = routes.split_team(scope["raw_path"])
        if path is None and scope["path"] == "/metrics" and scope["method"] == "GET":
            await self._figures(scope, receive, send)
        elif path is None and (of := routes.manifest_of(scope["raw_path"])) is not None:
            await self._manifest(scope, Headers(scope["headers"]), send, *of)
        elif path is None:
            await self._pages(scope, receive, send)
        else:
            await self._serve(scope, receive, send, team=team, path=path)

    # --- without ASGI ---

    def take_exchange(self, exchange: Exchange) -> bool:
        """Carry out the operation that a request asks for; False: it is for ASGI."""
        relay = self._relay
        shares = relay.shares
        used, began = shares.used(), perf_counter()
        try:
            asking = self._read(exchange)
            if asking is None:
                return False
            relay.ask(asking)
        except (NodropError, RefusedError):
            return False  # read again by ASGI, and refused
        except Exception:
            log.exception("a request could not be carried out")
            exchange.answer(*refusal(RelayFaultError()))
            return True
        seconds = perf_counter() - began
        if seconds >= COSTLY_SECONDS:  # processor time counts, and asking for it is a system call
            seconds = shares.used() - used
        shares.spent(asking.by, seconds)
        return True

    def _read(self, exchange: Exchange) -> Direct | None:
        """Return what a request asks for, ready to wait; None: it is for ASGI."""
        relay, headers, path = self._relay, exchange.headers, exchange.path
        if not path.startswith(_OPERATIONS):
            return None
        found = routes.find(path[len(_OPERATIONS) :].decode("latin-1"))
        route = found.methods.get(exchange.method)
        if route is None or route.operation.open:
            return None
        # Most often the token is that of the request before.
        said, known = headers.get(b"authorization", b""), exchange.known
        caller = known[1] if known is not None and compare_digest(known[0], said) else None
        if caller is None and (caller := self._recognise(said, exchange)) is None:
            return None
        key = (caller.team, caller.agent)
        if not relay.shares.is_free(key) or self._parking.closed:
            return None
        if route.changes:
            body = exchange.body
            if len(body) > LARGE_BYTES or not relay.incoming.has_room(key, len(body)):
                return None
            if headers.get(b"content-type") != _JSON or b"content-encoding" in headers:
                check_kind(headers)
            request = self._from_body(body, headers, found, route)
        else:
            request = route.from_query(exchange.query, name=found.name)
            if type(request) is GetLog and stream.wants_stream(headers):
                return None
        asking = Direct(relay, caller, route.operation, request, found=found, exchange=exchange)
        if route.parks and getattr(request, "wait", 0):
            asking.watch(self._waiting)
        return asking

    def _recognise(self, said: bytes, exchange: Exchange) -> Caller | None:
        """Return whose token a request carries, if it is known here, and have that remembered."""
        caller = self._relay.recognise(bearer_in(exchange.headers), address=exchange.address)
        if caller is not None:
            # Each command looks at a token again. What is signed with a key ends at a time of its own.
            known = None if caller.token_id is None else (said, caller)
            exchange.prove(caller.team, caller.agent, known)
        return caller

    # --- by ASGI ---

    async def _figures(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Tell what is counted, in the form that Prometheus reads."""
        caller = await self._caller(scope, Headers(scope["headers"]), None, "metrics")
        told = prometheus.text(await self._relay.figures(caller))
        answer = Response(told, headers={"content-type": prometheus.CONTENT_TYPE})
        await answer(scope, receive, send)

    async def _serve(
        self, scope: Scope, receive: Receive, send: Send, *, team: str | None, path: str
    ) -> None:
        found = routes.find(path)
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        route = found.methods.get(method)
        if route is None:
            allow = _allow(found)
            if method == "OPTIONS":
                await send_options(send, allow)
                return
            raise _method_not_allowed(method, allow)
        headers = Headers(scope["headers"])
        if route.operation.open:
            caller = stranger(team, address=address_of(scope))
        else:
            caller = await self._caller(scope, headers, team, route.operation.name)
        key, shares = (caller.team, caller.agent), self._relay.shares
        if not shares.is_free(key):
            await shares.turn(key)
        await shares.measured(key, self._answer(scope, receive, send, caller, found))

    async def _answer(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        caller: Caller,
        found: routes.Found,
    ) -> None:
        headers = Headers(scope["headers"])
        route = found.methods["GET" if scope["method"] == "HEAD" else scope["method"]]
        if route.operation.changes:
            key = (caller.team, caller.agent)
            with self._relay.incoming.counting(key) as counted:
                body = await self._bodies.read(receive, headers, counted)
                read = partial(self._from_body, body, headers, found, route)
                if len(body) > LARGE_BYTES:
                    request = await self._relay.shares.aside(key, read)
                else:
                    request = read()
        else:
            request = route.from_query(scope["query_string"], name=found.name)
            if isinstance(request, GetLog) and stream.wants_stream(headers):
                await self._stream(caller, request, headers, receive, send)
                return
        operation = route.operation
        call = self._relay.call(
            caller, operation.name, request, reference=found.reference, name=found.name
        )
        waits = route.parks and getattr(request, "wait", 0)
        reply = await (self._parking.park(call, receive) if waits else call)
        status = HTTPStatus.OK if reply.replayed else operation.status
        waiting = partial(self._relay.outgoing.waiting, (caller.team, caller.agent))
        body = encode(reply.answer)
        await send_answer(send, status, body, replayed=reply.replayed, waiting=waiting)

    def _from_body(
        self, body: bytes, headers: Headers, found: routes.Found, route: Route
    ) -> Request:
        key, context = headers.get(b"idempotency-key"), headers.get(b"traceparent")
        command_id = None if key is None else key.decode("latin-1").strip('"')
        request = route.from_body(
            body, name=found.name, command_id=command_id, limits=self._relay.limits
        )
        if (
            context is not None
            and isinstance(request, Offer | OfferGroup)
            and request.traceparent is None
            and is_traceparent(
                said := context.decode("latin-1")
            )  # if not, the caller is not to blame
        ):
            return replace(request, traceparent=said)
        return request

    async def _caller(
        self, scope: Scope, headers: Headers, team: str | None, operation: str
    ) -> Caller:
        secret, address = bearer_in(headers), address_of(scope)
        caller = await self._relay.authenticate(secret, address=address, operation=operation)
        prove(scope, caller.team, caller.agent)
        if team is not None and team != caller.team:
            foreign = NotFoundError("no such team")
            foreign.suspect = "foreign_team"
            self._relay.refuse(caller, operation, foreign)
            raise foreign
        return caller

    async def _manifest(
        self, scope: Scope, headers: Headers, send: Send, team: str | None, agent: str
    ) -> None:
        """Answer at an agent's discovery endpoint: its manifest, byte for byte."""
        if scope["method"] not in {"GET", "HEAD"}:
            raise _method_not_allowed(scope["method"], (b"allow", b"GET, HEAD"))
        caller = await self._caller(scope, headers, team, "get_agent")
        manifest = await self._relay.manifest(caller, agent)
        await send_answer(send, HTTPStatus.OK, manifest)

    async def _stream(
        self, caller: Caller, request: GetLog, headers: Headers, receive: Receive, send: Send
    ) -> None:
        await stream.stream_log(
            self._relay,
            caller,
            stream.resumed(request, headers),
            parking=self._parking,
            receive=receive,
            send=send,
        )


def _allow(found: routes.Found) -> Header:
    methods: set[str] = {*found.methods, "OPTIONS"}
    if "GET" in methods:
        methods.add("HEAD")
    return (b"allow", ", ".join(sorted(methods)).encode())


def _method_not_allowed(method: str, allow: Header) -> RefusedError:
    allowed = allow[1].decode()
    error = InvalidRequestError(
        f"{method} is not what this path is for", next_step=f"Use one of {allowed}."
    )
    return RefusedError(error, status=HTTPStatus.METHOD_NOT_ALLOWED, headers=(allow,))
