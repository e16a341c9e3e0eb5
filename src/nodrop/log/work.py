"""Units of work: what one writes to the journal and its tables, and how it is merged into memory."""

from collections.abc import Iterable, Sequence
from typing import TypeVar

import msgspec

from nodrop.log.journal import Packed, pack
from nodrop.log.port import Changes, Row
from nodrop.log.state import Slice, State
from nodrop.protocol.entries import Draft

T = TypeVar("T")


class Commit(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that one commit writes."""

    journal: Sequence[Packed] = ()
    commands: Sequence[tuple[str, str, str, bytes | None, str]] = ()
    """(team, actor, command id, digest of the request, places of its entries, each before a space)."""
    mentions: Sequence[tuple[str, str, int]] = ()
    changes: Sequence[Changes] = ()
    """Of which the entries and the rows of handoffs are elsewhere."""
    behind: Slice = Slice()


class Work:
    """What a unit of work writes, and how it is taken into memory once that is durable."""

    def __init__(self, state: State, appended: Sequence[Changes]) -> None:
        self._state = state
        self._drafts: dict[str, list[Draft]] = {}
        """By team, in the order of its log."""
        self._rows: dict[str, list[Row]] = {}
        for changes in appended:
            _by_team(self._drafts, changes.entries, [draft.team for draft in changes.entries])
            _by_team(self._rows, changes.rows, [row.handoff.team for row in changes.rows])
        journal: list[Packed] = []
        commands: list[tuple[str, str, str, bytes | None, str]] = []
        mentions: list[tuple[str, str, int]] = []
        for team, drafts in self._drafts.items():
            head = state.teams[team].head
            changed = {row.handoff.id for row in self._rows.get(team, ())}
            journal.append(pack(team, drafts, head))
            commands += _commands(team, drafts, head.seq + 1)
            mentions += _mentions(team, drafts, head.seq + 1, changed)
        assert self._rows.keys() <= self._drafts.keys(), "a row changes with an entry"
        self.commit = Commit(
            journal=journal,
            commands=commands,
            mentions=mentions,
            changes=appended,
            behind=state.slice(self._drafts),
        )

    def merge(self) -> None:
        """Take what was written into memory."""
        state = self._state
        for each in self.commit.journal:
            team = each.batch.team
            rows = self._rows.get(team, ())
            state.merge(state.teams[team], each.head, self._drafts[team], rows)
        state.wrote(self.commit.behind)


def _by_team(found: dict[str, list[T]], items: Sequence[T], teams: Sequence[str]) -> None:
    """Add `items`, each of the team at its place in `teams`. Most commits write to one."""
    if len(several := set(teams)) == 1:
        found.setdefault(several.pop(), []).extend(items)
        return
    for team, item in zip(teams, items, strict=True):
        found.setdefault(team, []).append(item)


def _commands(
    team: str, drafts: Sequence[Draft], first: int
) -> Iterable[tuple[str, str, str, bytes | None, str]]:
    """Return the rows of `command`: what each command of a batch wrote."""
    written: dict[tuple[str, str], tuple[bytes | None, str]] = {}
    for seq, draft in enumerate(drafts, first):
        if draft.command_id is not None:
            key = (draft.actor, draft.command_id)
            before = written.get(key)
            if before is None:
                written[key] = (draft.request, f"{seq} ")
            else:
                written[key] = (before[0] or draft.request, f"{before[1]}{seq} ")
    return [(team, actor, name, *said) for (actor, name), said in written.items()]


def _mentions(
    team: str, drafts: Sequence[Draft], first: int, changed: set[str]
) -> Iterable[tuple[str, str, int]]:
    """Return where entries are that no row of a handoff leads to."""
    mentions: list[tuple[str, str, int]] = []
    for seq, draft in enumerate(drafts, first):
        if draft.handoff_id is None:
            if draft.correlation_id is not None:
                mentions.append((team, about_chain(draft.correlation_id), seq))
        elif draft.version is None or draft.handoff_id not in changed:
            mentions.append((team, about_handoff(draft.handoff_id), seq))
    return mentions


def about_handoff(handoff_id: str) -> str:
    """Return under which name entries about a handoff are mentioned."""
    return f"handoff {handoff_id}"


def about_chain(correlation_id: str) -> str:
    """Return under which name entries about a correlation are mentioned."""
    return f"chain {correlation_id}"
