"""Jobs: decisions that some batch is to make, and what a commit made true."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Generic, TypeVar

import msgspec

from nodrop.log.port import Changes, Key, Row, Wanted
from nodrop.model.errors import NodropError
from nodrop.model.handoff import Handoff
from nodrop.relay.batch import Batch, CommandName, Happened
from nodrop.relay.bodies import BodyKey

T = TypeVar("T")


class Wants(Wanted, frozen=True, kw_only=True):
    """What the jobs of a batch must see before they can be decided, gathered for one load."""

    handoffs: set[Key] = msgspec.field(default_factory=set)
    keys: set[tuple[str, str, str]] = msgspec.field(default_factory=set)
    commands: set[tuple[str, str, str]] = msgspec.field(default_factory=set)
    entries: set[tuple[str, int]] = msgspec.field(default_factory=set)
    processes: set[Key] = msgspec.field(default_factory=set)

    def add(self, wanted: Wanted) -> None:
        """Want these as well."""
        self.handoffs.update(wanted.handoffs)
        self.keys.update(wanted.keys)
        self.commands.update(wanted.commands)
        self.entries.update(wanted.entries)
        self.processes.update(wanted.processes)


class Job(ABC, Generic[T]):
    """A decision to be made in some batch. Its answer sets a future, where `submit` made one."""

    __slots__ = ("by", "fetches", "future")

    about: Key | None = None
    """The handoff that it must see."""
    command: CommandName | None = None
    """The name of its command, which may have been carried out before."""
    key_use: tuple[str, str, str] | None = None
    """The idempotency key (team, sender, key) that it must see."""
    besides: Wanted | None = None
    """What else it must see."""
    held: Key | None = None
    """(team, process) whose deliveries must be loaded too."""
    alive: bool = False
    """It is that process itself that asks."""

    def __init__(self, by: Key | None) -> None:
        self.by = by
        """(team, agent) whose command it is; None: the relay's own."""
        self.fetches = 0
        self.future: asyncio.Future[T] | None = None

    @abstractmethod
    def run(self, batch: Batch) -> T:
        """Decide. May be called again, in a later batch, once what it lacked was fetched."""

    def told(self, answer: T) -> None:
        """Take the answer, which is committed. Does not wait."""
        if self.future is not None and not self.future.done():  # else the caller went away
            self.future.set_result(answer)

    def refused(self, error: NodropError) -> None:
        """Take the reason why there is no answer. Does not wait, and does not raise."""
        if self.future is not None and not self.future.done():
            self.future.set_exception(error)


class FunctionJob(Job[T]):
    """A decision that a function makes."""

    __slots__ = ("_decide", "alive", "besides", "held")

    def __init__(
        self,
        wanted: Wanted,
        decide: Callable[[Batch], T],
        *,
        held: Key | None = None,
        alive: bool = False,
        by: Key | None = None,
    ) -> None:
        super().__init__(by)
        self.besides = wanted
        self._decide = decide
        self.held = held
        self.alive = alive

    def run(self, batch: Batch) -> T:
        """Decide."""
        return self._decide(batch)


class Committed(msgspec.Struct, frozen=True, kw_only=True):
    """What a commit made true, for those who wait."""

    at: int
    changes: Changes
    seqs: Sequence[int]
    """Of its entries."""
    changed: Sequence[tuple[Handoff | None, Row]]
    """Each handoff that changed: as it was before, and its row now."""
    happened: Sequence[Happened]
    bodies: Mapping[BodyKey, bytes | None]
    """What came with the events; None where no words were said."""
