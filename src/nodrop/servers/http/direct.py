"""An operation that came as a whole HTTP request, and is answered without ASGI and without a task."""

from collections.abc import Callable
from functools import partial
from http import HTTPStatus
from typing import Any

from starlette.types import Send

from nodrop.model.errors import NodropError, UnauthenticatedError
from nodrop.protocol.asgi import Exchange, refusal
from nodrop.protocol.operations import Operation
from nodrop.protocol.requests import Request
from nodrop.protocol.routes import Found
from nodrop.relay.relay import Asking, Caller, Relay, Reply
from nodrop.servers.http.answers import (
    HEADERS,
    REPLAYED_HEADERS,
    SMALL_BYTES,
    encode,
    refusing,
    send_answer,
)


class Direct(Asking):
    """An operation that is asked for, and answered, without ASGI."""

    __slots__ = ("_exchange", "_relay", "_status", "_unwatch", "_waiting")

    _unwatch: Callable[[], None]

    def __init__(
        self,
        relay: Relay,
        caller: Caller,
        operation: Operation,
        request: Request,
        *,
        found: Found,
        exchange: Exchange,
    ) -> None:
        super().__init__(caller, operation.name, request, found.reference, found.name)
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
