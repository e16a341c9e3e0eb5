"""Serving teams from memory over tables: the half of a store that does not depend on its database.

A store answers from `State` what is there, and asks its `Tables` for the rest. Rows of handoffs and
inboxes are behind the log, so what a table has and what memory has are merged.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Final, Generic, Protocol, TypeVar

from msgspec.structs import replace

from nodrop.log.port import (
    Body,
    Changes,
    Key,
    KeyUse,
    Loaded,
    LogPage,
    Mail,
    Page,
    Place,
    Process,
    Wanted,
    is_listed,
    row_of,
)
from nodrop.log.state import Kept, State
from nodrop.log.work import Work, about_chain, about_handoff
from nodrop.model.handoff import Handoff
from nodrop.protocol.entries import Entry

SEQ_MAX: Final = 2**63 - 1

Name = tuple[str, str, str]
"""(team, actor, command id) or (team, sender, key)."""


class Tables(Protocol):
    """The queries that a journaled store makes of its database."""

    async def kept(self, keys: Sequence[Key]) -> Sequence[Kept]:
        """Return the handoffs there are of `keys`, as their rows have them."""
        ...

    async def keys(self, wanted: Collection[Name]) -> Sequence[KeyUse]:
        """Return what idempotency keys were used for."""
        ...

    async def commands(self, wanted: Collection[Name]) -> Mapping[Name, Sequence[Place]]:
        """Return what commands wrote, in log order."""
        ...

    async def entry_places(
        self, wanted: Collection[tuple[str, int]]
    ) -> Mapping[tuple[str, int], Place]:
        """Return the entries there are of (team, seq)."""
        ...

    async def processes_of(self, keys: Collection[Key]) -> Sequence[Process]:
        """Return the known processes of `keys`."""
        ...

    async def resolve(self, team: str, reference: str) -> Sequence[str]:
        """Return at most two ids: of `sender/key`, or of those an id prefix fits."""
        ...

    async def list_handoffs(self, page: Page) -> Sequence[Handoff]:
        """Return a page of handoffs, newest first."""
        ...

    async def inbox(
        self, team: str, agent: str, after: int, before: int, limit: int
    ) -> Sequence[Mail]:
        """Return the items for `agent` between `after` and `before`, oldest first."""
        ...

    async def log(
        self, page: LogPage, fits: Callable[[Entry], bool]
    ) -> tuple[list[Entry], int | None]:
        """Return a page of the log, and up to where it looked if that was not everything."""
        ...

    async def entries_at(self, team: str, seqs: Sequence[int]) -> list[Entry]:
        """Return the entries there are at `seqs`."""
        ...

    async def bodies_at(self, team: str, seqs: Sequence[int]) -> Mapping[int, Body]:
        """Return the bodies there are of the entries at `seqs`."""
        ...

    async def sizes_at(self, team: str, seqs: Sequence[int]) -> Mapping[int, int]:
        """Return how many bytes the large bodies of the entries at `seqs` have."""
        ...

    async def kept_bodies(
        self, team: str, wanted: Sequence[tuple[str, int]]
    ) -> Mapping[tuple[str, int], Body]:
        """Return the bodies of (handoff id, version) whose entries were pruned."""
        ...

    async def trail(self, team: str, handoff_id: str) -> list[int]:
        """Return the places of a handoff's events, as the tables have them."""
        ...

    async def mentions(self, team: str, about: Sequence[str]) -> list[int]:
        """Return the places of entries about these, which are no events of a handoff."""
        ...

    async def chain(self, team: str, correlation_id: str) -> list[str]:
        """Return the handoffs of a chain."""
        ...


