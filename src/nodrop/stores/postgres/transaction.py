"""A unit of work on one connection: decided on what is known, checked and written in one call.

Most units of work need only handoffs that this node knows, and commands and keys that nobody used
before. They read nothing: that it is so is checked by the call that writes them (`append` in the
schema), under its locks, and a unit of work that was wrong about it is refused whole. Whoever asks
for more, or was refused, reads under locks from its first statement to its commit.

Locks are taken in one order by everybody, so that nobody waits in a circle: names and rows of
`load`, each sorted; then only rows that nobody has (`skip locked`); then the ends of logs, sorted,
as late as possible, because every writer of a team waits there for the others.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from nodrop.core.model import Handoff
from nodrop.store import Changes, Key, KeyUse, Loaded, Place, Process, Wanted
from nodrop.stores.postgres.changed import tell_changes
from nodrop.stores.postgres.driver import Connection
from nodrop.stores.postgres.known import Known
from nodrop.stores.postgres.records import read_handoff, transposed
from nodrop.stores.postgres.writing import (
    Basis,
    Writer,
    gathered,
    is_known,
    names_of,
    write,
    write_known,
)
from nodrop.wire.log import Draft

_NOTHING: Final = Wanted()
_NO_CHANGES: Final = Changes()
_EVER: Final = 2**62


class PostgresTransaction:
    """What is appended is gathered, and written by `finish`."""

    def __init__(
        self, connection: Connection, known: Known, writer: Writer, *, careful: bool = False
    ) -> None:
        """Work on `connection`.

        Args:
            connection: for this unit of work alone, outside of any transaction.
            known: handoffs as this node knows them.
            writer: who writes, and what it has heard of.
            careful: read everything anew, under locks.
        """
        self.begun = False
        """Whether the connection is inside of a transaction."""
        self.changes: list[Changes] = []
        self.seqs: list[int] = []
        """Of all entries, once it is finished."""
        self._connection = connection
        self._known = known
        self._writer = writer
        self._careful = careful
        self._basis = Basis()
        self._rows: dict[Key, Handoff] = {}
        """Handoffs that have a row, as it was."""
        self._processes: dict[Key, Process] = {}
        """As they were loaded: one that was heard of since is not dropped."""
        self._promised: list[tuple[list[int], int]] = []

    # --- reading ---

    async def load(self, wanted: Wanted) -> Loaded:
        """Return what there is of `wanted`, held against other writers."""
        if wanted == _NOTHING:
            return _nothing()
        if not (self._careful or self.begun or wanted.entries or wanted.processes):
            handoffs = self._known.all_of(wanted.handoffs)
            if handoffs is not None:
                self._rows |= handoffs
                self._basis.rest_on(handoffs.values(), wanted.commands, wanted.keys)
                return _nothing(handoffs)
        await self._begin()
        rows = await self._connection.fetch(
            "select * from load($1,$2,$3,$4,$5,$6,$7,$8,$9,$10,$11,$12,$13)",
            names_of(wanted.commands, wanted.keys),
            *transposed(list(wanted.handoffs), 2),
            *transposed(list(wanted.processes), 2),
            *transposed(list(wanted.keys), 3),
            *transposed(list(wanted.commands), 3),
            *transposed(list(wanted.entries), 2),
        )
        loaded = _loaded(wanted, rows)
        self._learn(loaded.handoffs.values())
        for held in loaded.held.values():
            self._learn(held)
        self._processes |= loaded.processes
        return loaded

    async def claimable(self, team: str, agent: str, *, limit: int) -> Sequence[Handoff]:
        """Return what `agent` may take, in the order of its queue.

        What another node is about to hand out is left out.
        """
        return await self._locked(
            """
            select json from handoff
            where team = $1 and recipient = $2 and ended_at is null and rank is not null
            order by rank, id limit $3 for no key update skip locked
            """,
            team,
            agent,
            limit,
        )

    async def held(self, team: str, process: str) -> Sequence[Handoff]:
        """Return what `process` holds, held in turn."""
        loaded = await self.load(Wanted(processes=frozenset({(team, process)})))
        return loaded.held[team, process]

    async def due(self, *, now: int, limit: int) -> Sequence[Handoff]:
        """Return what came due at or before `now`, oldest first.

        What another node looks after is left out: a clock runs out once.
        """
        return await self._locked(
            "select json from handoff where due_at <= $1 order by due_at, team, id"
            " limit $2 for no key update skip locked",
            now,
            limit,
        )

    async def unfinished(self, team: str, correlation_id: str) -> Sequence[Handoff]:
        """Return what has no outcome yet of a chain, in the order of ids, held in turn."""
        return await self._locked(
            "select json from handoff where team = $1 and correlation_id = $2"
            " and ended_at is null order by id for no key update",
            team,
            correlation_id,
        )

    async def _locked(self, sql: str, *bound: Any) -> list[Handoff]:
        await self._begin()
        found = [read_handoff(json) for (json,) in await self._connection.fetch(sql, *bound)]
        self._learn(found)
        return found

    def _learn(self, handoffs: Iterable[Handoff]) -> None:
        found = {(handoff.team, handoff.id): handoff for handoff in handoffs}
        self._known.keep(found.values())
        self._rows |= found

    # --- writing ---

    async def append(self, changes: Changes) -> Sequence[int]:
        """Gather `changes` for the commit; return the `seq` of each entry, told by then."""
        if changes == _NO_CHANGES:
            return []
        self.changes.append(changes)
        promised: list[int] = []
        self._promised.append((promised, len(changes.entries)))
        return promised

    async def finish(self) -> None:
        """Check what was believed, write what was gathered, and commit: one call if nothing was read.

        Raises:
            asyncpg.SerializationError: what it was decided on is not so. Nothing is kept.
        """
        changes = gathered(self.changes)
        if changes.agents or changes.tokens or changes.records or changes.records_gone:
            await self._begin()
            await write_known(self._connection, changes)
        if changes != _NO_CHANGES or not self._basis.empty:
            gone = [(*key, self._seen_at(key)) for key in changes.processes_gone]
            self.seqs = await write(
                self._connection, changes, self._basis, gone, rows=self._rows, writer=self._writer
            )
        if (told := self.told) and self._writer.heard is not None:
            await tell_changes(self._connection, changes, told=told, heard=self._writer.heard)
        if self.begun:
            await self._connection.execute("commit")

    def tell(self) -> None:
        """Fill in what `append` has returned: it is committed."""
        start = 0
        for promised, count in self._promised:
            promised.extend(self.seqs[start : start + count])
            start += count

    def found(self, team: str, last: int) -> None:
        """Know the places of a team's entries after all, by that of its last."""
        mine = [n for n, draft in enumerate(self.drafts) if draft.team == team]
        self.seqs = self.seqs or [0] * len(self.drafts)
        for back, n in enumerate(reversed(mine)):
            self.seqs[n] = last - back

    @property
    def node(self) -> str:
        """Who writes."""
        return self._writer.node

    @property
    def believed(self) -> Sequence[Key]:
        """The handoffs that it took for known."""
        return list(self._basis.versions)

    @property
    def drafts(self) -> Sequence[Draft]:
        """The entries, in order."""
        return [draft for changes in self.changes for draft in changes.entries]

    @property
    def written(self) -> dict[str, tuple[int, int]]:
        """The first and the last entry of each team."""
        places: dict[str, tuple[int, int]] = {}
        for draft, seq in zip(self.drafts, self.seqs, strict=True):
            first, _ = places.get(draft.team, (seq, seq))
            places[draft.team] = (first, seq)
        return places

    @property
    def told(self) -> dict[str, int]:
        """The last entry of each team that came with a change of what is known."""
        if not any(is_known(changes) for changes in self.changes):
            return {}
        return {team: last for team, (_, last) in self.written.items()}

    @property
    def handoffs(self) -> list[Handoff]:
        """Those that it changed, as it leaves them."""
        return [row.handoff for changes in self.changes for row in changes.rows]

    def _seen_at(self, key: Key) -> int:
        known = self._processes.get(key)
        return _EVER if known is None else known.seen_at

    async def _begin(self) -> None:
        if not self.begun:
            self.begun = True
            await self._connection.execute("begin")


