"""State in memory: every open handoff by what it is found by, and the rows that are yet to be written.

The log is the truth. A commit appends to it, and is then merged here; rows of handoffs and inbox items
follow later, in slices that ride on other commits. Whatever is not in its row yet is pinned in memory, and
the watermark says from where on the log must be read again after a crash. Nothing here touches a disk,
and nothing here changes before its commit is durable.
"""

import heapq
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final, TypeVar

import msgspec

from nodrop.log.port import Key, Mail, Row
from nodrop.model.handoff import Handoff
from nodrop.protocol.entries import Head

K = TypeVar("K")

CACHED_HANDOFFS_MAX: Final = 10_000
"""Handoffs that are kept although their rows are written; of a few kilobytes each."""
TRAIL_MAX: Final = 256
"""Places that a handoff keeps in its own row; what goes beyond is split off in halves."""
SLICE_ROWS_MIN: Final = 128
"""Fewer rows than this are left for later: rows that are next to each other share pages."""
SLICE_ROWS_MAX: Final = 512
BEHIND_ENTRIES_MAX: Final = 10_000
"""How far rows may stay behind the log before open handoffs are written too: a start replays no more."""
_DEAD_MAX: Final = 1_000
"""Entries of an index that no longer count, before it is made anew."""


class Kept(msgspec.Struct, gc=False):
    """A handoff in memory, and the places of its entries in the log."""

    handoff: Handoff
    applied: int
    """The last entry that is folded into it."""
    trail: list[int]
    """The `seq` of each of its versions, from `trail_from` on."""
    trail_from: int = 1
    asked: tuple[str, ...] | None = None
    """The recipients that its parties were written with; None: they were not."""
    row: Row | None = None
    """The row it is found by; None: it has not changed since it was read."""
    overflow: Sequence[tuple[int, list[int]]] = ()
    """Older parts of the trail that are yet to be written: (first version, places)."""

    def split(self) -> None:
        """Keep the later half of the trail, and have the other written apart."""
        half = TRAIL_MAX // 2
        self.overflow = (*self.overflow, (self.trail_from, self.trail[:half]))
        self.trail, self.trail_from = self.trail[half:], self.trail_from + half

    def place(self, version: int) -> int | None:
        """Return the `seq` of a version, if it is in memory."""
        for first, seqs in ((self.trail_from, self.trail), *self.overflow):
            if first <= version < first + len(seqs):
                return seqs[version - first]
        return None


class Stub(msgspec.Struct, gc=False):
    """The values that an open handoff is found by."""

    recipient: str
    origin: str
    correlation_id: str
    process: str | None = None
    """The process that holds it."""
    due_at: int | None = None
    rank: int | None = None
    ended: bool = True


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """A handoff as it is to be written: it does not change while that is done on another thread."""

    row: Row
    applied: int
    trail: tuple[int, ...]
    trail_from: int
    overflow: tuple[tuple[int, list[int]], ...]
    parties: bool
    """Whether its parties are to be written too."""


class Slice(msgspec.Struct, frozen=True, kw_only=True):
    """Rows and inbox items that earlier commits have left."""

    rows: Sequence[Snapshot] = ()
    mail: Sequence[tuple[str, str, Mail]] = ()
    """(team, reader, item)."""
    watermarks: Sequence[tuple[str, int]] = ()
    """(team, seq) up to which everything is written once the slice is."""


NOTHING_BEHIND: Final = Slice()


class TeamState:
    """What is in memory of one team besides its handoffs."""

    def __init__(self, head: Head, *, watermark: int, horizon: int) -> None:
        self.head = head
        self.horizon = horizon
        """The log begins after this entry."""
        self.watermark = watermark
        """Rows and inboxes are as the log up to here made them."""
        self.unwritten: dict[str, int] = {}
        """Handoffs whose rows are behind, and the first entry that is missing in each, in that order."""
        self.closed: dict[str, None] = {}
        """Those of them to which nothing more is likely to happen."""
        self.mail: deque[tuple[str, Mail]] = deque()
        """Inbox items that are not in the table yet, in the order of the log."""

    @property
    def is_far_behind(self) -> bool:
        """Whether so much is not written yet that writing some of it is worth a visit to the tables."""
        return (
            len(self.closed) >= SLICE_ROWS_MIN
            or len(self.mail) >= 2 * SLICE_ROWS_MIN
            or self.head.seq - self.watermark > BEHIND_ENTRIES_MAX
        )

    def next_watermark(self, rows: Iterable[str] = (), mail: int = 0) -> int:
        """Return the watermark once these rows, and so many inbox items, are written."""
        written = set(rows)
        first = next((seq for name, seq in self.unwritten.items() if name not in written), None)
        if mail < len(self.mail):
            seq = self.mail[mail][1].seq
            first = seq if first is None else min(first, seq)
        return self.head.seq if first is None else first - 1


