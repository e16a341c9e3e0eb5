"""A unit of work on one connection: begun by what it first asks for, ended by a commit.

Locks are taken in one order by everybody, so that nobody waits in a circle: names and rows of
`load`, each sorted; then only rows that nobody has (`skip locked`); then the ends of logs, sorted,
as late as possible, because every writer of a team waits there for the others.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from nodrop.core.model import Handoff
from nodrop.store import Changes, ConflictError, Key, KeyUse, Loaded, Place, Process, Wanted
from nodrop.stores.postgres.driver import Connection
from nodrop.stores.postgres.records import read_handoff, transposed
from nodrop.stores.postgres.writing import End, is_known, lock_ends, sealed, write

_NOTHING: Final = Wanted()


class PostgresTransaction:
    """What is loaded is locked; what is appended is written at once, and kept by the commit."""

    def __init__(
        self,
        connection: Connection,
        *,
        node: str = "",
        heard: Mapping[str, int] | None = None,
        channel: str | None = None,
    ) -> None:
        """Work on `connection`.

        Args:
            connection: for this unit of work alone, outside of any transaction.
            node: who writes.
            heard: up to which entry of each team what is known to decide by has been heard of;
                None: nobody else changes it.
            channel: where to tell the others; None: there are none.
        """
        self._connection = connection
        self._node = node
        self._heard = heard
        self._channel = channel
        self._ends: dict[str, End] = {}
        self._processes: dict[Key, Process] = {}
        """As they were loaded: one that was heard of since is not dropped."""
        self.written: dict[str, tuple[int, int]] = {}
        """The first and the last entry of each team."""
        self.told: dict[str, int] = {}
        """The last entry of each team that came with a change of what is known."""
        self.begun = False
        self.last: tuple[str, int, str] | None = None
        """(team, seq, hash) of the last entry: if that is there, so is everything."""

    async def load(self, wanted: Wanted) -> Loaded:
        """Return what there is of `wanted`, held against other writers."""
        if wanted == _NOTHING:
            return Loaded(handoffs={}, keys={}, commands={}, entries={}, held={}, processes={})
        await self._begin()
        # What is not there yet is held by its name: of two nodes that are sent one command, or one
        # key, the second decides when the first is through.
        names = [":".join(("command", *c)) for c in wanted.commands]
        names += [":".join(("key", *k)) for k in wanted.keys]
        rows = await self._connection.fetch(
            "select * from load($1,$2,$3,$4,$5,$6,$7,$8,$9,$10,$11,$12,$13)",
            names,
            *transposed(list(wanted.handoffs), 2),
            *transposed(list(wanted.processes), 2),
            *transposed(list(wanted.keys), 3),
            *transposed(list(wanted.commands), 3),
            *transposed(list(wanted.entries), 2),
        )
        loaded = _loaded(wanted, rows)
        self._processes |= loaded.processes
        return loaded

    async def claimable(self, team: str, agent: str, *, limit: int) -> Sequence[Handoff]:
        """Return what `agent` may take, in the order of its queue.

        What another node is about to hand out is left out.
        """
        await self._begin()
        rows = await self._connection.fetch(
            """
            select json from handoff
            where team = $1 and recipient = $2 and ended_at is null and rank is not null
            order by rank, id limit $3 for no key update skip locked
            """,
            team,
            agent,
            limit,
        )
        return [read_handoff(json) for (json,) in rows]

    async def held(self, team: str, process: str) -> Sequence[Handoff]:
        """Return what `process` holds, held in turn."""
        loaded = await self.load(Wanted(processes=frozenset({(team, process)})))
        return loaded.held[team, process]

    async def due(self, *, now: int, limit: int) -> Sequence[Handoff]:
        """Return what came due at or before `now`, oldest first.

        What another node looks after is left out: a clock runs out once.
        """
        await self._begin()
        rows = await self._connection.fetch(
            "select json from handoff where due_at <= $1 order by due_at, team, id"
            " limit $2 for no key update skip locked",
            now,
            limit,
        )
        return [read_handoff(json) for (json,) in rows]

    async def unfinished(self, team: str, correlation_id: str) -> Sequence[Handoff]:
        """Return what has no outcome yet of a chain, in the order of ids, held in turn."""
        await self._begin()
        rows = await self._connection.fetch(
            "select json from handoff where team = $1 and correlation_id = $2"
            " and ended_at is null order by id for no key update",
            team,
            correlation_id,
        )
        return [read_handoff(json) for (json,) in rows]

    async def append(self, changes: Changes) -> Sequence[int]:
        """Write everything; return the `seq` of each entry, in the order given.

        Raises:
            ConflictError: what is known to decide by has changed since.
        """
        if changes == _NO_CHANGES:
            return []
        await self._begin()
        teams = {draft.team for draft in changes.entries}
        if teams - self._ends.keys():
            self._ends |= await lock_ends(self._connection, teams - self._ends.keys())
        ends = {team: self._ends[team] for team in teams}
        if self._heard is not None:
            for team, end in ends.items():
                if end.known_seq > self._heard.get(team, 0):
                    raise ConflictError(f"what is known of {team} has changed")
        made = sealed(changes.entries, ends, node=self._node)
        gone = [(*key, self._seen_at(key)) for key in changes.processes_gone]
        await write(self._connection, changes, made, gone, node=self._node, channel=self._channel)
        self._ends |= made.ends
        for team, end in made.ends.items():
            first, _ = self.written.get(team, (ends[team].head.seq + 1, 0))
            self.written[team] = (first, end.head.seq)
            if is_known(changes):
                self.told[team] = end.head.seq
        if changes.entries:
            team = changes.entries[-1].team
            head = made.ends[team].head
            self.last = (team, head.seq, head.hash)
        return made.seqs

    def _seen_at(self, key: Key) -> int:
        known = self._processes.get(key)
        return _EVER if known is None else known.seen_at

    async def _begin(self) -> None:
        if not self.begun:
            self.begun = True
            await self._connection.execute("begin")


_NO_CHANGES: Final = Changes()
_EVER: Final = 2**62


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
                place = Place(seq=n, handoff_id=handoff_id, version=version, type=said)
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
