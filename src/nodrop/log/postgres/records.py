"""Rows as columns, the way this database takes them, where `nodrop.log.records` does not say it."""

from collections.abc import Iterable, Sequence
from typing import Any

from nodrop.log.records import Columns
from nodrop.model.handoff import Handoff


def transposed(rows: Sequence[Columns], width: int) -> list[list[Any]]:
    """Return rows as columns: what a statement takes as one array each."""
    if not rows:
        return [[] for _ in range(width)]
    return [list(column) for column in zip(*rows, strict=True)]


def party_columns(handoff: Handoff) -> Iterable[Columns]:
    """Return the rows of `party`: for everybody whom `handoff` concerns or concerned, and its marks."""
    watchers = handoff.watchers
    agents = {handoff.sender, handoff.origin, *handoff.asked, *watchers}
    names = (*agents, *handoff.terms.marks)
    return [(handoff.team, name, handoff.id, name in watchers) for name in names]
