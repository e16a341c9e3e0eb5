"""Units of work: what one reads, what it writes to the journal and its tables, and how memory takes it in."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Final, Generic, Protocol, TypeAlias, TypeVar

import msgspec

from nodrop.log.journal import Packed, pack
from nodrop.log.port import Changes, Key, KeyUse, Loaded, Mail, Place, Process, Row, Wanted
from nodrop.log.state import NOTHING_BEHIND, Slice, State, TeamState
from nodrop.log.tables import Name, Tables
from nodrop.model.errors import RelayFaultError
from nodrop.model.handoff import Handoff
from nodrop.protocol.entries import Draft

Command: TypeAlias = tuple[str, str, str, bytes | None, str]
"""(team, actor, command id, digest of the request, places of its entries, each before a space)."""

_TEAM: Final = attrgetter("team")
_NOTHING: Final = -1
"""Follows on no version: a row without an event."""


class Commit(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that one commit writes."""

    journal: Sequence[Packed] = ()
    commands: Sequence[Command] = ()
    mentions: Sequence[tuple[str, str, int]] = ()
    changes: Sequence[Changes] = ()
    """Of which the entries and the rows of handoffs are elsewhere."""
    behind: Slice = NOTHING_BEHIND


class Change(msgspec.Struct, gc=False):
    """A change of one handoff by a unit of work."""

    row: Row | None
    """None: no row leads to its entries."""
    version: int
    """The last one so far."""
    seqs: list[int]
    """Where its events are."""


class Part(msgspec.Struct):
    """What a unit of work appends to the log of one team."""

    name: str
    end: int
    """The last `seq` so far."""
    drafts: list[Draft] = []
    changed: dict[str, Change] = {}
    """By handoff."""
    mail: list[tuple[str, Mail]] = []


class Reads(Protocol):
    """A store that units of work read from."""

    @property
    def tables(self) -> Tables:
        """Where it asks for what is not in memory."""
        ...

    async def found(self, keys: Collection[Key]) -> dict[Key, Handoff]:
        """Return the handoffs there are of `keys`, in that order."""
        ...


S = TypeVar("S", bound=Reads)


