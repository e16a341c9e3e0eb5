"""PORT: how the SDK reaches a relay. Only the address decides which implementation it is."""

from collections.abc import AsyncIterator, Mapping
from typing import Any, Protocol


class DeliveryStream(Protocol):
    """Deliveries to one process, at most as many as were granted.

    After a reconnect a delivery may come again; whoever reads knows it by (handoff id, attempt).
    """

    @property
    def breaks(self) -> int:
        """How often the relay was out of reach. It may have come back knowing less than before."""
        ...

    def __aiter__(self) -> AsyncIterator[dict[str, Any]]:
        """Yield deliveries, as `wire.views.DeliveryView` in plain values, until closed."""
        ...

    def grant(self, n: int) -> None:
        """Let `n` more deliveries come."""
        ...

    async def close(self) -> None:
        """Stop taking. What was delivered stays leased to the process."""
        ...


class Transport(Protocol):
    """A way to ask a relay for the operations of `wire.operations`."""

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
