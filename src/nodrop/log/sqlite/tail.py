"""The tail of the logs: the last entries that were committed, in memory for those who follow them.

A follower that keeps up reads here what it would have to decode from the journal. One that is further
behind reads the journal; nothing rests on what is kept here.
"""

from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Final

import msgspec

from nodrop.log.journal import Batch, Packed
from nodrop.protocol.entries import Draft, Entry, salted_digest

TAIL_BYTES_MAX: Final = 1024 * 1024
"""Of entries and bodies, of all teams: about what a follower reads in one go."""
_HASH_HEX: Final = 64


class Tail:
    """The last batches of all teams."""

    def __init__(self) -> None:
        self._batches: deque[_Kept] = deque()
        self._by_team: dict[str, deque[_Kept]] = {}
        self._bytes = 0

    def add(self, packed: Packed, drafts: Sequence[Draft]) -> None:
        """Take in what was committed."""
        batch = packed.batch
        size = len(batch.entries) + len(batch.bodies)
        for body in packed.large:
            size += len(body.body)
        kept = _Kept(batch, drafts, size)
        self._batches.append(kept)
        of_team = self._by_team.get(batch.team)
        if of_team is None:
            of_team = self._by_team[batch.team] = deque()
        of_team.append(kept)
        self._bytes += size
        while self._bytes > TAIL_BYTES_MAX:
            gone = self._batches.popleft()
            self._bytes -= gone.size
            of_team = self._by_team[gone.batch.team]
            of_team.popleft()
            if not of_team:
                del self._by_team[gone.batch.team]

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
        found: list[Sequence[Entry]] = []
        for kept in reversed(batches):
            if kept.batch.last_seq != end or end <= seq:
                break
            found.append(kept.entries())
            end = kept.batch.first_seq - 1
        if end > seq:
            return None
        fitting = (e for entries in reversed(found) for e in entries if e.seq > seq and fits(e))
        return list(islice(fitting, limit))


class _Kept(msgspec.Struct, gc=False):
    """A batch that was committed. Its drafts are made entries when the first follower asks."""

    batch: Batch
    drafts: Sequence[Draft]
    size: int
    made: Sequence[Entry] = ()

    def entries(self) -> Sequence[Entry]:
        """Return its entries."""
        if not self.made:
            self.made = self._sealed()
            self.drafts = ()  # with the bodies
        return self.made

    def _sealed(self) -> list[Entry]:
        prev, hashes = self.batch.prev_hash.hex(), self.batch.hashes.hex()
        sealed: list[Entry] = []
        for n, draft in enumerate(self.drafts):
            own = hashes[n * _HASH_HEX : (n + 1) * _HASH_HEX]
            body = draft.body
            sealed.append(
                Entry(
                    team=draft.team,
                    seq=self.batch.first_seq + n,
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
        return sealed
