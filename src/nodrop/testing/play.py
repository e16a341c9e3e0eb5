"""One handoff on the pure machine, with its own clock: for tests that tell a story.

No engine and no store: what is tested is what the protocol says, and after every move `Play`
checks what must hold of every handoff.
"""

from typing import Any, Final

from nodrop.model import clocks, commands, machine
from nodrop.model.commands import RELAY, Actor, Candidate, Command
from nodrop.model.events import Event
from nodrop.model.handoff import (
    FINAL,
    Backoff,
    ClockName,
    Escalation,
    Handoff,
    Join,
    Leg,
    Priority,
    State,
    Terms,
)
from nodrop.model.limits import DAY, DEFAULT, HOUR, MINUTE, SECOND
from nodrop.model.surroundings import Surroundings
from nodrop.protocol.showing import holder

T0: Final = 1_767_225_600_000
"""2026-01-01T00:00:00Z."""

REQUESTER: Final = Actor(agent="inbox_monitor")
RECIPIENT: Final = Actor(agent="code_agent")
OTHER: Final = Actor(agent="support_agent")
OPERATOR: Final = Actor(agent="me", operator=True)
_TICKS_MAX: Final = 1_000


def terms(**changed: Any) -> Terms:
    """Return the protocol's default terms, with changes."""
    values: dict[str, Any] = {
        "priority": Priority.MEDIUM,
        "accept_within_ms": 15 * MINUTE,
        "update_every_ms": 30 * MINUTE,
        "deadline_at": T0 + DAY,
        "answer_within_ms": 4 * HOUR,
        "outcome_within_ms": DAY,
        "attempts_max": 3,
        "backoff": Backoff(first_ms=2 * SECOND, factor_percent=200, max_ms=5 * MINUTE),
    }
    return Terms(**{**values, **changed})


class Play:
    """A handoff from inbox_monitor to code_agent, and what is done to it."""

    def __init__(
        self,
        *,
        escalation: tuple[Escalation, ...] = (),
        routed: bool = False,
        candidates: tuple[str, ...] = (),
        legs: tuple[Leg, ...] = (),
        timeout_ms: int | None = None,
        join: Join | None = None,
        **changed: Any,
    ) -> None:
        self.now = T0
        self.up_since = 0
        self.candidates = tuple(Candidate(agent=name) for name in candidates)
        self.events: list[Event] = []
        self.handoff: Handoff | None = None
        offer = commands.Offer(
            sender="inbox_monitor",
            origin="inbox_monitor",
            to=Candidate(agent="code_agent", timeout_ms=timeout_ms),
            capability="bug_triage",
            routed=routed,
            terms=terms(escalation=escalation, **changed),
            correlation_id="h1",
            legs=legs,
            join=join,
            body=b"{}",
        )
        self.do(offer, by=REQUESTER)

    @property
    def h(self) -> Handoff:
        """The handoff as it is now."""
        assert self.handoff is not None
        return self.handoff

    def do(self, command: Command, *, by: Actor = RECIPIENT) -> tuple[str, ...]:
        """Carry out a command; return the names of what happened."""
        around = Surroundings(candidates=self.candidates, up_since=self.up_since, limits=DEFAULT)
        before = self.handoff
        facts = machine.decide(before, command, by=by, now=self.now, around=around)
        for fact in facts:
            self.handoff = machine.evolve(
                self.handoff, fact.event, team="default", handoff_id="h1", by=by.agent, at=self.now
            )
            self.events.append(fact.event)
        if self.handoff is not None:
            check(self.handoff, before)
        return tuple(type(fact.event).__name__ for fact in facts)

    def pass_time(self, ms: int) -> tuple[str, ...]:
        """Let time pass, clock by clock; return the names of what the relay did."""
        until = self.now + ms
        done: list[str] = []
        for _ in range(_TICKS_MAX):
            due = clocks.due_at(self.h)
            if due is None or due > until:
                self.now = until
                return tuple(done)
            self.now = max(self.now, due)
            done.extend(self.do(commands.Tick(), by=RELAY))
        raise AssertionError(f"the clocks of {self.h} never come to rest")

    # --- the usual moves ---

    def deliver(self, process: str = "p1", heartbeat_ms: int | None = 10_000) -> int:
        """Lease it to a process; return the attempt."""
        self.do(commands.Deliver(process=process, heartbeat_ms=heartbeat_ms))
        return self.h.attempt

    def accept(self, process: str = "p1", **said: Any) -> int:
        """Lease and acknowledge it; return the attempt."""
        attempt = self.deliver(process)
        self.do(commands.Acknowledge(attempt=attempt, **said))
        return attempt

    def ask(self, attempt: int, *, park: bool = False, asked: str | None = None) -> int:
        """Block on a question; return its version."""
        self.do(commands.Block(attempt=attempt, park=park, asked=asked, body=b"{}"))
        assert self.h.question is not None
        return self.h.question.version

    def running(self, name: ClockName) -> int | None:
        """Return when a clock fires next, in milliseconds from the beginning."""
        timer = clocks.running(self.h, name)
        return None if timer is None else timer.at - T0


def check(h: Handoff, before: Handoff | None) -> None:
    """Assert what holds of every handoff at every moment."""
    settled = h.settled_at is not None
    assert (holder(h) is None) == settled, "every open handoff has exactly one holder"
    assert (clocks.due_at(h) is None) <= settled, "every open handoff has a due time"
    assert not (settled and h.timers), "nothing runs once nothing is owed"
    assert (h.question is not None) == (h.state is State.BLOCKED)
    assert (h.outcome is not None) == (h.state in FINAL)
    assert h.live <= (h.state in {State.DELIVERED, State.ACCEPTED, State.BLOCKED})
    assert not (h.live and h.revivable)
    assert h.revivable <= (h.state is State.OFFERED)
    waits = h.state is State.OFFERED
    if h.queued is not None:
        assert h.state in {State.OFFERED, State.DELIVERED, State.BLOCKED}
        assert clocks.running(h, ClockName.ACCEPT) is None, "it is acknowledged"
    assert not waits or (clocks.running(h, ClockName.PROMISE) is None) == (h.queued is None)
    names = [(t.name, t.step) for t in h.timers]
    assert len(names) == len(set(names)), "each clock runs once"
    assert h.tries <= h.terms.attempts_max
    if before is not None:
        assert h.attempt in {before.attempt, before.attempt + 1}, "attempts go up one by one"
        assert h.version >= before.version
        if before.state in FINAL:
            assert (h.state, h.outcome) == (before.state, before.outcome), "one outcome, for good"