class Work(Generic[S]):
    """A unit of work: reads what is committed, and gathers what is appended.

    Memory takes that in with `merge`, once it is durable.
    """

    def __init__(self, store: S, state: State) -> None:
        self.appended: list[Changes] = []
        self.written: list[tuple[TeamState, Packed, Part]] = []
        """What is written to the log of each team, once `commit` is called, and of what it was made."""
        self._store = store
        self._state = state
        self._parts: dict[str, Part] = {}
        """By team."""
        self._follows: dict[Key, int] = {}
        """The version that the first event follows, of handoffs that are not in memory."""
        self._commands: dict[Name, Command] = {}
        """By team, actor and command id."""
        self._mentions: list[tuple[str, str, int]] = []
        """Where entries are that are no event of a handoff."""
        self._rowless: list[tuple[str, str, Change]] = []
        """Handoffs with events before any row: (team, handoff, change)."""
        self._behind = NOTHING_BEHIND

    # --- reading ---

    async def load(self, wanted: Wanted, *, names: bool = True) -> Loaded:
        """Return what there is of `wanted`; without the keys and commands unless `names`."""
        assert not self.appended, "append comes last in a unit of work"
        store, state = self._store, self._state
        handoffs: dict[Key, Handoff] = {}
        keys: Mapping[Name, KeyUse] = {}
        commands: Mapping[Name, Sequence[Place]] = {}
        entries: Mapping[tuple[str, int], Place] = {}
        held: dict[Key, Sequence[Handoff]] = {}
        processes: Mapping[Key, Process] = {}
        if wanted.processes:
            for key in wanted.processes:
                held[key] = await self._handoffs(state.held(*key))
            told_of = await store.tables.processes_of(wanted.processes)
            processes = {(process.team, process.id): process for process in told_of}
        if wanted.handoffs:
            for key in wanted.handoffs:
                kept = state.unwritten.get(key) or state.get(key)
                if kept is None:
                    handoffs = await store.found(wanted.handoffs)
                    break
                handoffs[key] = kept.handoff
        if names and wanted.keys:
            used = await store.tables.keys(wanted.keys)
            keys = {(use.team, use.sender, use.key): use for use in used}
        if names and wanted.commands:
            commands = await store.tables.commands(wanted.commands)
        if wanted.entries:
            entries = await store.tables.entry_places(wanted.entries)
        return Loaded(
            handoffs=handoffs,
            keys=keys,
            commands=commands,
            entries=entries,
            held=held,
            processes=processes,
        )

    async def claimable(self, team: str, agent: str, *, limit: int) -> Sequence[Handoff]:
        """Return what `agent` may take, in the order of its queue."""
        await self._rest_on([team])
        return await self._handoffs(self._state.claimable(team, agent, limit))

    async def held(self, team: str, process: str) -> Sequence[Handoff]:
        """Return what `process` holds."""
        await self._rest_on([team])
        return await self._handoffs(self._state.held(team, process))

    async def due(self, *, now: int, limit: int) -> Sequence[Handoff]:
        """Return what came due at or before `now`, oldest first."""
        keys = self._state.due(now, limit)
        await self._rest_on({team for team, _ in keys})
        return await self._handoffs(keys)

    async def unfinished(self, team: str, correlation_id: str) -> Sequence[Handoff]:
        """Return what has no outcome yet of a chain, in the order of ids."""
        await self._rest_on([team])
        return await self._handoffs(self._state.unfinished_of(team, correlation_id))

    async def _handoffs(self, keys: Collection[Key]) -> list[Handoff]:
        assert not self.appended, "append comes last in a unit of work"
        return list((await self._store.found(keys)).values())

    async def _rest_on(self, teams: Iterable[str]) -> None:
        """Take note that the unit of work rests on what is known of these teams."""

    # --- gathering ---

    async def append(self, changes: Changes) -> Sequence[int]:
        """Gather `changes` for the commit; return the `seq` that each entry will have."""
        seqs = self.add(changes)
        if self._follows:
            follows, self._follows = self._follows, {}
            found = await self._store.found(follows)
            for key, version in follows.items():
                before = found[key].version if key in found else 0
                if version not in (before, _NOTHING):
                    raise _contradiction(version + 1, before)
        return seqs

    def add(self, changes: Changes) -> list[int]:
        """Gather `changes`, all of whose handoffs begin in them or are in memory.

        Raises:
            RelayFaultError: an event does not follow from what there is of its handoff.
        """
        self.appended.append(changes)
        state, part = self._state, None
        absent: list[tuple[Key, Change]] = []
        for row in changes.rows:
            handoff = row.handoff
            handoff_id = handoff.id
            if part is None or part.name != handoff.team:
                part = self._part(handoff.team)
            change = part.changed.get(handoff_id)
            if change is None:
                change = part.changed[handoff_id] = Change(row, 0, [])
            elif change.row is None:
                change.row = row
            else:
                change.row = row
                continue
            key = (part.name, handoff_id)
            kept = state.unwritten.get(key) or state.get(key)
            if kept is not None:
                change.version = kept.handoff.version
            elif handoff.version > 1:
                absent.append((key, change))
        seqs: list[int] = []
        for team, drafts in groupby(changes.entries, _TEAM):
            if part is None or part.name != team:
                part = self._part(team)
            first = len(part.drafts)
            part.drafts += drafts
            seqs += self._place(part, part.drafts[first:])
        for key, change in absent:
            version = change.version - len(change.seqs) if change.seqs else _NOTHING
            if version:  # else it begins here
                self._follows[key] = version
        return seqs

    def _place(self, part: Part, drafts: list[Draft]) -> Sequence[int]:
        """Take note where drafts of one team will be; return that."""
        team, changed, mail, commands = part.name, part.changed, part.mail, self._commands
        first = seq = part.end + 1
        for seq, draft in enumerate(drafts, first):
            handoff_id, version = draft.handoff_id, draft.version
            if handoff_id is None or version is None:
                if handoff_id is not None:
                    self._mentions.append((team, about_handoff(handoff_id), seq))
                elif draft.correlation_id is not None:
                    self._mentions.append((team, about_chain(draft.correlation_id), seq))
            else:
                change = changed.get(handoff_id)
                if change is None:
                    change = changed[handoff_id] = Change(None, 0, [])
                    self._rowless.append((team, handoff_id, change))
                elif change.row is not None:
                    # What it follows may not be in memory: then `append` looks it up.
                    if version != change.version + 1 and (
                        change.version or change.row.handoff.version == 1
                    ):
                        raise _contradiction(version, change.version)
                    change.version = version
                change.seqs.append(seq)
            command_id = draft.command_id
            if command_id is not None:
                actor = draft.actor
                name = (team, actor, command_id)
                request, at = draft.request, f"{seq} "
                before = commands.get(name)
                if before is not None:
                    request, at = before[3] or request, before[4] + at
                commands[name] = (team, actor, command_id, request, at)
            told = draft.mail
            if told:
                if len(told) > 1:  # one may be told for two reasons
                    told = sorted(set(told))
                for reader, kind in told:
                    item = Mail(seq, kind, draft.at, draft.actor, draft.type, handoff_id, version)
                    mail.append((reader, item))
        part.end = seq
        return range(first, seq + 1)

    def _part(self, team: str) -> Part:
        part = self._parts.get(team)
        if part is None:
            part = self._parts[team] = Part(team, self._state.teams[team].head.seq)
        return part

    # --- committing ---

    def commit(self, *, behind: bool = False) -> Commit:
        """Return what is to be written; `behind`, with rows of earlier commits. Nothing is added after this."""
        state = self._state
        journal: list[Packed] = []
        for name, part in self._parts.items():
            assert part.drafts, "a row changes with an entry"
            team = state.teams[name]
            packed = pack(name, part.drafts, part.mail, team.head)
            journal.append(packed)
            self.written.append((team, packed, part))
        for name, handoff_id, change in self._rowless:
            if change.row is None:
                about = about_handoff(handoff_id)
                self._mentions += [(name, about, seq) for seq in change.seqs]
        if behind:
            self._behind = state.slice(self._parts)
        return Commit(
            journal=journal,
            commands=list(self._commands.values()),
            mentions=self._mentions,
            changes=self.appended,
            behind=self._behind,
        )

    def merge(self) -> bool:
        """Take what was written into memory; return whether rows that are behind are to be written."""
        follow, is_far_behind = self._state.follow, False
        for team, packed, part in self.written:
            team.head = packed.head
            team.mail += part.mail
            for change in part.changed.values():
                if change.row is not None:
                    follow(team, change.row, change.seqs, since=part.end)
            is_far_behind = is_far_behind or team.is_far_behind
        if self._behind is not NOTHING_BEHIND:
            self._state.wrote(self._behind)
        return is_far_behind


def about_handoff(handoff_id: str) -> str:
    """Return under which name entries about a handoff are mentioned."""
    return f"handoff {handoff_id}"


def about_chain(correlation_id: str) -> str:
    """Return under which name entries about a correlation are mentioned."""
    return f"chain {correlation_id}"


def _contradiction(version: int, before: int) -> RelayFaultError:
    """Return what it means that an event does not follow: it cannot be known what it does."""
    return RelayFaultError(f"the store refused a contradiction: version {version} after {before}")
