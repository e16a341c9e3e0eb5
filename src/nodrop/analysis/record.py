"""The record: the columns that every detector reads, whatever log they came from.

A source calls one method per thing that happened, in the order of the log. Names are numbered, and
numbers are kept in flat arrays, so that a million events fit in a few hundred megabytes.
"""

from array import array
from collections import defaultdict
from typing import Final, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

Numbers = NDArray[np.int64]

NONE: Final = -1
"""Where there is no time, no agent, no digest."""

OFFERED, DELIVERED, ACCEPTED, ASKED, RETURNED, ENDED = range(6)
"""How far a handoff came."""
COMPLETED, FAILED, REJECTED, EXPIRED, CANCELLED = range(5)
"""How a handoff ended."""
OUTCOMES: Final = ("completed", "failed", "rejected", "expired", "cancelled")


class Names:
    """Numbers for names."""

    def __init__(self) -> None:
        self.of: list[str] = []
        self._numbers: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self.of)

    def __getitem__(self, number: int) -> str:
        return self.of[number]

    def number(self, name: str) -> int:
        """Return the number of a name; a new name gets the next one."""
        found = self._numbers.get(name)
        if found is None:
            found = self._numbers[name] = len(self.of)
            self.of.append(name)
        return found

    def known(self, name: str) -> int | None:
        """Return the number of a name, if it has one."""
        return self._numbers.get(name)


class Columns:
    """Columns of whole numbers that grow together."""

    def __init__(self, *names: str) -> None:
        self._columns = {name: array("q") for name in names}
        self._appends = [column.append for column in self._columns.values()]

    def __len__(self) -> int:
        return len(next(iter(self._columns.values())))

    def __getitem__(self, name: str) -> "array[int]":
        return self._columns[name]

    def add(self, *values: int) -> None:
        """Append one row, in the order of the columns."""
        for append, value in zip(self._appends, values, strict=True):
            append(value)

    def numbers(self, name: str) -> Numbers:
        """Return a copy of one column."""
        return np.array(self._columns[name], dtype=np.int64)

    def frame(self, *names: str) -> pl.DataFrame:
        """Return a copy of some columns, or of all, as a data frame."""
        return pl.DataFrame({name: self.numbers(name) for name in names or self._columns})


class Said(NamedTuple):
    """Words of an agent in a channel."""

    seq: int
    at: int
    author: int
    text: str


class Quote(NamedTuple):
    """A number that an agent decided on, such as a price, and what it cost the agent."""

    seq: int
    at: int
    agent: int
    value: float
    cost: float | None


class Market(NamedTuple):
    """Where agents decide on the same number: for one capability, towards one recipient."""

    capability: str
    recipient: str
    parameter: str


class Declared(NamedTuple):
    """The legs that were declared when a chain began: who, or for which capability."""

    seq: int
    legs: tuple[tuple[str | None, str | None], ...]