class State:
    """Everything that a store keeps in memory. Belongs to the event loop."""

    def __init__(self) -> None:
        self.teams: dict[str, TeamState] = {}
        self.unwritten: dict[Key, Kept] = {}
        """Handoffs whose rows are behind: most of those that are asked for."""
        self._written: dict[Key, Kept] = {}
        """The most lately used last."""
        self._stubs: dict[Key, Stub] = {}
        self.due_times: list[tuple[int, str, str]] = []
        """A heap, with some that no longer count."""
        self._queues: dict[Key, _Queue] = {}
        self._recipients: dict[Key, dict[str, None]] = {}
        """What has no outcome yet, by recipient."""
        self._held: dict[Key, dict[str, None]] = {}
        self._chains: dict[Key, dict[str, None]] = {}
        """What has no outcome yet, by correlation; but for what began it, which has its id."""

    # --- handoffs ---

    def get(self, key: Key) -> Kept | None:
        """Return a handoff, if it is in memory."""
        kept = self.unwritten.get(key)
        if kept is not None:
            return kept
        kept = self._written.pop(key, None)
        if kept is not None:
            self._written[key] = kept
        return kept

    def admit(self, kept: Kept) -> Kept:
        """Take in a handoff as its row has it; return it as it is in memory."""
        key = (kept.handoff.team, kept.handoff.id)
        known = self.unwritten.get(key) or self._written.get(key)
        if known is not None:
            return known
        self._written[key] = kept
        self._forget_oldest()
        return kept

    def admit_stub(self, key: Key, stub: Stub) -> None:
        """Take in what an open handoff is found by, as its row has it."""
        known = self._stubs.get(key)
        if stub.due_at is None and stub.ended:
            self._forget_stub(key, known)
            return
        if known is None:
            known = self._stubs[key] = Stub(stub.recipient, stub.origin, stub.correlation_id)
        self._move(key, known, stub.recipient, stub.process, stub.due_at, stub.rank, stub.ended)

    def unwritten_of(self, team: str) -> dict[str, Handoff]:
        """Return the handoffs of a team whose rows are behind, by id."""
        known = self.teams.get(team)
        if known is None:
            return {}
        return {name: self.unwritten[team, name].handoff for name in known.unwritten}

    def forget(self, key: Key) -> None:
        """Forget a handoff: there is no row of it any more."""
        self.unwritten.pop(key, None)
        self._written.pop(key, None)
        self._forget_stub(key, self._stubs.get(key))
        team = self.teams.get(key[0])
        if team is not None:
            team.unwritten.pop(key[1], None)
            team.closed.pop(key[1], None)

    def shed(self) -> None:
        """Forget what is kept although its row is written. Not while a unit of work rests on it."""
        self._written.clear()

    def drop(self, name: str) -> None:
        """Forget a team as a whole: what was known of it is not what its log says."""
        self.teams.pop(name, None)
        for known in (self.unwritten, self._written):
            for key in [key for key in known if key[0] == name]:
                del known[key]
        for key, stub in [item for item in self._stubs.items() if item[0][0] == name]:
            self._forget_stub(key, stub)

    def forget_closed(self, name: str, horizon: int) -> None:
        """Forget what is over and was last changed up to `horizon`: its row may be gone."""
        for key, kept in list(self._written.items()):
            if key[0] == name and kept.applied <= horizon and key not in self._stubs:
                del self._written[key]

    def _forget_oldest(self) -> None:
        """Forget written handoffs that were not used for longest, where there are many."""
        for key in _first(self._written, len(self._written) - CACHED_HANDOFFS_MAX):
            del self._written[key]

    # --- merging what is durable ---

    def follow(self, team: TeamState, row: Row, seqs: Sequence[int], *, since: int) -> None:
        """Take in a handoff that changed with the entries at `seqs`, none of which is in its row."""
        handoff, due_at = row.handoff, row.due_at
        handoff_id, ended = handoff.id, handoff.outcome is not None
        key = (handoff.team, handoff_id)
        kept = self.unwritten.get(key)
        if kept is None:
            kept = self._written.pop(key, None)
            if kept is None:
                kept = Kept(handoff, 0, [])
            self.unwritten[key] = kept
            team.unwritten[handoff_id] = seqs[0] if seqs else since
        kept.row = row
        kept.handoff = handoff
        if seqs:
            kept.trail += seqs
            kept.applied = seqs[-1]
            if len(kept.trail) > TRAIL_MAX:
                kept.split()
        stub = self._stubs.get(key)
        if due_at is None:
            team.closed[handoff_id] = None
            if ended:
                self._forget_stub(key, stub)
                return
        elif team.closed:
            team.closed.pop(handoff_id, None)
        if stub is None:
            stub = Stub(handoff.recipient, handoff.origin, handoff.correlation_id)
            self._stubs[key] = stub
        process = handoff.process if row.held else None
        self._move(key, stub, handoff.recipient, process, due_at, row.rank, ended)

    # --- writing behind ---

    def slice(self, teams: Iterable[str]) -> Slice:
        """Return rows and inbox items of these teams to be written next, where that is worth a visit."""
        rows: list[Snapshot] = []
        mail: list[tuple[str, str, Mail]] = []
        watermarks: list[tuple[str, int]] = []
        for name in teams:
            team = self.teams.get(name)
            if team is None or not team.is_far_behind:
                continue
            most = min(max(SLICE_ROWS_MIN, len(team.closed) // 4), SLICE_ROWS_MAX)
            chosen = _first(team.closed, most)
            if team.head.seq - team.watermark > BEHIND_ENTRIES_MAX:
                chosen = list(dict.fromkeys([*_first(team.unwritten, most), *chosen]))
            items = min(len(team.mail), 2 * most)
            rows += [self._snapshot((name, handoff_id)) for handoff_id in chosen]
            mail += _front(name, team.mail, items)
            watermarks.append((name, team.next_watermark(chosen, items)))
        if not watermarks:
            return NOTHING_BEHIND
        return Slice(rows=rows, mail=mail, watermarks=watermarks)

    def piece_of(self, name: str, most: int) -> Slice:
        """Return what a team has left for longest: at most so many rows, and some inbox items."""
        team = self.teams[name]
        chosen = _first(team.unwritten, most)
        items = min(len(team.mail), 2 * most)
        mark = team.next_watermark(chosen, items)
        return Slice(
            rows=[self._snapshot((name, handoff_id)) for handoff_id in chosen],
            mail=_front(name, team.mail, items),
            watermarks=[(name, mark)] if mark > team.watermark else (),
        )

    def all_of(self, name: str) -> Slice:
        """Return everything of a team that is yet to be written."""
        team = self.teams[name]
        return Slice(
            rows=[self._snapshot((name, handoff_id)) for handoff_id in team.unwritten],
            mail=_front(name, team.mail, len(team.mail)),
            watermarks=[(name, team.head.seq)] if team.watermark < team.head.seq else (),
        )

    def wrote(self, slice_: Slice) -> None:
        """Take note that a slice is in its tables."""
        teams, unwritten, kept_written = self.teams, self.unwritten, self._written
        for written in slice_.rows:
            handoff = written.row.handoff
            handoff_id = handoff.id
            key = (handoff.team, handoff_id)
            kept = unwritten.get(key)
            if kept is None or kept.applied != written.applied:
                continue  # it has changed since: its row is behind again
            del unwritten[key]
            kept_written[key] = kept
            team = teams[handoff.team]
            del team.unwritten[handoff_id]
            if handoff_id in team.closed:
                del team.closed[handoff_id]
            kept.asked = handoff.asked
            if written.overflow:
                kept.overflow = kept.overflow[len(written.overflow) :]
        self._forget_oldest()
        for name, _, item in slice_.mail:
            mail = teams[name].mail
            if mail and mail[0][1] is item:  # else another slice had it too
                mail.popleft()
        for name, seq in slice_.watermarks:
            team = teams[name]
            team.watermark = max(team.watermark, seq)

    def covered(self, name: str, watermark: int) -> None:
        """Take note that another node has written everything of a team up to `watermark`."""
        team = self.teams[name]
        if watermark <= team.watermark:
            return
        for handoff_id in list(team.unwritten):
            key = (name, handoff_id)
            kept = self.unwritten[key]
            if kept.applied <= watermark:
                del self.unwritten[key]
                del team.unwritten[handoff_id]
                team.closed.pop(handoff_id, None)
                kept.overflow = ()
                kept.asked = kept.handoff.asked
                self._written[key] = kept
        self._forget_oldest()
        while team.mail and team.mail[0][1].seq <= watermark:
            team.mail.popleft()
        team.watermark = watermark

    def _snapshot(self, key: Key) -> Snapshot:
        kept = self.unwritten[key]
        assert kept.row is not None, "it has changed"
        return Snapshot(
            row=kept.row,
            applied=kept.applied,
            trail=tuple(kept.trail),
            trail_from=kept.trail_from,
            overflow=tuple(kept.overflow),
            parties=kept.asked != kept.handoff.asked,
        )

    # --- finding ---

    def claimable(self, team: str, agent: str, limit: int) -> list[Key]:
        """Return what `agent` may take, in the order of its queue."""
        queue = self._queues.get((team, agent))
        if queue is None:
            return []

        def counts(rank: int, handoff_id: str) -> bool:
            stub = self._stubs.get((team, handoff_id))
            return stub is not None and (stub.rank, stub.recipient) == (rank, agent)

        found = queue.first(limit, counts)
        if not found:
            del self._queues[team, agent]
        return [(team, handoff_id) for handoff_id in found]

    def queue(self, team: str, agent: str) -> dict[str, int | None]:
        """Return the ids of what has no outcome yet and `agent` is the recipient of, with their ranks."""
        mine = self._recipients.get((team, agent), ())
        return {handoff_id: self._stubs[team, handoff_id].rank for handoff_id in mine}

    def held(self, team: str, process: str) -> list[Key]:
        """Return what a process holds, in the order of ids."""
        return [(team, handoff_id) for handoff_id in sorted(self._held.get((team, process), ()))]

    def unfinished_of(self, team: str, correlation_id: str) -> list[Key]:
        """Return what has no outcome yet of a chain, in the order of ids."""
        found = sorted(self._chains.get((team, correlation_id), ()))
        first = self._stubs.get((team, correlation_id))
        if first is not None and not first.ended and first.correlation_id == correlation_id:
            insort(found, correlation_id)
        return [(team, handoff_id) for handoff_id in found]

    def due(self, now: int, limit: int) -> list[Key]:
        """Return what came due at or before `now`, oldest first."""
        found: dict[Key, int] = {}
        while self.due_times and len(found) < limit and self.due_times[0][0] <= now:
            at, team, handoff_id = heapq.heappop(self.due_times)
            if self._counts(at, team, handoff_id):
                found[team, handoff_id] = at
        for (team, handoff_id), at in found.items():  # it is due until a commit says otherwise
            heapq.heappush(self.due_times, (at, team, handoff_id))
        return list(found)

    def next_due(self) -> int | None:
        """Return the earliest due time of all."""
        while self.due_times and not self._counts(*self.due_times[0]):
            heapq.heappop(self.due_times)
        return self.due_times[0][0] if self.due_times else None

    def unfinished(self) -> Iterator[tuple[str, Stub]]:
        """Return the team and the stub of everything that has no outcome yet."""
        return ((team, stub) for (team, _), stub in self._stubs.items() if not stub.ended)

    # --- indexes ---

    def _counts(self, at: int, team: str, handoff_id: str) -> bool:
        stub = self._stubs.get((team, handoff_id))
        return stub is not None and stub.due_at == at

    def _move(  # noqa: PLR0917  # for every change: names would cost as much again
        self,
        key: Key,
        stub: Stub,
        recipient: str,
        process: str | None,
        due_at: int | None,
        rank: int | None,
        ended: bool,  # noqa: FBT001  # the same
    ) -> None:
        """Move a handoff to where it is found from now on: only what changed is touched."""
        team, handoff_id = key
        moved = stub.recipient != recipient
        if moved or stub.ended != ended:
            chain = None if stub.correlation_id == handoff_id else (team, stub.correlation_id)
            if not stub.ended:
                found = self._recipients[team, stub.recipient]
                del found[handoff_id]
                if not found:
                    del self._recipients[team, stub.recipient]
                if chain is not None:
                    found = self._chains[chain]
                    del found[handoff_id]
                    if not found:
                        del self._chains[chain]
            stub.recipient, stub.ended = recipient, ended
            if not ended:
                self._recipients.setdefault((team, recipient), {})[handoff_id] = None
                if chain is not None:
                    self._chains.setdefault(chain, {})[handoff_id] = None
        if stub.process != process:
            if stub.process is not None:
                found = self._held[team, stub.process]
                del found[handoff_id]
                if not found:
                    del self._held[team, stub.process]
            if process is not None:
                self._held.setdefault((team, process), {})[handoff_id] = None
            stub.process = process
        if moved or stub.rank != rank:
            stub.rank = rank
            if rank is not None:
                queue = self._queues.get((team, recipient))
                if queue is None:
                    queue = self._queues[team, recipient] = _Queue()
                queue.add(rank, handoff_id)
        if stub.due_at != due_at:
            stub.due_at = due_at
            if due_at is not None:
                heapq.heappush(self.due_times, (due_at, team, handoff_id))
                if len(self.due_times) > 2 * len(self._stubs) + _DEAD_MAX:
                    self._drop_dead_times()

    def _forget_stub(self, key: Key, stub: Stub | None) -> None:
        """Have a handoff found nowhere any more."""
        if stub is not None:
            if stub.process is not None or not stub.ended:
                self._move(key, stub, stub.recipient, None, None, None, ended=True)
            del self._stubs[key]

    def _drop_dead_times(self) -> None:
        times = [(s.due_at, *k) for k, s in self._stubs.items() if s.due_at is not None]
        heapq.heapify(times)
        self.due_times = times


class _Queue:
    """What an agent may take, in order. What left it is passed over until that is much."""

    __slots__ = ("_order", "_start")

    def __init__(self) -> None:
        self._order: list[tuple[int, str]] = []
        self._start = 0

    def add(self, rank: int, handoff_id: str) -> None:
        """Put a handoff in its place."""
        order, item = self._order, (rank, handoff_id)
        if not order or order[-1] < item:
            order.append(item)
            return
        at = bisect_left(order, item)
        if at < len(order) and order[at] == item:
            self._start = min(self._start, at)  # it was here before and has come back
            return
        insort(order, item)
        self._start = min(self._start, at)

    def first(self, limit: int, counts: Callable[[int, str], bool]) -> list[str]:
        """Return the first handoffs that still count."""
        found: list[str] = []
        dead = 0
        for at in range(self._start, len(self._order)):
            rank, handoff_id = self._order[at]
            if counts(rank, handoff_id):
                found.append(handoff_id)
                if len(found) >= limit:
                    break
            elif found:
                dead += 1
            else:
                self._start = at + 1
        if dead > _DEAD_MAX or self._start > _DEAD_MAX:
            self._order = [item for item in self._order[self._start :] if counts(*item)]
            self._start = 0
        return found


def stub_of(row: Row) -> Stub:
    """Return what a handoff is found by."""
    handoff = row.handoff
    return Stub(
        handoff.recipient,
        handoff.origin,
        handoff.correlation_id,
        handoff.process if row.held else None,
        row.due_at,
        row.rank,
        handoff.outcome is not None,
    )


def _first(names: Mapping[K, object], most: int) -> list[K]:
    return list(islice(names, max(most, 0)))


def _front(team: str, mail: deque[tuple[str, Mail]], most: int) -> list[tuple[str, str, Mail]]:
    return [(team, reader, item) for reader, item in islice(mail, most)]
