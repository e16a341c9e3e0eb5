"""Rows as columns, the way this database takes them, where `nodrop.stores.records` does not say it."""

from collections.abc import Iterable, Sequence
from typing import Any

from nodrop.core.model import Handoff
from nodrop.stores.records import Columns


def transposed(rows: Sequence[Columns], width: int) -> list[list[Any]]:
    """Return rows as columns: what a statement takes as one array each."""
    if not rows:
        return [[] for _ in range(width)]
    return [list(column) for column in zip(*rows, strict=True)]


def party_columns(handoff: Handoff) -> Iterable[Columns]:
    """Return the rows of `party` for everybody whom `handoff` concerns or concerned."""
    agents = {handoff.sender, handoff.origin, *handoff.asked, *handoff.watchers}
    return [(handoff.team, agent, handoff.id, agent in handoff.watchers) for agent in agents]