class Record:
    """A log as columns. Filled by a source, then read by detectors and never changed."""

    def __init__(self) -> None:
        self.agents = Names()
        self.capabilities = Names()
        self.chains = Names()
        self.ids = Names()
        self.events = 0
        self.first_at: int | None = None
        self.last_at = 0
        self.has_deadlines = False
        self.baseline_until: int | None = None
        """What is usual is what was up to then; None: the first part of each channel and market."""
        self.hops = Columns(
            *("seq", "at", "chain", "handoff", "sender", "recipient", "capability", "digest"),
            *("again", "declared"),
        )
        """Each time that work went from one agent to another: offers and reassignments."""
        self.deliveries = Columns("seq", "at", "handoff", "agent", "capability", "attempt")
        self.escalations = Columns("seq", "at", "handoff", "capability", "agent")
        self.closings = Columns("seq", "at", "chain", "agent")
        """Each time that a chain was called finished."""
        self.questions = Columns("seq", "at", "handoff", "kind")
        self.handoffs = Columns(
            *("chain", "sender", "recipient", "capability", "offered_seq", "offered_at"),
            *("deadline", "accepted_at", "ended_at", "outcome", "settled_at", "decided"),
            *("last_seq", "last_at", "stage", "digest", "result", "legs", "again", "outcome_ms"),
        )
        self.declared: dict[int, Declared] = {}
        """By the handoff that began the chain."""
        self.said: defaultdict[str, list[Said]] = defaultdict(list)
        self.quotes: defaultdict[Market, list[Quote]] = defaultdict(list)
        self.claims: dict[tuple[int, int], float] = {}
        """The success rate that an agent declares for a capability, by their numbers."""

    # --- what happened ---

    def event(self, at: int) -> None:
        """Count one event of the log."""
        self.events += 1
        if self.first_at is None or at < self.first_at:
            self.first_at = at
        self.last_at = max(self.last_at, at)

    def offer(
        self,
        handoff: str,
        *,
        seq: int,
        at: int,
        chain: str,
        sender: str,
        recipient: str,
        capability: str | None = None,
        digest: int = NONE,
        deadline: int = NONE,
        legs: tuple[tuple[str | None, str | None], ...] = (),
        again: bool = False,
        declared: bool = False,
        outcome_ms: int = NONE,
    ) -> None:
        """Take in a new handoff.

        Args:
            handoff: its id.
            seq: the entry.
            at: when.
            chain: what it belongs to.
            sender: who hands it off.
            recipient: who is asked.
            capability: for what.
            digest: a number that equal payloads share.
            deadline: when it must be finished.
            legs: what follows, as (agent, capability).
            again: it takes the place of one that failed.
            declared: it is a leg that was declared before.
            outcome_ms: how long its outcome may wait for the requester.
        """
        number = self.ids.number(handoff)
        if number < len(self.handoffs):
            return  # the same offer twice: the first counts
        chains, agents = self.chains.number(chain), self.agents
        whom, sent = agents.number(recipient), agents.number(sender)
        what = self.capabilities.number(capability or "")
        self.has_deadlines |= deadline != NONE
        self.handoffs.add(
            *(chains, sent, whom, what, seq, at, deadline, NONE, NONE, NONE, NONE, 0),
            *(seq, at, OFFERED, digest, NONE, len(legs), int(again), outcome_ms),
        )
        self.hops.add(seq, at, chains, number, sent, whom, what, digest, int(again), int(declared))
        if legs and not declared and not again:
            self.declared[number] = Declared(seq, legs)

    def reassign(
        self, handoff: str, *, seq: int, at: int, recipient: str, capability: str | None = None
    ) -> None:
        """Take in that another agent is asked."""
        if (number := self.ids.known(handoff)) is None:
            return
        h = self.handoffs
        before, whom = h["recipient"][number], self.agents.number(recipient)
        what = (
            h["capability"][number] if capability is None else self.capabilities.number(capability)
        )
        self.hops.add(
            *(seq, at, h["chain"][number], number, before, whom, what, h["digest"][number], 0, 0)
        )
        h["recipient"][number], h["capability"][number] = whom, what
        self._touch(number, seq, at, OFFERED)

    def deliver(self, handoff: str, *, seq: int, at: int, attempt: int) -> None:
        """Take in that an attempt began."""
        if (number := self.ids.known(handoff)) is None:
            return
        h = self.handoffs
        self.deliveries.add(
            seq, at, number, h["recipient"][number], h["capability"][number], attempt
        )
        self._touch(number, seq, at, DELIVERED)

    def accept(self, handoff: str, *, seq: int, at: int) -> None:
        """Take in that the recipient has it."""
        if (number := self.ids.known(handoff)) is None:
            return
        if self.handoffs["accepted_at"][number] == NONE:
            self.handoffs["accepted_at"][number] = at
        self._touch(number, seq, at, ACCEPTED)

    def ask(self, handoff: str, *, seq: int, at: int, counter: bool) -> None:
        """Take in that the recipient asked something, or countered the terms."""
        if (number := self.ids.known(handoff)) is None:
            return
        self.questions.add(seq, at, number, int(counter))
        self._touch(number, seq, at, ASKED)

    def give_back(self, handoff: str, *, seq: int, at: int) -> None:
        """Take in that it is back in the inbox."""
        if (number := self.ids.known(handoff)) is not None:
            self._touch(number, seq, at, RETURNED)

    def end(self, handoff: str, *, seq: int, at: int, outcome: int, result: int = NONE) -> None:
        """Take in an outcome."""
        if (number := self.ids.known(handoff)) is None:
            return
        h = self.handoffs
        h["ended_at"][number], h["outcome"][number], h["result"][number] = at, outcome, result
        # How far it came is what an expired one is asked about.
        self._touch(number, seq, at, None if outcome == EXPIRED else ENDED)

    def close(self, chain: str, *, seq: int, at: int, agent: str) -> None:
        """Take in that an agent called a chain finished: some systems let several do so."""
        self.closings.add(seq, at, self.chains.number(chain), self.agents.number(agent))

    def settle(self, handoff: str, *, seq: int, at: int) -> None:
        """Take in that the requester has the outcome."""
        if (number := self.ids.known(handoff)) is not None:
            self.handoffs["settled_at"][number] = at
            self._touch(number, seq, at)

    def decide(self, handoff: str, *, seq: int, at: int) -> None:
        """Take in that a dead letter was decided about."""
        if (number := self.ids.known(handoff)) is not None:
            self.handoffs["decided"][number] = 1
            self._touch(number, seq, at)

    def escalate(self, handoff: str, *, seq: int, at: int) -> None:
        """Take in that an escalation step was taken. It is no progress."""
        if (number := self.ids.known(handoff)) is None:
            return
        h = self.handoffs
        self.escalations.add(seq, at, number, h["capability"][number], h["recipient"][number])

    def touch(self, handoff: str, *, seq: int, at: int) -> None:
        """Take in any other sign of progress."""
        if (number := self.ids.known(handoff)) is not None:
            self._touch(number, seq, at)

    def say(self, channel: str, *, seq: int, at: int, author: str, text: str) -> None:
        """Take in words."""
        self.said[channel].append(Said(seq, at, self.agents.number(author), text))

    def quote(
        self, market: Market, *, seq: int, at: int, agent: str, value: float, cost: float | None
    ) -> None:
        """Take in a number that an agent decided on."""
        self.quotes[market].append(Quote(seq, at, self.agents.number(agent), value, cost))

    def claim(self, agent: str, capability: str, rate: float) -> None:
        """Take in what an agent declares; a later declaration takes the place of an earlier."""
        self.claims[self.agents.number(agent), self.capabilities.number(capability)] = rate

    def _touch(self, number: int, seq: int, at: int, stage: int | None = None) -> None:
        h = self.handoffs
        h["last_seq"][number], h["last_at"][number] = seq, at
        if stage is not None:
            h["stage"][number] = stage