class JournaledStore(ABC):
    """The reading half of a store whose log is its database."""

    def __init__(self, state: State, tables: Tables) -> None:
        self._state = state
        self._tables = tables

    @abstractmethod
    async def _settle(self, teams: Iterable[str]) -> None:
        """Have in memory everything that is committed to these teams."""

    @abstractmethod
    async def _flush(self, team: str) -> None:
        """Have the rows of a team written, so that few are left to be merged from memory."""

    async def handoffs(self, keys: Sequence[Key]) -> Sequence[Handoff]:
        """Return the handoffs there are, in the order of `keys`."""
        await self._settle({team for team, _ in keys})
        return await self.find(keys)

    async def find(self, keys: Collection[Key]) -> list[Handoff]:
        """Return the handoffs there are of `keys`, as this store knows them."""
        return list((await self._found(keys)).values())

    async def _found(self, keys: Collection[Key]) -> dict[Key, Handoff]:
        """Return the handoffs there are of `keys`, in that order."""
        found: dict[Key, Handoff] = {}
        missing: list[Key] = []
        for key in keys:
            kept = self._state.get(key)
            if kept is None:
                missing.append(key)
            else:
                found[key] = kept.handoff
        if missing:
            for row in await self._tables.kept(missing):
                kept = self._state.admit(row)
                found[kept.handoff.team, kept.handoff.id] = kept.handoff
            return {key: found[key] for key in keys if key in found}
        return found

    def cached(self, key: Key) -> Handoff | None:
        """Return a handoff as it is in memory, if it is; None: ask `handoffs`."""
        kept = self._state.get(key)
        return None if kept is None else kept.handoff

    async def resolve(self, team: str, reference: str) -> Sequence[str]:
        """Return at most two ids: of the handoff `sender/key`, or of those an id prefix fits."""
        await self._settle([team])
        found = await self._tables.resolve(team, reference)
        behind = [name for name in self._state.unwritten_of(team) if name.startswith(reference)]
        return sorted({*found, *behind})[:2]

    async def list_handoffs(self, page: Page) -> Sequence[Handoff]:
        """Return a page of handoffs, newest first."""
        await self._settle([page.team])
        await self._flush(page.team)
        behind = self._state.unwritten_of(page.team)
        more = replace(page, limit=page.limit + len(behind))
        listed = await self._tables.list_handoffs(more)
        behind |= self._state.unwritten_of(page.team)  # what was committed meanwhile
        found = [handoff for handoff in listed if handoff.id not in behind]
        found += [h for h in behind.values() if is_listed(row_of(h), page)]
        return sorted(found, key=lambda handoff: handoff.id, reverse=True)[: page.limit]

    async def bodies(
        self, team: str, wanted: Sequence[tuple[str, int]]
    ) -> Mapping[tuple[str, int], bytes]:
        """Return the bodies there are of (handoff id, version)."""
        places = await self._places(team, wanted)
        at = await self.entry_bodies(team, list(places.values()))
        found = {key: at[seq].body for key, seq in places.items() if seq in at}
        missing = [key for key in wanted if key not in found]
        known = self._state.teams.get(team)
        if missing and known is not None and known.horizon:
            kept = await self._tables.kept_bodies(team, missing)
            found |= {key: body.body for key, body in kept.items()}
        return found

    async def body_sizes(
        self, team: str, wanted: Sequence[tuple[str, int]]
    ) -> Mapping[tuple[str, int], int]:
        """Return how many bytes the large bodies of (handoff id, version) have, unless it was pruned."""
        places = await self._places(team, wanted)
        if not places:
            return {}
        sizes = await self._tables.sizes_at(team, list(places.values()))
        return {key: sizes[seq] for key, seq in places.items() if seq in sizes}

    async def entry_bodies(self, team: str, seqs: Sequence[int]) -> Mapping[int, Body]:
        """Return the bodies there are of these entries."""
        return await self._tables.bodies_at(team, seqs) if seqs else {}

    async def places(
        self, team: str, wanted: Sequence[tuple[str, int]]
    ) -> Mapping[tuple[str, int], int]:
        """Return the `seq` of (handoff id, version), where the log still has it."""
        return await self._places(team, wanted)

    async def _places(
        self, team: str, wanted: Sequence[tuple[str, int]]
    ) -> dict[tuple[str, int], int]:
        await self._settle([team])
        known = self._state.teams.get(team)
        if known is None:
            return {}
        found: dict[tuple[str, int], int] = {}
        await self.find([(team, handoff_id) for handoff_id, _ in wanted])
        # Taken now: they may be dropped while an older part of a trail is read.
        all_kept = [self._state.get((team, handoff_id)) for handoff_id, _ in wanted]
        for (handoff_id, version), kept in zip(wanted, all_kept, strict=True):
            if kept is None or not 1 <= version <= kept.handoff.version:
                continue
            seq = kept.place(version)
            if seq is None:
                seq = (await self._tables.trail(team, handoff_id))[version - 1]
            if seq > known.horizon:
                found[handoff_id, version] = seq
        return found

    async def log(self, page: LogPage) -> Sequence[Entry]:
        """Return a page of the log, oldest first."""
        fits = partial(page_fits, page)
        if page.handoff_id is not None or page.correlation_id is not None:
            entries = await self._log_about(page)
            return [entry for entry in entries if fits(entry)][: page.limit]
        entries, looked_to = await self._tables.log(page, fits)
        # One visit looks through so much and no more, so that writers get their turn between.
        while looked_to is not None and len(entries) < page.limit:
            rest = replace(page, after=looked_to, limit=page.limit - len(entries))
            more, looked_to = await self._tables.log(rest, fits)
            entries += more
        return entries

    async def _log_about(self, page: LogPage) -> list[Entry]:
        """Return the entries about a handoff, or about a chain and everything in it."""
        team = page.team
        await self._settle([team])
        if page.handoff_id is not None:
            chain, about = [page.handoff_id], [about_handoff(page.handoff_id)]
        else:
            correlation_id = page.correlation_id or ""
            chain = await self._tables.chain(team, correlation_id)
            behind = self._state.unwritten_of(team).values()
            chain += [h.id for h in behind if h.correlation_id == correlation_id]
            chain = list(dict.fromkeys(chain))
            about = [*map(about_handoff, chain), about_chain(correlation_id)]
        seqs = await self._tables.mentions(team, about)
        for handoff_id in chain:
            seqs += await self._trail(team, handoff_id)
        wanted = sorted(seq for seq in seqs if seq > page.after)
        some_more = page.limit if page.actor is None and page.type is None else len(wanted)
        return await self._tables.entries_at(team, wanted[:some_more])

    async def _trail(self, team: str, handoff_id: str) -> list[int]:
        """Return the places of everything that happened to a handoff."""
        await self.find([(team, handoff_id)])
        kept = self._state.get((team, handoff_id))
        if kept is None:
            return []
        if kept.trail_from == 1:
            return list(kept.trail)
        known = {seq for _, seqs in kept.overflow for seq in seqs} | set(kept.trail)
        older = await self._tables.trail(team, handoff_id)
        return sorted(known | set(older))

    async def inbox(self, team: str, agent: str, *, after: int, limit: int) -> Sequence[Mail]:
        """Return what concerns `agent` after `after`, oldest first, each entry's items together."""
        await self._settle([team])
        known = self._state.teams.get(team)
        waiting = [item for reader, item in known.mail if reader == agent] if known else []
        before = waiting[0].seq if waiting else SEQ_MAX
        items = list(await self._tables.inbox(team, agent, after, before, limit))
        if len(items) <= limit:
            items += sorted((m for m in waiting if m.seq > after), key=lambda m: (m.seq, m.kind))
        # A reader goes on after the last `seq` it saw: a page must not end inside an entry.
        return [
            item for n, item in enumerate(items) if n < limit or item.seq == items[limit - 1].seq
        ]

    async def queue(self, team: str, agent: str) -> Mapping[str, int | None]:
        """Return the ids of the unfinished handoffs that `agent` is the recipient of, with their ranks."""
        await self._settle([team])
        return self._state.queue(team, agent)

    async def unfinished(self) -> Sequence[tuple[str, str, str, int]]:
        """Return how many handoffs have no outcome yet, by (team, origin, recipient)."""
        await self._settle(self._state.teams)
        unfinished = self._state.unfinished()
        counts = Counter((team, stub.origin, stub.recipient) for team, stub in unfinished)
        return [(*key, count) for key, count in counts.items()]

    async def loaded(self, wanted: Wanted, *, names: bool = True) -> Loaded:
        """Return what there is of `wanted`; without the keys and commands unless `names`."""
        state, tables = self._state, self._tables
        handoffs: Mapping[Key, Handoff] = {}
        keys: Mapping[Name, KeyUse] = {}
        commands: Mapping[Name, Sequence[Place]] = {}
        entries: Mapping[tuple[str, int], Place] = {}
        held: Mapping[Key, Sequence[Handoff]] = {}
        processes: Mapping[Key, Process] = {}
        if wanted.processes:
            held = {key: await self.find(state.held(*key)) for key in wanted.processes}
            told_of = await tables.processes_of(wanted.processes)
            processes = {(process.team, process.id): process for process in told_of}
        if wanted.handoffs:
            known = {key: kept.handoff for key in wanted.handoffs if (kept := state.get(key))}
            all_known = len(known) == len(wanted.handoffs)
            handoffs = known if all_known else await self._found(wanted.handoffs)
        if names and wanted.keys:
            used = await tables.keys(wanted.keys)
            keys = {(use.team, use.sender, use.key): use for use in used}
        if names and wanted.commands:
            commands = await tables.commands(wanted.commands)
        if wanted.entries:
            entries = await tables.entry_places(wanted.entries)
        return Loaded(
            handoffs=handoffs,
            keys=keys,
            commands=commands,
            entries=entries,
            held=held,
            processes=processes,
        )


