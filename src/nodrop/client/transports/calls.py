"""Commands and reads on their way to a transport: each command gets its id here, once."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, Final, Protocol, TypeVar

from nodrop.client.ids import new_id
from nodrop.client.transports.transport import Pushing, Transport
from nodrop.client.values import require
from nodrop.model.errors import InvalidRequestError, NodropError, SignatureStaleError
from nodrop.protocol.operations import OPERATIONS
from nodrop.protocol.pushed import Stored
from nodrop.protocol.requests import Command

_COMMANDS: Final = frozenset(
    name for name, operation in OPERATIONS.items() if issubclass(operation.request, Command)
)


T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

ID_CHARS: Final = 36
"""A whole id; anything shorter is a prefix or a reference."""


class Signer(Protocol):
    """The key of the agent that asks."""

    def signs(self, operation: str) -> bool:
        """Whether such requests are signed."""
        ...

    def signature(self, operation: str, fields: Mapping[str, Any], handoff: str | None) -> str:
        """Return the signature of a request, made now."""
        ...


class Send(Protocol[T_co]):
    """A way to ask for an operation: `Transport.call`, or the like."""

    async def __call__(
        self,
        operation: str,
        fields: Mapping[str, Any],
        *,
        handoff: str | None = None,
        name: str | None = None,
    ) -> T_co:
        """Return the answer."""
        ...


class Calls:
    """What one agent asks of a relay."""

    def __init__(
        self,
        transport: Transport,
        *,
        agent: str | None,
        signer: Signer | None = None,
        new_id: Callable[[], str] = new_id,
    ) -> None:
        self.transport = transport
        self._pushing = transport if isinstance(transport, Pushing) else None
        self.signer = signer
        """Signs what is worth it; None: this agent has no key here."""
        self.agent = agent
        """Who is asking; None where only the relay knows whose token it is."""
        self.new_id = new_id
        """Where command ids come from."""
        self._aside: set[asyncio.Task[None]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        """The event loop of the first call: what a transport waits for happens there."""

    async def call(
        self,
        operation: str,
        fields: Mapping[str, Any] | None = None,
        *,
        handoff: str | None = None,
        name: str | None = None,
    ) -> dict[str, Any]:
        """Ask for an operation of the protocol by its name and return the answer as it came.

        Raises:
            NodropError: the relay refused, or cannot be reached.
        """
        try:
            sent = self._complete(operation, fields, handoff, name)
            if self.signer is not None and self.signer.signs(operation):
                return await self._send_signed(
                    self.transport.call, self.signer, operation, sent, handoff=handoff, name=name
                )
            return await self.transport.call(operation, sent, handoff=handoff, name=name)
        except NodropError as error:
            _annotate(error)
            raise

    def carried_out(
        self, operation: str, fields: Mapping[str, Any], handoff: str
    ) -> Awaitable[object]:
        """Ask for a command that has its id, and whose answer nobody reads."""
        if self._pushing is None or self.signer is not None:
            return self.call(operation, fields, handoff=handoff)
        return self._pushing.carry_out(operation, fields, handoff)

    async def _offer(self, fields: Mapping[str, Any]) -> dict[str, Any] | Stored:
        """Make an offer; return the handoff, or the answer whose outcome will be pushed.

        Raises:
            NodropError: the relay refused, or cannot be reached.
        """
        if self._pushing is None:
            return (await self.call("offer", {**fields, "brief": True}))["handoff"]
        send, signer = self._pushing.call_followed, self.signer
        try:
            sent = self._complete("offer", fields, None, None)
            sent["brief"] = True
            if signer is None or not signer.signs("offer"):
                return await send("offer", sent)
            return await self._send_signed(send, signer, "offer", sent, handoff=None, name=None)
        except NodropError as error:
            _annotate(error)
            raise

    def _complete(
        self,
        operation: str,
        fields: Mapping[str, Any] | None,
        handoff: str | None,
        name: str | None,
    ) -> dict[str, Any]:
        """Return the fields to send: a command's with its id."""
        if operation not in OPERATIONS:
            raise InvalidRequestError(f"there is no operation {operation}")
        self.require_its_loop()
        # Such as a handoff in the place of its id: neither can stand in a path.
        if handoff is not None:
            require("handoff_id", handoff, str)
        if name is not None:
            require("name", name, str)
        sent = {**fields} if fields else {}
        # An offer with a key is known by it when it is repeated. What is signed has an id in any case.
        keyed = operation == "offer" and sent.get("idempotency_key") and self.signer is None
        if operation in _COMMANDS and not keyed and sent.get("command_id") is None:
            sent["command_id"] = self.new_id()
        return sent

    async def _send_signed(
        self,
        send: Send[T],
        signer: Signer,
        operation: str,
        sent: dict[str, Any],
        *,
        handoff: str | None,
        name: str | None,
    ) -> T:
        if handoff is not None and len(handoff) != ID_CHARS:
            handoff = await self._whole_id(handoff)  # what is signed names it in full
        try:
            signed = {**sent, "signature": signer.signature(operation, sent, handoff)}
            return await send(operation, signed, handoff=handoff, name=name)
        except SignatureStaleError:
            # The relay was away for longer than a signature lasts; the command is the same one.
            signed = {**sent, "signature": signer.signature(operation, sent, handoff)}
            return await send(operation, signed, handoff=handoff, name=name)

    def tell(self, operation: str, handoff: str) -> bool:
        """Have a command carried out that nobody waits for; whether that can be done here.

        It has no id, so only for what may be said twice: what is settled stays settled.
        """
        if self._pushing is None:
            return False
        self._pushing.tell(operation, {}, handoff=handoff)
        return True

    def say_aside(self, saying: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        """Have the relay told something that nobody waits for; `flush` does."""
        task = asyncio.create_task(saying)
        self._aside.add(task)
        task.add_done_callback(self._aside.discard)
        return task

    async def flush(self) -> None:
        """Return when the relay has heard everything that was said aside: what is settled."""
        while self._aside:
            await asyncio.wait(self._aside)
        if self._pushing is not None:
            await self._pushing.flush()

    def require_its_loop(self) -> None:
        """Refuse to wait on another event loop than the connection's."""
        loop = asyncio.get_running_loop()
        if self._loop is loop:
            return
        if self._loop is not None:  # whose answers would wake nobody here
            raise InvalidRequestError(
                "the connection is that of another event loop",
                next_step="Connect on each loop, or share what nodrop.connect_sync gives.",
            )
        self._loop = loop

    async def _whole_id(self, reference: str) -> str:
        answer = await self.transport.call("get_handoff", {}, handoff=reference)
        return answer["handoff"]["id"]

    async def about(self, handoff: str, operation: str, **fields: Any) -> dict[str, Any]:
        """Ask for an operation on a handoff and return the handoff as it is then."""
        answer = await self.call(operation, fields, handoff=handoff)
        return answer["handoff"]


def _annotate(error: NodropError) -> None:
    """Have a traceback show what to do about it."""
    if not hasattr(error, "__notes__"):  # one error may end several calls
        error.add_note(error.next_step)
