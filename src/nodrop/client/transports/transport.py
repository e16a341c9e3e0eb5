"""PORT: how the SDK reaches a relay. Only the address decides which implementation it is."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, Protocol, runtime_checkable

from nodrop.protocol.pushed import Stored


class DeliveryStream(Protocol):
    """Deliveries to one process, at most as many as were granted.

    After a reconnect a delivery may come again; whoever reads knows it by (handoff id, attempt).
    """

    @property
    def breaks(self) -> int:
        """How often the relay was out of reach. It may have come back knowing less than before."""
        ...

    def __aiter__(self) -> AsyncIterator[dict[str, Any]]:
        """Yield deliveries, as `protocol.views.DeliveryView` in plain values, until closed."""
        ...

    async def hand_to(self, take: Callable[[dict[str, Any]], None]) -> None:
        """Hand deliveries to `take` as they come, until closed: the same ones, without a turn between."""
        ...

    def waiting(self) -> AsyncIterator[dict[str, Any]]:
        """Yield what waits for the agent without credit, once each, until closed.

        Each has its `id`, and as far as the transport knows `capability`, `position` and `slots`.
        """
        ...

    def grant(self, n: int) -> None:
        """Let `n` more deliveries come."""
        ...

    def show_life(self) -> None:
        """Tell the relay that this process is alive, where it holds nothing to renew."""
        ...

    async def close(self) -> None:
        """Stop taking. What was delivered stays leased to the process."""
        ...


class Transport(Protocol):
    """A way to ask a relay for the operations of `protocol.operations`."""

    async def call(
        self,
        operation: str,
        fields: Mapping[str, Any],
        *,
        handoff: str | None = None,
        name: str | None = None,
    ) -> dict[str, Any]:
        """Return the answer in plain values.

        A lost connection is repaired and the request repeated as it is, until it is answered or
        the caller is cancelled; its `command_id` keeps it from being carried out twice.

        Raises:
            NodropError: the relay refused.
        """
        ...

    async def deliveries(
        self, *, process: str, heartbeat_seconds: float, credit: int
    ) -> DeliveryStream:
        """Take work as `process`, beginning with `credit` deliveries. Once per transport."""
        ...

    async def close(self) -> None:
        """Give up the connection. Calls that wait are refused."""
        ...


@runtime_checkable
class Pushing(Protocol):
    """A transport over which the relay speaks by itself: outcomes need not be asked for."""

    async def call_followed(
        self,
        operation: str,
        fields: Mapping[str, Any],
        *,
        handoff: str | None = None,
        name: str | None = None,
    ) -> Stored:
        """Make an offer, as `Transport.call` does, and have its outcome pushed."""
        ...

    def carry_out(
        self, operation: str, fields: Mapping[str, Any], handoff: str
    ) -> Awaitable[object]:
        """Have a command carried out whose answer is not read: sent at once, and awaited later.

        Unlike with `Transport.call`, what the relay cannot do now is repeated by who asks.
        """
        ...

    def tell(self, operation: str, fields: Mapping[str, Any], *, handoff: str) -> None:
        """Have a command carried out that nobody waits for. A lost one is repeated."""
        ...

    async def flush(self) -> None:
        """Return when all that was told is durable, or was refused."""
        ...
