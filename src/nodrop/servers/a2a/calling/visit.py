"""A visit: one caller at the address of one agent, and its way to the relay."""

from collections.abc import AsyncIterator, Mapping
from typing import Any, Protocol

import msgspec

from nodrop.model.names import ANONYMOUS
from nodrop.relay.relay import Caller

View = dict[str, Any]


class Way(Protocol):
    """How a caller's commands reach the relay."""

    async def call(
        self,
        operation: str,
        fields: Mapping[str, Any],
        *,
        handoff: str | None = None,
        name: str | None = None,
    ) -> View:
        """Return the answer in plain values.

        Raises:
            NodropError: the relay refused.
        """
        ...


class Deliveries(Protocol):
    """What comes for an agent."""

    def __aiter__(self) -> AsyncIterator[View]: ...

    def grant(self, n: int) -> None:
        """Let `n` more come."""
        ...

    async def close(self) -> None:
        """Let nothing more come."""
        ...


class WorkWay(Way, Protocol):
    """A way to the relay on which work comes, too."""

    async def deliveries(
        self, *, process: str, heartbeat_seconds: float, credit: int
    ) -> Deliveries:
        """Take work as `process`."""
        ...

    async def close(self) -> None:
        """Give it up."""
        ...


class Visit(msgspec.Struct, frozen=True, kw_only=True):
    """Who asks, whom for, and where."""

    caller: Caller
    agent: str
    base: str
    """The address at which the caller sees this relay, without a slash at the end."""
    way: Way
    grpc: str | None = None
    """HOST:PORT of the gRPC binding, where it is open."""
    listed: str | None = None
    """The state that a list is asked for, as it was said: the SDK leaves out one that it does not know."""

    @property
    def anonymous(self) -> bool:
        """Whether nobody knows who it is."""
        return self.caller.agent == ANONYMOUS
