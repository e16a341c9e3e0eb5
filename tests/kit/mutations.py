"""CONTROLS: relays and stores that break one promise each, so that a proof can be seen to fail.

A proof that does not notice the one that is meant for it proves nothing. Each is a patch of this
process for as long as its block lasts, or a store to be wrapped around another; no relay has a
switch for any of them.
"""

from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    ExitStack,
    asynccontextmanager,
    contextmanager,
)
from types import SimpleNamespace
from typing import Any, Final
from unittest import mock

from msgspec.structs import replace

from nodrop.log import port as store
from nodrop.log.port import Changes, Process, Row, Store, Transaction
from nodrop.model import decisions, events, evolution, machine, mail, ticking
from nodrop.model.commands import Actor
from nodrop.model.decisions import Facts
from nodrop.model.events import Event, Fact
from nodrop.model.handoff import FINAL, ClockName, Escalation, Handoff, State
from nodrop.model.limits import HOUR
from nodrop.model.surroundings import Surroundings
from nodrop.relay import batch, engine, timers
from nodrop.relay.batch import Batch
from nodrop.relay.delivery import deliveries
from nodrop.relay.delivery.binding import Binder
from nodrop.relay.delivery.leases import Leases
from nodrop.relay.delivery.waiters import Takers
from nodrop.relay.engine import Engine
from nodrop.relay.handoffs import repeats
from nodrop.relay.identity.rules import Rules
from nodrop.relay.ports import NEVER
from nodrop.relay.timers import Timers

# --- relays -------------------------------------------------------------------------------------


@contextmanager
def no_grace() -> Generator[None]:
    """The relay's own downtime is everybody's silence."""

    def restore(self: Leases, processes: list[Process], *, up_since: int) -> None:
        del up_since
        for process in processes:
            self.see(process)

    def surroundings(self: Engine, **known: Any) -> Surroundings:
        return Surroundings(up_since=0, limits=self.limits, **known)

    with (
        mock.patch.object(Leases, "restore", restore),
        mock.patch.object(Engine, "surroundings", surroundings),
    ):
        yield


@contextmanager
def serves_the_silent() -> Generator[None]:
    """A process whose lease has just lapsed is delivered to as any other."""
    with mock.patch.object(Takers, "lapsed"):
        yield


@contextmanager
def deaf_to_silence() -> Generator[None]:
    """No process ever counts as silent, so no lease lapses."""

    def to_check(self: Leases) -> list[Process]:
        del self
        return []

    with (
        mock.patch.object(Leases, "to_check", to_check),
        mock.patch.object(Leases, "next_check", return_value=NEVER),
    ):
        yield


@contextmanager
def late_timers() -> Generator[None]:
    """Rows say that they are due an hour after they are."""

    def an_hour_late(make: Callable[[Handoff], Row]) -> Callable[[Handoff], Row]:
        def row(handoff: Handoff) -> Row:
            made = make(handoff)
            return made if made.due_at is None else replace(made, due_at=made.due_at + HOUR)

        return row

    with _changed(batch, "row_of", an_hour_late):
        yield


@contextmanager
def clocks_out_of_order() -> Generator[None]:
    """Of the clocks that ran out, the one that came to mind last goes first."""

    def last(waiting: list[tuple[int, int]]) -> tuple[int, int]:
        return waiting.pop()

    def at_the_end(waiting: list[tuple[int, int]], clock: tuple[int, int]) -> None:
        waiting.append(clock)

    stack = SimpleNamespace(heapify=sorted, heappush=at_the_end, heappop=last)
    with mock.patch.object(timers, "heapq", stack):
        yield


@contextmanager
def never_bound() -> Generator[None]:
    """What was offered before its agent registered is delivered without a contract."""
    with mock.patch.object(Binder, "_recipient", return_value=None):
        yield


@contextmanager
def no_repeats() -> Generator[None]:
    """Commands are not remembered: every repeat is carried out again."""
    with mock.patch.object(Batch, "places", return_value=()):
        yield


@contextmanager
def any_request() -> Generator[None]:
    """A command id stands for whatever it was first used for, whatever is asked for now."""
    with mock.patch.object(repeats, "_differ", return_value=False):
        yield


@contextmanager
def no_keys() -> Generator[None]:
    """Idempotency keys are not looked at."""
    with mock.patch.object(Batch, "key_use", return_value=None):
        yield


@contextmanager
def two_attempts() -> Generator[None]:
    """What one process holds is delivered to the next that asks."""

    def takeable(handoff: Handoff) -> bool:
        return handoff.state in {State.OFFERED, State.DELIVERED, State.ACCEPTED}

    with ExitStack() as stack:
        for module in (deliveries, engine, store):
            stack.enter_context(mock.patch.object(module, "takeable", takeable))
        for state in (State.DELIVERED, State.ACCEPTED):
            stack.enter_context(_allowed(state, {events.Delivered: State.DELIVERED}))
        yield


@contextmanager
def two_outcomes() -> Generator[None]:
    """A requester may cancel what has ended already."""

    def cancel(handoff: Handoff, command: object, by: Actor) -> Facts:
        del handoff, command, by
        return (Fact(event=events.Cancelled()),)

    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(decisions, "_cancel", cancel))
        for state in FINAL:
            stack.enter_context(_allowed(state, {events.Cancelled: State.CANCELLED}))
        yield


