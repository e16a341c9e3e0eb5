"""What happens to a handoff, by a command or by itself when its moment comes."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from kit.model.facts import SECOND, Handoff, RefusedError, Rules

TURN_MS: Final = 60 * SECOND
"""How long a taker without a heartbeat has to acknowledge."""
GONE_MS: Final = 60 * SECOND
"""How long an agent may be silent that has something in its queue."""
BEATS: Final = {True: 3, False: 6}
"""Missed heartbeats until a lease lapses, by whether the delivery was acknowledged."""


class Moves:
    """The handoffs of a team, and how they move."""

    def __init__(self, now: int, rules: Rules) -> None:
        self.now = now
        self.up_since = now
        self.handoffs: dict[str, Handoff] = {}
        self.rules = rules
        self.keys: dict[tuple[str, str], tuple[object, str]] = {}
        """What each sender's idempotency key was used for: the offer, and the handoff it is now."""
        self.seen: dict[str, int] = {}
        """When each process was last heard of."""
        self.heard: dict[str, int] = {}
        """When each agent was."""

    # --- what happens ---

    def target(
        self, to: str | None, capability: str | None, made: str = "?"
    ) -> tuple[str, str | None, bool]:
        """Return who is asked about the handoff `made`, for what, and whether others may be too."""
        declared = self.rules.capabilities
        if to is None:
            first = self._candidate(made, capability, [])
            if first is None:
                raise RefusedError("no_match")
            return first, capability, True
        if to in declared and capability not in {None, declared[to]}:
            raise RefusedError("no_match")
        return to, declared.get(to, capability), False

    def _candidate(self, handoff: str, capability: str | None, asked: list[str]) -> str | None:
        """Return who is asked after those who were: whom the relay chose, if that is one of them."""
        offers = self.rules.capabilities
        left = sorted(a for a in offers if offers[a] == capability and a not in asked)
        chosen = self.rules.chosen(handoff, len(asked))
        return chosen if chosen in left else next(iter(left), None)

    def store(self, h: Handoff) -> None:
        """Keep a new handoff, in the inbox of its recipient."""
        self.handoffs[h.id] = h
        h.asked = [h.recipient]
        h.held = h.held or h.recipient in self.rules.capabilities
        self.enter_inbox(h)

    def enter_inbox(self, h: Handoff, wait: int = 0) -> None:
        """Put it into the inbox, to be taken after `wait`."""
        h.state = "offered"
        h.retry_at = self.now + wait if wait else None
        h.accept_at = self.now + wait + h.accept_within
        h.turn_at = h.timeout_at = None
        h.queued, h.promise_at = False, None

    def register(self, agent: str, capability: str, timeout: int) -> None:
        """An agent says what it can do, from now on."""
        capabilities = {**self.rules.capabilities, agent: capability}
        timeouts = {**self.rules.timeouts, agent: timeout}
        self.rules = replace(self.rules, capabilities=capabilities, timeouts=timeouts)

    def unfit(self, h: Handoff) -> bool:
        """Whether its first delivery would ask for what its recipient, who came later, has not."""
        declared = self.rules.capabilities.get(h.recipient)
        return self._binds(h) and h.capability not in {None, declared}

    def _binds(self, h: Handoff) -> bool:
        first = h.delivered_to != h.recipient
        return first and not h.held and h.recipient in self.rules.capabilities

    def deliver(self, h: Handoff, process: str, heartbeat: int | None) -> None:
        """Begin the next attempt."""
        if self._binds(h):
            h.held, h.capability = True, self.rules.capabilities[h.recipient]
            h.timeout = self.rules.timeouts.get(h.recipient)
        h.state, h.attempt, h.delivered_to = "delivered", h.attempt + 1, h.recipient
        h.live, h.revivable, h.acknowledged = True, False, False
        h.process, h.heartbeat, h.sign_at = process, heartbeat, self.now
        h.accept_by, h.accept_at, h.retry_at = h.accept_at, None, None
        h.turn_at = self.now + TURN_MS if heartbeat is None else None
        h.promise_at = None  # its lease is what runs now
        self.count_active_time(h, h.timeout)

    def go_on(self, h: Handoff) -> None:
        """A lapsed attempt that acts goes on as if it had not lapsed."""
        if h.revivable:
            self.revive(h)

    def revive(self, h: Handoff) -> None:
        """Let the lapsed attempt go on."""
        h.state = "accepted" if h.acknowledged else "delivered"
        h.live, h.revivable = True, False
        h.accept_by, h.accept_at, h.retry_at = h.accept_at, None, None
        if h.heartbeat is None and not h.acknowledged:
            h.turn_at = self.now + TURN_MS
        self.seen[h.process or ""] = self.now
        h.queued, h.promise_at = h.queued and not h.acknowledged, None
        self.count_active_time(h, h.timeout_left)

    def queue(self, h: Handoff, next_update: int | None) -> None:
        """Let the recipient's promise run in place of the time that it has to accept."""
        h.queued, h.accept_at = True, None
        h.promise_length = min(next_update or h.update_every, h.update_every)
        h.promise_at = self.now + h.promise_length

    def unqueue(self, h: Handoff) -> None:
        """Hold the recipient to its word no longer: somebody else is asked, or it is again."""
        h.queued, h.promise_at, h.accept_at = False, None, self.now + h.accept_within
        if h.routed:
            self.next_candidate(h, "unacknowledged")

    def count_active_time(self, h: Handoff, left: int | None) -> None:
        """Let the attempt's active time run, if it is bounded."""
        h.timeout_at = None if left is None else self.now + left
        h.timeout_length, h.timeout_left = left or 0, None

    def pause(self, h: Handoff) -> None:
        """Let the attempt's active time stand still."""
        if h.timeout_at is not None:
            h.timeout_left = max(h.timeout_at - self.now, 1)
        h.timeout_at = None

    @staticmethod
    def let_go(h: Handoff) -> None:
        """End the hold of whatever process has it."""
        h.live, h.revivable, h.process, h.heartbeat = False, False, None, None

    def give_back(self, h: Handoff, *, wait: int = 0, answered: bool = False) -> None:
        """Put it back into the inbox; a question that was not answered is withdrawn."""
        h.withdrawn = None if answered else h.question
        h.question = None
        self.let_go(h)
        self.enter_inbox(h, wait)

    def bind(self, h: Handoff, to: str) -> None:
        """Ask somebody else."""
        h.withdrawn, h.question = h.question, None
        self.let_go(h)
        h.recipient, h.acknowledged, h.tries, h.releases = to, False, 0, 0
        h.timeout = self.rules.timeouts.get(to)
        h.held = to in self.rules.capabilities
        h.asked += [] if to in h.asked else [to]
        self.enter_inbox(h)

    def next_candidate(self, h: Handoff, reason: str) -> None:
        """Ask the next candidate, each once; a named recipient has none after it."""
        following = self._candidate(h.id, h.capability, h.asked) if h.routed else None
        if following is not None:
            self.bind(h, following)
            return
        self.end(h, "rejected", "no_candidate" if h.routed else reason)

    def end(self, h: Handoff, state: str, code: str | None = None) -> None:
        """Record the outcome."""
        h.state, h.code = state, code
        h.withdrawn, h.question = h.question, None
        self.let_go(h)
        h.accept_at = h.retry_at = h.turn_at = h.timeout_at = h.promise_at = None
        h.queued = False

    def exhaust(self, h: Handoff) -> None:
        """Use up the last try."""
        h.tries += 1
        self.end(h, "failed", "attempts_exhausted")

    def follow(self, h: Handoff, made: Sequence[str]) -> None:
        """Open the next leg, which settles this one. A completion always stands."""
        if not h.legs:
            return
        leg, *later = h.legs
        refused = None
        try:
            to, capability, routed = self.target(leg.to, leg.capability, _id(made))
        except RefusedError as error:
            refused = error.code
            to, capability, routed = leg.to or h.recipient, leg.capability, False
        opened = Handoff(
            id=_id(made),
            sender=h.recipient,
            origin=h.origin,
            recipient=to,
            capability=capability,
            routed=routed,
            legs=tuple(later),
            quiet=h.quiet,
            deadline_at=max(h.deadline_at, self.now + 1),
            accept_within=h.accept_within,
            attempts_max=h.attempts_max,
            stored_at=self.now,
            timeout=None if refused else self.rules.timeouts.get(to),
        )
        self.store(opened)
        if refused:
            self.end(opened, "rejected", refused)
        h.settled, h.onwards = True, opened.id

    def succeed(
        self,
        dead: Handoff,
        made: Sequence[str],
        target: tuple[str, str | None, bool] | None = None,
    ) -> Handoff:
        """Return the handoff that carries on a dead one, with a fresh deadline."""
        as_before = target is None
        to, capability, routed = target or (dead.recipient, dead.capability, dead.routed)
        successor = Handoff(
            id=_id(made),
            sender=dead.sender,
            origin=dead.origin,
            recipient=to,
            capability=capability,
            routed=routed,
            key=dead.key,
            legs=dead.legs,
            quiet=dead.quiet,
            deadline_at=self.now + max(dead.deadline_at - dead.stored_at, 1),
            accept_within=dead.accept_within,
            attempts_max=dead.attempts_max,
            stored_at=self.now,
            answers=dead.answers,
            steps=set(dead.steps),
            timeout=dead.timeout if as_before else self.rules.timeouts.get(to),
        )
        self.store(successor)
        successor.held = dead.held if as_before else successor.held
        dead.onwards = successor.id
        if dead.key is not None:
            sent, _ = self.keys[dead.sender, dead.key]
            self.keys[dead.sender, dead.key] = (sent, successor.id)
        return successor

    # --- time ---

    def advance(self, until: int) -> None:
        """Let time pass. Handoffs do not wait for each other, so each goes its way by itself."""
        start = self.now
        for h in self.handoffs.values():
            while (moment := self._next_moment(h)) is not None and moment[0] <= until:
                self.now = max(moment[0], start)
                moment[1](h)
        self.now = until

    def restart(self, at: int) -> None:
        """The relay comes back at `at`, and its downtime is nobody's silence."""
        self.now = self.up_since = at
        for h in self.handoffs.values():
            if h.accept_at is not None and h.accept_at <= at:
                h.accept_at = at + h.accept_within
            if h.timeout_at is not None and h.timeout_at <= at:
                h.timeout_at = at + h.timeout_length
            if h.turn_at is not None:
                h.turn_at = max(h.turn_at, at + TURN_MS)
            if h.promise_at is not None and h.promise_at <= at:
                h.promise_at = at + h.promise_length

    def _next_moment(self, h: Handoff) -> tuple[int, Callable[[Handoff], None]] | None:
        if h.ended:
            return None
        moments: list[tuple[int | None, Callable[[Handoff], None]]] = [
            (self._lease_at(h), self._lapse),
            (h.deadline_at, lambda h: self.end(h, "expired")),
            (h.turn_at, self._lapse),
            (h.timeout_at, lambda h: self._lapse(h, revivable=False)),
            (h.accept_at, self._unacknowledged),
            (h.retry_at, self._retry),
            (h.promise_at, self.unqueue),
            (self._gone_at(h), self.unqueue),
        ]
        return min(((at, do) for at, do in moments if at is not None), key=lambda m: m[0])

    def _gone_at(self, h: Handoff) -> int | None:
        """Return when the recipient of something queued has been silent for too long."""
        if not h.queued or h.state != "offered":
            return None
        return max(self.heard.get(h.recipient, 0), self.up_since) + GONE_MS

    def _lease_at(self, h: Handoff) -> int | None:
        if not h.live or h.heartbeat is None:
            return None
        seen = max(self.seen.get(h.process or "", 0), h.sign_at, self.up_since)
        return seen + BEATS[h.acknowledged] * h.heartbeat

    def _lapse(self, h: Handoff, *, revivable: bool = True) -> None:
        if h.state == "blocked":
            self.let_go(h)
            return
        if h.tries + 1 >= h.attempts_max:
            self.exhaust(h)
            return
        h.tries += 1
        process, heartbeat = h.process, h.heartbeat
        self.pause(h)
        self.give_back(h, wait=self.rules.backoff(h.tries))
        if revivable:
            h.revivable, h.process, h.heartbeat = True, process, heartbeat

    def _unacknowledged(self, h: Handoff) -> None:
        h.accept_at = None
        if h.routed:
            self.next_candidate(h, "unacknowledged")

    @staticmethod
    def _retry(h: Handoff) -> None:
        h.retry_at = None


def _id(made: Sequence[str]) -> str:
    """Return the id of what is made now; "?" where the relay made nothing."""
    return made[0] if made else "?"
