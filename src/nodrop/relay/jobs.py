"""What goes into a batch, and what came of it."""

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

import msgspec

from nodrop.log.port import Changes, Key, Wanted
from nodrop.model.errors import NodropError
from nodrop.model.handoff import Handoff
from nodrop.relay.batch import Batch, Happened

T = TypeVar("T")


class Job(Generic[T]):
    """A decision to be made in some batch, and whoever is told what came of it."""

    __slots__ = ("alive", "by", "fetches", "held", "refused", "run", "told", "wanted")

    def __init__(
        self,
        wanted: Wanted,
        run: Callable[[Batch], T],
        *,
        held: Key | None = None,
        alive: bool = False,
        by: Key | None = None,
        told: Callable[[T], None] = lambda _: None,
        refused: Callable[[NodropError], None] = lambda _: None,
    ) -> None:
        self.wanted = wanted
        self.held = held
        """(team, process) whose deliveries must be loaded too."""
        self.alive = alive
        """It is that process itself that asks."""
        self.by = by
        """(team, agent) whose command it is; None: the relay's own."""
        self.run = run
        self.told = told
        """Called with the answer once it is committed. Does not wait, and does not raise."""
        self.refused = refused
        """Called with the reason if it is not."""
        self.fetches = 0


class Committed(msgspec.Struct, frozen=True, kw_only=True):
    """What a commit made true, for those who wait."""

    at: int
    handoffs: Sequence[Handoff]
    changed: Sequence[tuple[Handoff | None, Handoff]]
    """Each of them as it was before, and as it is."""
    happened: Sequence[Happened]
    seqs: Sequence[int]
    teams: frozenset[str]
    changes: Changes