@contextmanager
def nothing_due() -> Generator[None]:
    """Nobody reminds the requester of an outcome."""

    def without_outcome(change: Callable[..., Handoff]) -> Callable[..., Handoff]:
        def ended(*args: Any, **named: Any) -> Handoff:
            after = change(*args, **named)
            kept = tuple(t for t in after.timers if t.name is not ClockName.OUTCOME)
            return replace(after, timers=kept)

        return ended

    folds = evolution.WHOLE
    assert isinstance(folds, dict), "a table that can be changed"
    changed = {kind: without_outcome(folds[kind]) for kind in mail.ENDINGS}
    with mock.patch.dict(folds, changed):
        yield


@contextmanager
def restarted_episodes() -> Generator[None]:
    """A candidate that is asked next begins the unacknowledged episode anew."""

    def anew(change: Callable[..., dict[str, Any]]) -> Callable[..., dict[str, Any]]:
        def reassigned(h: Handoff, event: Event, at: int) -> dict[str, Any]:
            acknowledged = replace(h, state=State.ACCEPTED, ack=_ANY_ACK)
            return change(acknowledged, event, at)

        return reassigned

    with _changed(evolution, "_reassigned", anew):
        yield


@contextmanager
def never_void() -> Generator[None]:
    """A recipient is held to its queued acknowledgement whatever becomes of it."""

    async def look_after(self: Timers, process: Process, tx: Transaction, batch: Batch) -> None:
        del self, tx
        batch.see(replace(process, seen_at=batch.now))

    def only_remind(break_promise: Callable[..., Facts]) -> Callable[..., Facts]:
        return lambda *args: break_promise(*args)[:1]

    with (
        mock.patch.object(Timers, "_look_after_queue", look_after),
        _changed(ticking, "_break_promise", only_remind),
    ):
        yield


_ANY_ACK: Final = evolution.Ack(version=1)


@contextmanager
def nobody_is_told() -> Generator[None]:
    """The team's escalation steps are forgotten."""

    def none(self: Rules, team: str) -> tuple[Escalation, ...]:
        del self, team
        return ()

    with mock.patch.object(Rules, "team_steps", none):
        yield


@contextmanager
def nobody_opts_out() -> Generator[None]:
    """An offer without steps gets the team's all the same."""

    def all_of_them(_: object, team: tuple[Escalation, ...]) -> tuple[Escalation, ...]:
        return team

    with mock.patch.object(decisions, "added", all_of_them):
        yield


def _changed(
    module: object, name: str, change: Callable[[Callable[..., Any]], Callable[..., Any]]
) -> AbstractContextManager[Any]:
    return mock.patch.object(module, name, change(getattr(module, name)))


def _allowed(state: State, moves: Mapping[type[Event], State]) -> AbstractContextManager[Any]:
    table = machine.TRANSITIONS
    assert isinstance(table, dict), "a table that can be changed"
    return mock.patch.dict(table, {state: {**table[state], **moves}})


# --- stores -------------------------------------------------------------------------------------


class UntrustworthyStore:
    """A store that does not keep every `one_in`th unit of work as it was told to."""

    def __init__(
        self,
        store: Store,
        spoil: Callable[[Changes], Changes],
        *,
        one_in: int = 40,
    ) -> None:
        """Wrap `store`; `spoil` is what becomes of the unlucky units of work."""
        self._store = store
        self._spoil = spoil
        self._one_in = one_in
        self._written = 0

    def transaction(self) -> AbstractAsyncContextManager[Transaction]:
        """Open a unit of work."""
        return self._transaction()

    @asynccontextmanager
    async def _transaction(self) -> AsyncGenerator[Transaction]:
        async with self._store.transaction() as tx:
            yield _Spoiling(tx, self._unlucky)  # pyright: ignore[reportReturnType]  # the rest is the store's own

    def _unlucky(self, changes: Changes) -> Changes:
        if not changes.entries:
            return changes
        self._written += 1
        return self._spoil(changes) if self._written % self._one_in == 0 else changes

    def __getattr__(self, name: str) -> Any:
        """Leave everything else to the store itself."""
        return getattr(self._store, name)


class _Spoiling:
    """A unit of work that writes something else than it is given."""

    def __init__(self, tx: Transaction, spoil: Callable[[Changes], Changes]) -> None:
        self._tx = tx
        self._spoil = spoil

    async def append(self, changes: Changes) -> Sequence[int]:
        """Write what is left of `changes`; return as many numbers as there should be."""
        seqs = list(await self._tx.append(self._spoil(changes)))
        return seqs + [0] * (len(changes.entries) - len(seqs))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tx, name)


def forgotten(changes: Changes) -> Changes:
    """Nothing is kept, and nobody is told."""
    del changes
    return Changes()


def without_the_last_entry(changes: Changes) -> Changes:
    """The log loses an entry; the rows know of it."""
    return replace(changes, entries=changes.entries[:-1])


def without_the_rows(changes: Changes) -> Changes:
    """The log goes on, and the rows stay behind."""
    return replace(changes, rows=())
