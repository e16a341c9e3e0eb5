"""Operations that came as whole HTTP requests, and are answered without ASGI and without a task.

A request is read, asked for with `Relay.ask`, and answered from there.
"""

import logging
from collections.abc import Callable
from functools import partial
from hmac import compare_digest
from http import HTTPStatus
from time import perf_counter
from typing import Any, Final

from msgspec import Raw
from msgspec.structs import replace
from starlette.types import Send

from nodrop.log.port import Key
from nodrop.model.errors import (
    NodropError,
    RelayFaultError,
    UnauthenticatedError,
    UnavailableError,
)
from nodrop.model.limits import Limits
from nodrop.protocol import routes
from nodrop.protocol.asgi import Exchange, Headers, bearer_in, refusal
from nodrop.protocol.operations import Operation
from nodrop.protocol.requests import GetLog, Offer, OfferGroup, Register, Request
from nodrop.protocol.routes import Found, Route
from nodrop.protocol.traces import is_traceparent
from nodrop.relay.relay import Asking, Caller, Relay, Reply
from nodrop.relay.room import COSTLY_SECONDS, LARGE_BYTES, SLICE_SECONDS
from nodrop.servers.http import stream
from nodrop.servers.http.answers import (
    HEADERS,
    REPLAYED_HEADERS,
    SMALL_BYTES,
    RefusedError,
    encode,
    refusing,
    send_answer,
)
from nodrop.servers.http.bodies import check_kind

log = logging.getLogger(__name__)

_OPERATIONS: Final = b"/v1/"
_JSON: Final = b"application/json"


class DirectDoor:
    """The operations of one relay, as far as they need no ASGI."""

    def __init__(self, relay: Relay) -> None:
        self._relay = relay
        self._waiting: set[Direct] = set()
        self._closed = False

    def close(self) -> None:
        """Let nobody wait any longer: the relay is about to stop."""
        self._closed = True
        for asking in tuple(self._waiting):
            asking.give_up(UnavailableError("the relay is stopping"))

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
        if seconds < COSTLY_SECONDS:
            shares.in_turn[asking.by].seconds += seconds
        else:  # processor time counts, and asking for it is a system call
            shares.spent(asking.by, shares.used() - used)
        return True

    def _read(self, exchange: Exchange) -> "Direct | None":
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
        key, shares = (caller.team, caller.agent), relay.shares
        turn = shares.in_turn.get(key) or shares.turn_of(key)
        if (
            self._closed
            or turn.seconds >= SLICE_SECONDS
            or (key in shares.free_at and not shares.is_free(key))
        ):
            return None
        if route.changes:
            body, incoming = exchange.body, relay.incoming
            if len(body) > LARGE_BYTES:
                return None
            if key in incoming.held and not incoming.has_room(key, len(body)):
                return None
            if headers.get(b"content-type") != _JSON or b"content-encoding" in headers:
                check_kind(headers)
            request = read_body(body, headers, found, route, relay.limits)
        else:
            request = route.from_query(exchange.query, name=found.name)
            if type(request) is GetLog and stream.wants_stream(headers):
                return None
        asking = Direct(relay, caller, key, route.operation, request, found, exchange)
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


class Direct(Asking):
    """An operation that is asked for, and answered, without ASGI."""

    __slots__ = ("_exchange", "_relay", "_status", "_unwatch", "_waiting")

    _unwatch: Callable[[], None]

    def __init__(  # noqa: PLR0917  # done for every request: names would take longer
        self,
        relay: Relay,
        caller: Caller,
        key: Key,
        operation: Operation,
        request: Request,
        found: Found,
        exchange: Exchange,
    ) -> None:
        # All of it in one go, without `Asking`: this is done for every request.
        self.by = key
        self.caller = caller
        self.operation = operation.name
        self.request = request
        self.handoff_id = found.reference or ""
        self.name = found.name
        self.quiet = False
        self.fetches = 0
        self.follower = self.work = None
        self._relay = relay
        self._exchange = exchange
        self._status = operation.status
        self._waiting: set[Direct] | None = None
        """Those that wait, if this is one of them."""

    def watch(self, waiting: "set[Direct]") -> None:
        """Be one of those that wait, for no longer than the client stays and the credential is good."""
        waiting.add(self)
        self._waiting = waiting
        self._unwatch = self._relay.on_revoked(self.caller, self._shut_out)
        self._exchange.left = self._leave

    def _shut_out(self) -> None:
        self.give_up(UnauthenticatedError())

    def give_up(self, error: NodropError) -> None:
        """Wait no longer."""
        self._relay.leave(self)
        self.refuse(error)

    def tell(self, reply: Reply) -> None:
        """Send the answer."""
        try:
            if self._waiting is not None:
                self.end()
                self._relay.require(self.caller, self.operation)  # it may have expired meanwhile
            body = encode(reply.answer)
        except NodropError as error:
            self._exchange.answer(*refusal(error))
            return
        status, headers = self._status, HEADERS
        if reply.replayed:
            status, headers = HTTPStatus.OK, REPLAYED_HEADERS
        if len(body) <= SMALL_BYTES:
            self._exchange.answer(status, headers, body)
            return
        waiting = partial(self._relay.outgoing.waiting, (self.caller.team, self.caller.agent))

        async def application(_: Any, __: Any, send: Send) -> None:
            sending = send_answer(send, status, body, replayed=reply.replayed, waiting=waiting)
            await refusing(send, sending)

        self._exchange.answer_by(application, status)

    def refuse(self, error: NodropError) -> None:
        """Send the reason why there is no answer."""
        self.end()
        self._exchange.answer(*refusal(error))

    def _leave(self) -> None:
        """Give up: the client went away."""
        self.end()
        self._relay.leave(self)

    def end(self) -> None:
        """Wait no longer: it is answered, or given up."""
        if self._waiting is not None:
            self._waiting.discard(self)
            self._waiting = None
            # Both hold this, which could not be freed.
            self._unwatch()
            self._exchange.left = None


def read_body(body: bytes, headers: Headers, found: Found, route: Route, limits: Limits) -> Request:
    """Return the request that a body is, with what its headers say."""
    key, context = headers.get(b"idempotency-key"), headers.get(b"traceparent")
    command_id = None if key is None else key.decode("latin-1").strip('"')
    if route.operation.request is Register:  # whose body is the manifest itself
        return Register(agent=found.name or "", manifest=Raw(body), command_id=command_id)
    request = route.from_body(body, name=found.name, limits=limits, command_id=command_id)
    if (
        context is not None
        and isinstance(request, Offer | OfferGroup)
        and request.traceparent is None
        and is_traceparent(said := context.decode("latin-1"))  # if not, the caller is not to blame
    ):
        return replace(request, traceparent=said)
    return request
