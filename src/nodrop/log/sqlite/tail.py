"""The tail of the logs: the last entries that were committed, in memory for those who follow them.

A follower that keeps up reads here what it would have to decode from the journal. One that is further
behind reads the journal; nothing rests on what is kept here.
"""

from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Final

from nodrop.log.journal import Packed
from nodrop.protocol.entries import Draft, Entry, salted_digest

TAIL_BYTES_MAX: Final = 1024 * 1024
"""Of entries and bodies, of all teams: about what a follower reads in one go."""
_HASH_HEX: Final = 64


class Tail:
    """The last batches of all teams."""

    def __init__(self) -> None:
        self._batches: deque[_Batch] = deque()
        self._by_team: dict[str, deque[_Batch]] = {}
        self._bytes = 0

    def add(self, packed: Packed, drafts: Sequence[Draft]) -> None:
        """Take in what was committed."""
        batch = _Batch(packed, drafts)
        self._batches.append(batch)
        of_team = self._by_team.get(batch.team)
        if of_team is None:
            of_team = self._by_team[batch.team] = deque()
        of_team.append(batch)
        self._bytes += batch.size
        while self._bytes > TAIL_BYTES_MAX:
            gone = self._batches.popleft()
            self._bytes -= gone.size
            of_team = self._by_team[gone.team]
            of_team.popleft()
            if not of_team:
                del self._by_team[gone.team]

    def clear(self) -> None:
        """Drop everything."""
        self._batches.clear()
        self._by_team.clear()
        self._bytes = 0

    def after(
        self, team: str, seq: int, end: int, fits: Callable[[Entry], bool], limit: int
    ) -> list[Entry] | None:
        """Return the entries after `seq` that fit; None: it does not have all of them up to `end`."""
        batches = self._by_team.get(team)
        if batches is None:
            return None
        found: list[list[Entry]] = []
        for batch in reversed(batches):
            if batch.last != end or end <= seq:
                break
            found.append(batch.entries())
            end = batch.first - 1
        if end > seq:
            return None
        fitting = (e for entries in reversed(found) for e in entries if e.seq > seq and fits(e))
        return list(islice(fitting, limit))


class _Batch:
    """A batch that was committed. Its drafts are made entries when the first follower asks."""

    __slots__ = ("_drafts", "_entries", "_hashes", "_prev_hash", "first", "last", "size", "team")

    def __init__(self, packed: Packed, drafts: Sequence[Draft]) -> None:
        batch = packed.batch
        self.team = batch.team
        self.first = batch.first_seq
        self.last = batch.last_seq
        self.size = len(batch.entries) + len(batch.bodies)
        for body in packed.large:
            self.size += len(body.body)
        self._drafts = drafts
        self._prev_hash = batch.prev_hash
        self._hashes = batch.hashes
        self._entries: list[Entry] = []

    def entries(self) -> list[Entry]:
        if not self._entries:
            prev, hashes = self._prev_hash.hex(), self._hashes.hex()
            for n, draft in enumerate(self._drafts):
                own = hashes[n * _HASH_HEX : (n + 1) * _HASH_HEX]
                body = draft.body
                self._entries.append(
                    Entry(
                        team=draft.team,
                        seq=self.first + n,
                        at=draft.at,
                        type=draft.type,
                        actor=draft.actor,
                        handoff_id=draft.handoff_id,
                        version=draft.version,
                        correlation_id=draft.correlation_id,
                        command_id=draft.command_id,
                        data=draft.data,
                        body_digest=None if body is None else salted_digest(draft.salt, body),
                        prev_hash=prev,
                        hash=own,
                    )
                )
                prev = own
            self._drafts = ()  # with the bodies
        return self._entries
