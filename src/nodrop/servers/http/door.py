"""The HTTP door: one request, one operation.

A request that arrived whole is taken without ASGI (`direct`). What cannot be, because it is large, slow,
to be refused or not at its turn, comes here by bare ASGI; it is read by the same functions. Whatever is not
an operation goes to `pages`.
"""

import asyncio
from functools import partial
from http import HTTPStatus

from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from nodrop.model.errors import (
    InvalidRequestError,
    NotFoundError,
    UnavailableError,
)
from nodrop.protocol import routes
from nodrop.protocol.asgi import (
    Header,
    Headers,
    address_of,
    bearer_in,
    prove,
)
from nodrop.protocol.requests import GetLog
from nodrop.relay.relay import Caller, Relay, stranger
from nodrop.relay.room import LARGE_BYTES
from nodrop.servers.http import prometheus, stream
from nodrop.servers.http.answers import (
    RefusedError,
    encode,
    refusing,
    send_answer,
    send_options,
)
from nodrop.servers.http.bodies import BODY_SECONDS_MAX, Bodies
from nodrop.servers.http.direct import DirectDoor, read_body
from nodrop.servers.http.pages import pages
from nodrop.servers.http.parking import Parking


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
        self._directly = DirectDoor(relay)
        self.take_exchange = self._directly.take_exchange
        self._pages: ASGIApp = pages(self._parking, self._require_ready, page=dashboard)

    def close(self) -> None:
        """Let nobody wait any longer: the relay is about to stop."""
        self._parking.close()
        self._directly.close()

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
                read = partial(read_body, body, headers, found, route, self._relay.limits)
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
