"""PORT: how the tools reach a relay, and what they remember between two calls."""

from collections.abc import Mapping
from typing import Any, Final, Protocol

from nodrop.model.handoff import FINAL

REMEMBERED_MAX: Final = 1_000
"""Deliveries remembered for one agent; the oldest go first."""

_OVER: Final = frozenset({*(state.value for state in FINAL), "offered"})


class Way(Protocol):
    """One agent's way to a relay. Whoever holds it is that agent: no tool says who is asking."""

    @property
    def agent(self) -> str | None:
        """Who is asking; None before the first answer, where only a token says it."""
        ...

    async def call(
        self,
        operation: str,
        fields: Mapping[str, Any],
        *,
        handoff: str | None = None,
        name: str | None = None,
    ) -> dict[str, Any]:
        """Return the answer to an operation of `protocol.operations`, in plain values.

        Raises:
            NodropError: the relay refused, or did not answer.
        """
        ...


class Memory(Protocol):
    """The attempts that an agent was given: what fences it once somebody else has the work."""

    def of(self, handoff_id: str) -> int | None:
        """Return the attempt last given."""
        ...

    def remember(self, handoff: Mapping[str, Any]) -> None:
        """Keep the attempt that a handoff shows, or forget it once that can do nothing more."""
        ...

    def forget(self, handoff_id: str) -> None:
        """Drop what is known of a handoff."""
        ...


class ShortMemory:
    """A memory that lasts as long as its process. Forgetting is safe: the relay never guesses."""

    def __init__(self) -> None:
        self._attempts: dict[str, int] = {}

    def of(self, handoff_id: str) -> int | None:
        """Return the attempt last given."""
        return self._attempts.get(handoff_id)

    def remember(self, handoff: Mapping[str, Any]) -> None:
        """Keep the attempt that a handoff shows, or forget it once that can do nothing more."""
        self.forget(handoff["id"])
        if handoff["state"] not in _OVER:
            self._attempts[handoff["id"]] = handoff["attempt"]
            while len(self._attempts) > REMEMBERED_MAX:
                del self._attempts[next(iter(self._attempts))]

    def forget(self, handoff_id: str) -> None:
        """Drop what is known of a handoff."""
        self._attempts.pop(handoff_id, None)
