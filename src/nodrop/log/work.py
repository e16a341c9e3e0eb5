"""Units of work: what one writes to the journal and its tables, and how it is merged into memory."""

from collections.abc import Collection, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Final, TypeAlias

import msgspec

from nodrop.log.journal import Packed, pack
from nodrop.log.port import Changes, Mail, Row
from nodrop.log.state import NOTHING_BEHIND, Slice, State, TeamState, mail_of
from nodrop.model.errors import RelayFaultError
from nodrop.model.handoff import Handoff
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
    behind: Slice = NOTHING_BEHIND


class Work:
    """Gathers what a unit of work appends, and takes it into memory once that is durable."""

    def __init__(self, state: State) -> None:
        self.appended: list[Changes] = []
        self.written: list[tuple[TeamState, Packed, Part]] = []
        """What is written to the log of each team, once `commit` is called, and of what it was made."""
        self._state = state
        self._parts: dict[str, Part] = {}
        """By team."""
        self._commands: dict[tuple[str, str, str], Command] = {}
        """By team, actor and command id."""
        self._mentions: list[tuple[str, str, int]] = []
        """Where entries are that are no event of a handoff."""
        self._rowless: list[tuple[str, str, Change]] = []
        """Handoffs with events before any row: (team, handoff, change)."""
        self._behind = NOTHING_BEHIND

    @property
    def teams(self) -> Collection[str]:
        """The teams that it writes to."""
        return self._parts

    def begin(self, rows: Sequence[Row]) -> list[Handoff]:
        """Gather what becomes of handoffs; return those of which memory does not have what they were.

        Unless one begins here, `go_on_from` is to say what it was.
        """
        part, unknown, find = None, list[Handoff](), self._state.get
        for row in rows:
            handoff = row.handoff
            handoff_id = handoff.id
            if part is None or part.name != handoff.team:
                part = self._part(handoff.team)
            change = part.changed.get(handoff_id)
            if change is not None and change.row is not None:
                change.row = row
                continue
            kept = find((part.name, handoff_id))
            version = 0
            if kept is not None:
                version = kept.handoff.version
            elif handoff.version > 1:
                unknown.append(handoff)
            if change is None:
                part.changed[handoff_id] = Change(row, version, [])
            else:
                change.row, change.version = row, version
        return unknown

    def go_on_from(self, before: Handoff) -> None:
        """Take note of what a handoff was."""
        self._parts[before.team].changed[before.id].version = before.version

    def add(self, changes: Changes) -> list[int]:
        """Gather `changes`, whose rows have begun; return the `seq` that each entry will have.

        Raises:
            RelayFaultError: an event does not follow from what there is of its handoff.
        """
        self.appended.append(changes)
        return [
            seq
            for team, drafts in groupby(changes.entries, _TEAM)
            for seq in self._append(self._part(team), list(drafts))
        ]

    def _append(self, part: "Part", drafts: list[Draft]) -> Sequence[int]:
        """Gather entries of one team."""
        seq, changed, commands = part.end, part.changed, self._commands
        for draft in drafts:
            seq += 1
            version = draft.version
            if version is None or draft.handoff_id is None:
                self._mention(draft, seq)
            else:
                change = changed.get(draft.handoff_id)
                if change is None:
                    change = changed[draft.handoff_id] = Change(None, 0, [])
                    self._rowless.append((part.name, draft.handoff_id, change))
                elif change.row is not None:
                    change.version += 1
                    if version != change.version:  # it cannot be known what it follows
                        raise RelayFaultError(
                            f"the store refused a contradiction: version {version}"
                            f" after {change.version - 1}"
                        )
                change.seqs.append(seq)
            if draft.command_id is not None:
                name = (part.name, draft.actor, draft.command_id)
                before = commands.get(name)
                if before is None:
                    commands[name] = (*name, draft.request, f"{seq} ")
                else:
                    commands[name] = (*name, before[3] or draft.request, f"{before[4]}{seq} ")
            if draft.mail:
                # One may be told for two reasons.
                told = draft.mail if len(draft.mail) == 1 else sorted(set(draft.mail))
                part.mail += [(reader, mail_of(draft, seq, kind)) for reader, kind in told]
        first, part.end = part.end + 1, seq
        part.drafts += drafts
        return range(first, seq + 1)

    def _mention(self, draft: Draft, seq: int) -> None:
        """Take note where an entry is that is no event of a handoff."""
        if draft.handoff_id is not None:
            self._mentions.append((draft.team, about_handoff(draft.handoff_id), seq))
        elif draft.correlation_id is not None:
            self._mentions.append((draft.team, about_chain(draft.correlation_id), seq))

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

    def merge(self) -> None:
        """Take what was written into memory."""
        state = self._state
        for team, packed, part in self.written:
            team.head = packed.head
            team.mail.extend(part.mail)
            for change in part.changed.values():
                if change.row is not None:
                    state.follow(team, change.row, change.seqs, since=team.head.seq)
        if self._behind is not NOTHING_BEHIND:
            state.wrote(self._behind)

    def _part(self, team: str) -> "Part":
        part = self._parts.get(team)
        if part is None:
            part = self._parts[team] = Part(team, self._state.teams[team].head.seq)
        return part


class Change(msgspec.Struct, gc=False):
    """A change of one handoff by a unit of work."""

    row: Row | None
    """None: no row leads to its entries."""
    version: int
    """The last one so far."""
    seqs: list[int]
    """Where its events are."""


class Part:
    """What a unit of work appends to the log of one team."""

    __slots__ = ("changed", "drafts", "end", "mail", "name")

    def __init__(self, name: str, end: int) -> None:
        self.name = name
        self.end = end
        """The last `seq` so far."""
        self.drafts: list[Draft] = []
        self.changed: dict[str, Change] = {}
        """By handoff."""
        self.mail: list[tuple[str, Mail]] = []


def about_handoff(handoff_id: str) -> str:
    """Return under which name entries about a handoff are mentioned."""
    return f"handoff {handoff_id}"


def about_chain(correlation_id: str) -> str:
    """Return under which name entries about a correlation are mentioned."""
    return f"chain {correlation_id}"