S = TypeVar("S", bound=JournaledStore)


class JournaledTransaction(Generic[S]):
    """A unit of work: reads what is committed, gathers what is appended."""

    def __init__(self, store: S, state: State) -> None:
        self.work = Work(state)
        self._store = store
        self._state = state

    async def _rest_on(self, teams: Iterable[str]) -> None:
        """Take note that the unit of work rests on what is known of these teams."""

    async def load(self, wanted: Wanted) -> Loaded:
        """Return what there is of `wanted`. Having the turn is the lock."""
        assert not self.work.appended, "append comes last in a unit of work"
        return await self._store.loaded(wanted)

    async def claimable(self, team: str, agent: str, *, limit: int) -> Sequence[Handoff]:
        """Return what `agent` may take, in the order of its queue."""
        assert not self.work.appended, "append comes last in a unit of work"
        await self._rest_on([team])
        return await self._store.find(self._state.claimable(team, agent, limit))

    async def held(self, team: str, process: str) -> Sequence[Handoff]:
        """Return what `process` holds."""
        assert not self.work.appended, "append comes last in a unit of work"
        await self._rest_on([team])
        return await self._store.find(self._state.held(team, process))

    async def due(self, *, now: int, limit: int) -> Sequence[Handoff]:
        """Return what came due at or before `now`, oldest first."""
        assert not self.work.appended, "append comes last in a unit of work"
        keys = self._state.due(now, limit)
        await self._rest_on({team for team, _ in keys})
        return await self._store.find(keys)

    async def unfinished(self, team: str, correlation_id: str) -> Sequence[Handoff]:
        """Return what has no outcome yet of a chain, in the order of ids."""
        assert not self.work.appended, "append comes last in a unit of work"
        await self._rest_on([team])
        return await self._store.find(self._state.unfinished_of(team, correlation_id))

    async def append(self, changes: Changes) -> Sequence[int]:
        """Gather `changes` for the commit; return the `seq` that each entry will have."""
        unknown = self.work.begin(changes.rows)
        if unknown:
            begun = {(d.team, d.handoff_id) for d in changes.entries if d.version == 1}
            keys = [(handoff.team, handoff.id) for handoff in unknown]
            for before in await self._store.find([key for key in keys if key not in begun]):
                self.work.go_on_from(before)
        return self.work.add(changes)


def page_fits(page: LogPage, entry: Entry) -> bool:
    """Whether a page of the log wants an entry."""
    wanted = page.type
    if wanted is not None:
        fits = entry.type.startswith(wanted[:-1]) if wanted.endswith("*") else entry.type == wanted
        if not fits:
            return False
    return (
        page.handoff_id in (None, entry.handoff_id)
        and page.correlation_id in (None, entry.correlation_id)
        and page.actor in (None, entry.actor)
    )
