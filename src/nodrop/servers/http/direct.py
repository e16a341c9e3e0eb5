"""An operation that came as a whole HTTP request, and is answered without ASGI and without a task."""

from collections.abc import Callable
from functools import partial
from http import HTTPStatus
from typing import Any, Final

from starlette.types import Send

from nodrop.model.errors import NodropError, UnauthenticatedError
from nodrop.protocol import routes
from nodrop.protocol.asgi import Exchange, refusal
from nodrop.protocol.requests import Request
from nodrop.protocol.routes import Route
from nodrop.relay.relay import Asking, Caller, Relay, Reply
from nodrop.servers.http.answers import SMALL_BYTES, encode, headers_of, refusing, send_answer


class Direct(Asking):
    """An operation that is asked for, and answered, without ASGI."""

    __slots__ = ("_exchange", "_relay", "_status", "_unwatch", "_waiting", "waits")

    def __init__(
        self,
        relay: Relay,
        caller: Caller,
        request: Request,
        *,
        route: Route,
        found: routes.Found,
        exchange: Exchange,
    ) -> None:
        super().__init__(
            caller, route.operation.name, request, reference=found.reference, name=found.name
        )
        self._relay = relay
        self._exchange = exchange
        self._status = route.operation.status
        self.waits: Final = bool(route.parks and getattr(request, "wait", 0))
        self._unwatch: Callable[[], None] | None = None
        self._waiting: set[Direct] | None = None
        exchange.left = self._leave

    def watch(self, waiting: "set[Direct]") -> None:
        """Be one of those that wait, for no longer than the credential is good."""
        waiting.add(self)
        self._waiting = waiting
        self._unwatch = self._relay.on_revoked(self.caller, self._shut_out)

    def _shut_out(self) -> None:
        self.give_up(UnauthenticatedError())

    def give_up(self, error: NodropError) -> None:
        """Wait no longer."""
        self._relay.leave(self)
        self.refuse(error)

    def tell(self, reply: Reply) -> None:
        """Send the answer."""
        self.end()
        try:
            if self.waits:
                self._relay.require(self.caller, self.operation)  # it may have expired meanwhile
            body = encode(reply.answer)
        except NodropError as error:
            self._exchange.answer(*refusal(error))
            return
        status = HTTPStatus.OK if reply.replayed else self._status
        if len(body) <= SMALL_BYTES:
            self._exchange.answer(status, headers_of(replayed=reply.replayed), body)
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
        if self.waits:
            self._relay.leave(self)

    def end(self) -> None:
        """Let go: it was answered, or given up."""
        # What is let go of holds this, which could not be freed.
        self._exchange.left = _nothing
        if self._unwatch is not None:
            self._unwatch()
            self._unwatch = None
        if self._waiting is not None:
            self._waiting.discard(self)
            self._waiting = None


def _nothing() -> None: ...
