"""Units of work: what one writes to the journal and its tables, and how it is merged into memory."""

from collections.abc import Iterable, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Final, TypeAlias

import msgspec

from nodrop.log.journal import Packed, pack
from nodrop.log.port import Changes, Mail, Row
from nodrop.log.state import Slice, State, TeamState, mail_of
from nodrop.model.errors import RelayFaultError
from nodrop.protocol.entries import Draft

Command: TypeAlias = tuple[str, str, str, bytes | None, str]
"""(team, actor, command id, digest of the request, places of its entries, each before a space)."""


_TEAM: Final = attrgetter("team")


class Commit(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that one commit writes."""

    journal: Sequence[Packed] = ()
    commands: Sequence[Command] = ()
    mentions: Sequence[tuple[str, str, int]] = ()
    changes: Sequence[Changes] = ()
    """Of which the entries and the rows of handoffs are elsewhere."""
    behind: Slice = Slice()


class Work:
    """Gathers what a unit of work appends, and takes it into memory once that is durable."""

    def __init__(self, state: State) -> None:
        self.appended: list[Changes] = []
        self._state = state
        self._parts: dict[str, _Part] = {}
        """By team."""
        self._written: list[tuple[TeamState, Packed, _Part]] = []
        self._behind = Slice()

    def add(self, changes: Changes) -> list[int]:
        """Gather `changes`; return the `seq` that each entry will have.

        The handoffs that they change are in memory, unless they are new.

        Raises:
            RelayFaultError: an event does not follow from what there is of its handoff.
        """
        state, part = self._state, None
        for row in changes.rows:
            handoff = row.handoff
            if part is None or part.team != handoff.team:
                part = self._part(handoff.team)
            change = part.changed.get(handoff.id)
            if change is None:
                change = part.changed[handoff.id] = _Change()
            if change.row is None:
                kept = state.get((handoff.team, handoff.id))
                change.version = 0 if kept is None else kept.handoff.version
            change.row = row
        seqs: list[int] = []
        for team, drafts in groupby(changes.entries, _TEAM):
            seqs += self._part(team).add(drafts)
        self.appended.append(changes)
        return seqs

    def commit(self) -> Commit:
        """Return what is to be written. Nothing is added after this."""
        journal: list[Packed] = []
        commands: list[Command] = []
        mentions: list[tuple[str, str, int]] = []
        for name, part in self._parts.items():
            assert part.drafts, "a row changes with an entry"
            team = self._state.teams[name]
            packed = pack(name, part.drafts, team.head)
            journal.append(packed)
            commands += part.commands.values()
            mentions += part.mentions
            for handoff_id, change in part.changed.items():
                if change.row is None:
                    mentions += [(name, about_handoff(handoff_id), seq) for seq in change.seqs]
            self._written.append((team, packed, part))
        self._behind = self._state.slice(self._parts)
        return Commit(
            journal=journal,
            commands=commands,
            mentions=mentions,
            changes=self.appended,
            behind=self._behind,
        )

    @property
    def written(self) -> list[tuple[Packed, Sequence[Draft]]]:
        """What was written to the log of each team, and of what it was made."""
        return [(packed, part.drafts) for _, packed, part in self._written]

    def merge(self) -> None:
        """Take what was written into memory."""
        state = self._state
        for team, packed, part in self._written:
            team.head = packed.head
            for reader, item in part.mail:
                state.deliver(team, reader, item)
            for change in part.changed.values():
                if change.row is not None:
                    state.follow(team, change.row, change.seqs, since=team.head.seq)
        state.wrote(self._behind)

    def _part(self, team: str) -> "_Part":
        part = self._parts.get(team)
        if part is None:
            part = self._parts[team] = _Part(team, self._state.teams[team].head.seq)
        return part


class _Change:
    """What a unit of work does to one handoff."""

    __slots__ = ("row", "seqs", "version")

    def __init__(self) -> None:
        self.row: Row | None = None
        """None: no row leads to its entries."""
        self.version = 0
        """The last one so far."""
        self.seqs: list[int] = []
        """Where its events are."""

    def go_on_to(self, version: int) -> None:
        """Take in the next event: no second one of a version, as it cannot be known what it follows."""
        if version != self.version + 1:
            raise RelayFaultError(
                f"the store refused a contradiction: version {version} after {self.version}"
            )
        self.version = version


class _Part:
    """What a unit of work appends to the log of one team."""

    def __init__(self, team: str, end: int) -> None:
        self.team = team
        self.end = end
        """The last `seq` so far."""
        self.drafts: list[Draft] = []
        self.changed: dict[str, _Change] = {}
        """By handoff."""
        self.commands: dict[tuple[str, str], Command] = {}
        """By actor and command id."""
        self.mentions: list[tuple[str, str, int]] = []
        """Where entries are that are no event of a handoff."""
        self.mail: list[tuple[str, Mail]] = []

    def add(self, drafts: Iterable[Draft]) -> range:
        """Take in the next entries; return the `seq` of each."""
        team, changed, mentions, seq = self.team, self.changed, self.mentions, self.end
        first = seq + 1
        for draft in drafts:
            seq += 1
            self.drafts.append(draft)
            handoff_id, version = draft.handoff_id, draft.version
            if handoff_id is None:
                if draft.correlation_id is not None:
                    mentions.append((team, about_chain(draft.correlation_id), seq))
            elif version is None:
                mentions.append((team, about_handoff(handoff_id), seq))
            else:
                change = changed.get(handoff_id)
                if change is None:
                    change = changed[handoff_id] = _Change()
                elif change.row is not None:
                    change.go_on_to(version)
                change.seqs.append(seq)
            if draft.command_id is not None:
                self._carried_out(draft, draft.command_id, seq)
            if draft.mail:
                # One may be told for two reasons.
                told = draft.mail if len(draft.mail) == 1 else sorted(set(draft.mail))
                self.mail += [(reader, mail_of(draft, seq, kind)) for reader, kind in told]
        self.end = seq
        return range(first, seq + 1)

    def _carried_out(self, draft: Draft, command_id: str, seq: int) -> None:
        name, request, places = (draft.actor, command_id), draft.request, f"{seq} "
        before = self.commands.get(name)
        if before is not None:
            request, places = before[3] or request, before[4] + places
        self.commands[name] = (self.team, *name, request, places)


def about_handoff(handoff_id: str) -> str:
    """Return under which name entries about a handoff are mentioned."""
    return f"handoff {handoff_id}"


def about_chain(correlation_id: str) -> str:
    """Return under which name entries about a correlation are mentioned."""
    return f"chain {correlation_id}"
