"""The handoffs that were used last, decoded.

The store is the only writer of its file, so what was read or committed once stays true until it
writes again. Not thread-safe: it belongs to the writer thread, like the connection.
"""

from collections.abc import Iterable

from nodrop.core.model import Handoff
from nodrop.store import Key


class Cache:
    """A bounded mapping that forgets what was not used for longest."""

    def __init__(self, handoffs_max: int) -> None:
        self._handoffs: dict[Key, Handoff] = {}
        self._handoffs_max = handoffs_max

    def get(self, key: Key) -> Handoff | None:
        """Return the handoff under `key`, if it is here."""
        handoff = self._handoffs.pop(key, None)
        if handoff is not None:
            self._handoffs[key] = handoff  # a dict keeps the order of insertion: now the latest
        return handoff

    def look(self, key: Key) -> Handoff | None:
        """Return the handoff under `key`, if it is here; no use that counts. From any thread."""
        return self._handoffs.get(key)

    def keep(self, handoffs: Iterable[Handoff]) -> None:
        """Take `handoffs` in, each in the place of what was under its key."""
        for handoff in handoffs:
            key = (handoff.team, handoff.id)
            self._handoffs.pop(key, None)
            self._handoffs[key] = handoff
        while len(self._handoffs) > self._handoffs_max:
            del self._handoffs[next(iter(self._handoffs))]

    def clear(self) -> None:
        """Forget everything."""
        self._handoffs.clear()
