"""Jobs: decisions that some batch is to make, and what a commit made true."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, TypeVar

import msgspec

from nodrop.log.port import Changes, Key, Wanted
from nodrop.model.errors import NodropError
from nodrop.model.handoff import Handoff
from nodrop.relay.batch import Batch, Happened

T = TypeVar("T")


class Job(Generic[T]):
    """A decision to be made in some batch, and who is told what came of it."""

    __slots__ = ("alive", "by", "fetches", "held", "refused", "run", "told", "wanted")

    run: Callable[[Batch], T]
    """Decides. May be called again, in a later batch, once what it lacked was fetched."""
    told: Callable[[T], None]
    """Called with the answer once it is committed. Does not wait, and does not raise."""
    refused: Callable[[NodropError], None]
    """Called with the reason if it is not."""

    def __init__(
        self,
        wanted: Wanted,
        run: Callable[[Batch], T],
        *,
        held: Key | None = None,
        alive: bool = False,
        by: Key | None = None,
    ) -> None:
        self.wanted = wanted
        self.held = held
        """(team, process) whose deliveries must be loaded too."""
        self.alive = alive
        """It is that process itself that asks."""
        self.by = by
        """(team, agent) whose command it is; None: the relay's own."""
        self.run = run
        self.fetches = 0


def all_wanted(jobs: Iterable[Job[Any]], processes: Iterable[Key]) -> Wanted:
    """Return what `jobs` want together, and what these processes hold."""
    handoffs: set[Key] = set()
    keys: set[tuple[str, str, str]] = set()
    commands: set[tuple[str, str, str]] = set()
    entries: set[tuple[str, int]] = set()
    held = set(processes)
    for job in jobs:
        wanted = job.wanted
        handoffs.update(wanted.handoffs)
        keys.update(wanted.keys)
        commands.update(wanted.commands)
        if wanted.entries:
            entries.update(wanted.entries)
        if job.held is not None:
            held.add(job.held)
    return Wanted(handoffs=handoffs, keys=keys, commands=commands, entries=entries, processes=held)


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