def _nothing(handoffs: Mapping[Key, Handoff] | None = None) -> Loaded:
    return Loaded(handoffs=handoffs or {}, keys={}, commands={}, entries={}, held={}, processes={})


def _loaded(wanted: Wanted, rows: Sequence[Sequence[Any]]) -> Loaded:
    handoffs: dict[Key, Handoff] = {}
    held: dict[Key, list[Handoff]] = {key: [] for key in wanted.processes}
    processes: dict[Key, Process] = {}
    keys: dict[tuple[str, str, str], KeyUse] = {}
    commands: dict[tuple[str, str, str], list[Place]] = {}
    entries: dict[tuple[str, int], Place] = {}
    for what, team, a, b, n, handoff_id, version, said, json in rows:
        match what:
            case b"h":
                handoffs[team, a] = read_handoff(json)
            case b"p":
                held[team, a].append(read_handoff(json))
            case b"l":
                processes[team, a] = Process(
                    team=team, id=a, agent=b, heartbeat_ms=n, seen_at=version
                )
            case b"k":
                keys[team, a, b] = KeyUse(
                    team=team, sender=a, key=b, handoff_id=handoff_id, digest=said
                )
            case b"c":
                place = Place(
                    seq=n, handoff_id=handoff_id, version=version, type=said, request=json
                )
                commands.setdefault((team, a, b), []).append(place)
            case _:
                place = Place(seq=n, handoff_id=handoff_id, version=version, type=said)
                entries[team, n] = place
    return Loaded(
        handoffs=handoffs,
        keys=keys,
        commands=commands,
        entries=entries,
        held=held,
        processes=processes,
    )
