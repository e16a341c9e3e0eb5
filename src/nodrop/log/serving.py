"""Serving teams from memory over tables: the half of a store that does not depend on its database.

A store answers from `State` what is there, and asks its `Tables` for the rest. Rows of handoffs and
inboxes are behind the log, so what a table has and what memory has are merged.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Final

from msgspec.structs import replace

from nodrop.log.port import Body, Key, LogPage, Mail, Page, is_listed, row_of
from nodrop.log.state import State
from nodrop.log.tables import Tables
from nodrop.log.work import about_chain, about_handoff
from nodrop.model.handoff import Handoff
from nodrop.protocol.entries import Entry

SEQ_MAX: Final = 2**63 - 1


class JournaledStore(ABC):
    """The reading half of a store whose log is its database."""

    def __init__(self, state: State, tables: Tables) -> None:
        self._state = state
        self.tables = tables

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
        return list((await self.found(keys)).values())

    async def found(self, keys: Collection[Key]) -> dict[Key, Handoff]:
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
            for row in await self.tables.kept(missing):
                kept = self._state.admit(row)
                found[kept.handoff.team, kept.handoff.id] = kept.handoff
            return {key: found[key] for key in keys if key in found}
        return found

    def cached(self, key: Key) -> Handoff | None:
        """Return a handoff as it is in memory, if it is; None: ask `handoffs`."""
        kept = self._state.unwritten.get(key) or self._state.get(key)
        return None if kept is None else kept.handoff

    async def resolve(self, team: str, reference: str) -> Sequence[str]:
        """Return at most two ids: of the handoff `sender/key`, or of those an id prefix fits."""
        await self._settle([team])
        found = await self.tables.resolve(team, reference)
        behind = [name for name in self._state.unwritten_of(team) if name.startswith(reference)]
        return sorted({*found, *behind})[:2]

    async def list_handoffs(self, page: Page) -> Sequence[Handoff]:
        """Return a page of handoffs, newest first."""
        await self._settle([page.team])
        await self._flush(page.team)
        behind = self._state.unwritten_of(page.team)
        more = replace(page, limit=page.limit + len(behind))
        listed = await self.tables.list_handoffs(more)
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
            kept = await self.tables.kept_bodies(team, missing)
            found |= {key: body.body for key, body in kept.items()}
        return found

    async def body_sizes(
        self, team: str, wanted: Sequence[tuple[str, int]]
    ) -> Mapping[tuple[str, int], int]:
        """Return how many bytes the large bodies of (handoff id, version) have, unless it was pruned."""
        places = await self._places(team, wanted)
        if not places:
            return {}
        sizes = await self.tables.sizes_at(team, list(places.values()))
        return {key: sizes[seq] for key, seq in places.items() if seq in sizes}

    async def entry_bodies(self, team: str, seqs: Sequence[int]) -> Mapping[int, Body]:
        """Return the bodies there are of these entries."""
        return await self.tables.bodies_at(team, seqs) if seqs else {}

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
                seq = (await self.tables.trail(team, handoff_id))[version - 1]
            if seq > known.horizon:
                found[handoff_id, version] = seq
        return found

    async def log(self, page: LogPage) -> Sequence[Entry]:
        """Return a page of the log, oldest first."""
        fits = partial(page_fits, page)
        if page.handoff_id is not None or page.correlation_id is not None:
            entries = await self._log_about(page)
            return [entry for entry in entries if fits(entry)][: page.limit]
        entries, looked_to = await self.tables.log(page, fits)
        # One visit looks through so much and no more, so that writers get their turn between.
        while looked_to is not None and len(entries) < page.limit:
            rest = replace(page, after=looked_to, limit=page.limit - len(entries))
            more, looked_to = await self.tables.log(rest, fits)
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
            chain = await self.tables.chain(team, correlation_id)
            behind = self._state.unwritten_of(team).values()
            chain += [h.id for h in behind if h.correlation_id == correlation_id]
            chain = list(dict.fromkeys(chain))
            about = [*map(about_handoff, chain), about_chain(correlation_id)]
        seqs = await self.tables.mentions(team, about)
        for handoff_id in chain:
            seqs += await self._trail(team, handoff_id)
        wanted = sorted(seq for seq in seqs if seq > page.after)
        some_more = page.limit if page.actor is None and page.type is None else len(wanted)
        return await self.tables.entries_at(team, wanted[:some_more])

    async def _trail(self, team: str, handoff_id: str) -> list[int]:
        """Return the places of everything that happened to a handoff."""
        await self.find([(team, handoff_id)])
        kept = self._state.get((team, handoff_id))
        if kept is None:
            return []
        if kept.trail_from == 1:
            return list(kept.trail)
        known = {seq for _, seqs in kept.overflow for seq in seqs} | set(kept.trail)
        older = await self.tables.trail(team, handoff_id)
        return sorted(known | set(older))

    async def inbox(self, team: str, agent: str, *, after: int, limit: int) -> Sequence[Mail]:
        """Return what concerns `agent` after `after`, oldest first, each entry's items together."""
        await self._settle([team])
        known = self._state.teams.get(team)
        waiting = [item for reader, item in known.mail if reader == agent] if known else []
        before = waiting[0].seq if waiting else SEQ_MAX
        items = list(await self.tables.inbox(team, agent, after, before, limit))
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
