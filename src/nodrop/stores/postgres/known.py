"""Handoffs as this node last knew them: read, written here, or heard of from another node.

Whatever rests on them is checked when it is written (`transaction`), because another node may have
changed them since. So being out of date costs a second try, and never an answer.
"""

from collections.abc import Iterable
from typing import Final

from nodrop.core.model import Handoff
from nodrop.store import Key

KNOWN_HANDOFFS_MAX: Final = 10_000
"""Of a few kilobytes each."""


class Known:
    """A bounded mapping that forgets what was not used for longest."""

    def __init__(self, handoffs_max: int = KNOWN_HANDOFFS_MAX) -> None:
        self._handoffs: dict[Key, Handoff] = {}
        self._handoffs_max = handoffs_max

    def look(self, key: Key) -> Handoff | None:
        """Return the handoff under `key`, if it is here."""
        return self._handoffs.get(key)

    def all_of(self, keys: Iterable[Key]) -> dict[Key, Handoff] | None:
        """Return the handoffs under `keys`; None if one of them is not here."""
        found: dict[Key, Handoff] = {}
        for key in keys:
            handoff = self._handoffs.pop(key, None)
            if handoff is None:
                return None
            found[key] = self._handoffs[key] = handoff  # the latest in the dict's order now
        return found

    def keep(self, handoffs: Iterable[Handoff]) -> None:
        """Take in what is committed, unless something later is known."""
        for handoff in handoffs:
            key = (handoff.team, handoff.id)
            before = self._handoffs.pop(key, None)
            later = before is not None and before.version > handoff.version
            self._handoffs[key] = before if before is not None and later else handoff
        while len(self._handoffs) > self._handoffs_max:
            del self._handoffs[next(iter(self._handoffs))]

    def forget(self, keys: Iterable[Key]) -> None:
        """Know nothing of these any more."""
        for key in keys:
            self._handoffs.pop(key, None)

    def clear(self) -> None:
        """Know nothing any more."""
        self._handoffs.clear()
