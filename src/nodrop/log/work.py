"""Units of work: what one writes to the journal and its tables, and how it is merged into memory."""

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from nodrop.log.journal import Packed, pack
from nodrop.log.port import Changes, Row
from nodrop.log.state import Slice, State
from nodrop.protocol.entries import Draft

_NOTHING: Final[tuple[bytes | None, str]] = (None, "")


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
        self._appended = appended
        self._placed: dict[str, list[tuple[int, Draft]]] = {}
        """By team: each draft with the `seq` that it gets."""
        for changes in appended:
            for draft in changes.entries:
                of_team = self._placed.get(draft.team)
                if of_team is None:
                    of_team = self._placed[draft.team] = []
                of_team.append((state.teams[draft.team].head.seq + len(of_team) + 1, draft))
        changed = {row.handoff.id for changes in appended for row in changes.rows}
        journal: list[Packed] = []
        commands: list[tuple[str, str, str, bytes | None, str]] = []
        mentions: list[tuple[str, str, int]] = []
        for team, of_team in self._placed.items():
            journal.append(pack(team, [draft for _, draft in of_team], state.teams[team].head))
            commands += _commands(team, of_team)
            mentions += _mentions(team, of_team, changed)
        self.commit = Commit(
            journal=journal,
            commands=commands,
            mentions=mentions,
            changes=appended,
            behind=state.slice(self._placed),
        )

    def merge(self) -> None:
        """Take what was written into memory."""
        rows: dict[str, list[Row]] = {}
        for changes in self._appended:
            for row in changes.rows:
                of_team = rows.get(row.handoff.team)
                if of_team is None:
                    of_team = rows[row.handoff.team] = []
                of_team.append(row)
        state = self._state
        for each in self.commit.journal:
            team = each.batch.team
            state.merge(state.teams[team], each.head, self._placed[team], rows.pop(team, ()))
        assert not rows, "a row changes with an entry"
        state.wrote(self.commit.behind)


def _commands(
    team: str, placed: Sequence[tuple[int, Draft]]
) -> Iterable[tuple[str, str, str, bytes | None, str]]:
    """Return the rows of `command`: what each command of a batch wrote."""
    written: dict[tuple[str, str], tuple[bytes | None, str]] = {}
    for seq, draft in placed:
        if draft.command_id is not None:
            key = (draft.actor, draft.command_id)
            request, seqs = written.get(key, _NOTHING)
            written[key] = (request or draft.request, f"{seqs}{seq} ")
    return [(team, actor, name, *said) for (actor, name), said in written.items()]


def _mentions(
    team: str, placed: Sequence[tuple[int, Draft]], changed: set[str]
) -> Iterable[tuple[str, str, int]]:
    """Return where entries are that no row of a handoff leads to."""
    mentions: list[tuple[str, str, int]] = []
    for seq, draft in placed:
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
