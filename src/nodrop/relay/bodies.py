"""Bodies lately used, kept at hand.

A handoff's words and data are read again within milliseconds of being written, by the recipient
and then by the requester; this saves the store those reads. Bounded in bytes, oldest out first.
"""

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import Final

from nodrop.log.port import Store

BodyKey = tuple[str, str, int]
"""(team, handoff id, version)."""

BYTES_MAX: Final = 12 * 1024 * 1024
"""Of small bodies, some 30,000: what thousands of handoffs need between two of their commands, and
well between two sizes of the table that holds them, which takes megabytes when it doubles."""
_OVERHEAD_BYTES: Final = 300
"""What Python needs beside the bytes of a body: its key, its place, its header. Most bodies are
smaller than that, and the cache would grow as they take the place of larger ones."""


class MissingBodyError(Exception):
    """A body must be fetched from the store before a decision can be made."""

    def __init__(self, key: BodyKey) -> None:
        super().__init__(key)
        self.key = key


class Bodies:
    """A bounded cache in front of the store's bodies."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._kept: OrderedDict[BodyKey, bytes | None] = OrderedDict()
        self._bytes = 0
        self._erasures = 0

    def keep(self, bodies: Mapping[BodyKey, bytes | None]) -> None:
        """Keep bodies that are committed; None: the store has none."""
        kept, size = self._kept, self._bytes
        for key, body in bodies.items():
            if key in kept:
                size -= _OVERHEAD_BYTES + len(kept.pop(key) or b"")
            kept[key] = body
            size += _OVERHEAD_BYTES if body is None else _OVERHEAD_BYTES + len(body)
            while size > BYTES_MAX:
                _, oldest = kept.popitem(last=False)
                size -= _OVERHEAD_BYTES + len(oldest or b"")
        self._bytes = size

    def drop(self, key: BodyKey) -> None:
        """Forget a body."""
        if key in self._kept:
            self._bytes -= _OVERHEAD_BYTES + len(self._kept.pop(key) or b"")

    def clear(self) -> None:
        """Forget every body: each can be read again."""
        self._kept.clear()
        self._bytes = 0

    def forget_handoff(self, team: str, handoff_id: str) -> None:
        """Forget every body of a handoff: it was erased."""
        self._erasures += 1
        for key in [k for k in self._kept if k[:2] == (team, handoff_id)]:
            self.drop(key)

    def cached(self, key: BodyKey) -> bytes | None:
        """Return a body without waiting.

        Raises:
            MissingBodyError: it is not at hand; fetch it and try again.
        """
        try:
            self._kept.move_to_end(key)
        except KeyError:
            raise MissingBodyError(key) from None
        return self._kept[key]

    async def fetch(self, keys: Iterable[BodyKey]) -> dict[BodyKey, bytes | None]:
        """Return the bodies of `keys`, from the store where they are not at hand."""
        wanted = set(keys)
        # Taken now: what comes from the store may push it out before we return.
        cached = {key: self._kept[key] for key in wanted if key in self._kept}
        missing = wanted - cached.keys()
        found: dict[BodyKey, bytes | None] = {}
        erasures = self._erasures
        for team in {key[0] for key in missing}:
            places = [(h, v) for t, h, v in missing if t == team]
            bodies = await self._store.bodies(team, places)
            for place in places:
                found[team, *place] = bodies.get(place)
        # What was read before an erasure must not come back by being kept after it.
        if erasures == self._erasures:
            self.keep(found)
        return cached | found
