"""A team as the protocol has it: who may ask for what, and what is answered."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from kit.model.facts import DEAD, Handoff, Question, RefusedError, Rules, Shown
from kit.model.moves import Moves


class Model(Moves):
    """A relay in a few plain rules."""

    def __init__(self, now: int, rules: Rules) -> None:
        super().__init__(now, rules)
        self._commands: dict[tuple[str, str], tuple[str, Shown]] = {}
        self._said: dict[tuple[str, str], tuple[str, dict[str, Any]]] = {}
        """The operation and its fields, of each command about a handoff: a repeat has the same."""
        self._offers: set[tuple[str, str]] = set()
        """Which of the commands were offers."""
        self._numbers = 0

    # --- asking ---

    def offer(
        self, by: str, offer: Mapping[str, Any], *, command_id: str, made: str
    ) -> tuple[str, Shown, bool]:
        """Answer an offer: which handoff it made or is, how that is, and whether it was before.

        `made` is the id of the handoff, should there be a new one.
        """
        self.heard[by] = self.now
        if (before := self._commands.get((by, command_id))) is not None:
            if (by, command_id) not in self._offers:
                raise RefusedError("idempotency_conflict")
            return *before, True
        key = offer.get("key")
        if key is not None and (by, key) in self.keys:
            sent, handoff_id = self.keys[by, key]
            if sent != offer:
                raise RefusedError("idempotency_conflict")
            return handoff_id, self.handoffs[handoff_id].shown(), True
        to, capability, routed = self.target(offer.get("to"), offer.get("capability"), made)
        h = Handoff(
            id=made,
            sender=by,
            origin=by,
            recipient=to,
            capability=capability,
            routed=routed,
            key=key,
            legs=tuple(offer.get("legs", ())),
            quiet=offer["quiet"],
            deadline_at=self.now + offer["deadline"],
            accept_within=offer["accept_within"],
            attempts_max=offer["attempts_max"],
            stored_at=self.now,
            timeout=self.rules.timeouts.get(to),
        )
        self.store(h)
        if key is not None:
            self.keys[by, key] = (dict(offer), made)
        self._commands[by, command_id] = (made, h.shown())
        self._offers.add((by, command_id))
        return made, h.shown(), False

    def command(
        self,
        by: str,
        operation: str,
        about: str,
        *,
        command_id: str,
        made: Sequence[str] = (),
        **said: Any,
    ) -> tuple[Shown, bool]:
        """Answer a command about a handoff: how that is then, and whether it was so answered before.

        `made` are the ids of the successor and of the next leg, as far as there are any.
        """
        self.heard[by] = self.now
        h = self.handoffs[about]
        if by not in self._parties(h) and by not in self.rules.operators:
            raise RefusedError("not_found")
        if operation == "cancel" and (by == h.origin or by in self.rules.operators):
            h = self._at_work(h)
            about = h.id
        if (before := self._commands.get((by, command_id))) is not None:
            if before[0] != about or self._said.get((by, command_id)) != (operation, said):
                raise RefusedError("idempotency_conflict")
            return before[1], True
        rule: Callable[..., bool | None] = getattr(self, f"_{operation}")
        changed = rule(h, by, **said, **({"made": made} if operation in _MAKING else {}))
        shown = h.shown()
        if changed is not False:
            self._commands[by, command_id] = (about, shown)
            self._said[by, command_id] = (operation, said)
        self.advance(self.now)  # what is due at once follows the answer
        return shown, False

    def used_for(self, by: str, command_id: str) -> str | None:
        """Return the handoff that a command of this id was carried out about."""
        before = self._commands.get((by, command_id))
        return before[0] if before else None

    def takeable(self, agent: str) -> set[str]:
        """Return what `agent` may take."""
        return {
            h.id
            for h in self.handoffs.values()
            if h.state == "offered" and h.recipient == agent and h.retry_at is None
        }

    def reject_unfit(self, handoff_id: str) -> None:
        """End what its recipient has not declared, instead of its first delivery."""
        self.end(self.handoffs[handoff_id], "rejected", "no_match")

    def take(self, by: str, taken: Iterable[str], process: str, heartbeat: int | None) -> None:
        """Deliver to a process what it took."""
        self.heard[by] = self.now
        for handoff_id in taken:
            self.deliver(self.handoffs[handoff_id], f"{by}:{process}", heartbeat)

    def heartbeat(self, by: str, process: str) -> set[tuple[str, int]]:
        """Keep what a process holds; return it."""
        name = f"{by}:{process}"
        self.heard[by] = self.now
        self.seen[name] = self.now
        held = [h for h in self.handoffs.values() if h.process == name and h.recipient == by]
        for h in held:
            if h.revivable:
                self.revive(h)
        return {(h.id, h.attempt) for h in held if h.live}

    def _at_work(self, h: Handoff) -> Handoff:
        """Return what a chain has come to: whoever withdraws a leg means the work."""
        while h.onwards is not None:
            h = self.handoffs[h.onwards]
        return h

    def _parties(self, h: Handoff) -> set[str]:
        asked = {q.asked for q in (h.question, h.withdrawn) if q is not None}
        return {h.sender, h.origin, *h.asked, *asked}

    # --- who may act ---

    def _fence(self, h: Handoff, by: str, attempt: int | None) -> None:
        """Only the current attempt of the recipient acts, if it lives or merely lapsed."""
        if by != h.recipient:
            raise RefusedError("stale_attempt" if by in h.asked else "forbidden")
        if h.ended:
            raise RefusedError("already_finished")
        if attempt is None:
            raise RefusedError("attempt_required")
        if attempt != h.attempt or not (h.live or h.revivable):
            raise RefusedError("stale_attempt")

    def _fenced(self, h: Handoff, by: str, attempt: int | None) -> None:
        """The same, for what only an attempt that was acknowledged says."""
        self._fence(h, by, attempt)
        if not h.acknowledged:
            raise RefusedError("wrong_state")

    @staticmethod
    def _directly(h: Handoff, by: str, attempt: int | None) -> bool:
        return attempt is None and h.state == "offered" and by == h.recipient

    def _require(self, by: str, *agents: str) -> None:
        if by not in agents and by not in self.rules.operators:
            raise RefusedError("forbidden")

    # --- the recipient ---

    def _ack(
        self,
        h: Handoff,
        by: str,
        attempt: int | None,
        queued: bool = False,  # noqa: FBT001, FBT002  # by name
        next_update: int | None = None,
    ) -> bool | None:
        if queued:
            return self._queue(h, by, attempt, next_update)
        if self._directly(h, by, attempt):
            if self.unfit(h):
                self.reject_unfit(h.id)
                return None
            self.deliver(h, by, None)
        else:
            self._fence(h, by, attempt)
            if h.state == "blocked" and not h.acknowledged:
                raise RefusedError("wrong_state")
            self.go_on(h)
        if not h.acknowledged:
            h.state, h.acknowledged, h.turn_at, h.sign_at = "accepted", True, None, self.now
            h.queued = False
        return None

    def _queue(self, h: Handoff, by: str, attempt: int | None, next_update: int | None) -> bool:
        """Keep that it waits in the recipient's queue; whether that is news."""
        if by != h.recipient:
            raise RefusedError("stale_attempt" if by in h.asked else "forbidden")
        if h.ended:
            raise RefusedError("already_finished")
        if attempt is not None:
            raise RefusedError("invalid_request")
        if h.state != "offered":
            return False
        if h.retry_at is not None:
            raise RefusedError("wrong_state")
        mine = [o for o in self.handoffs.values() if o.queued and o.recipient == by]
        waiting = [o for o in mine if o.state == "offered"]
        if not h.queued and len(waiting) >= self.rules.queued_acks_max:
            raise RefusedError("limit_reached")
        self.queue(h, next_update)
        return True

    def _update(self, h: Handoff, by: str, attempt: int | None) -> None:
        self._fenced(h, by, attempt)
        self.go_on(h)

    _checkpoint = _update

    def _step(self, h: Handoff, by: str, attempt: int | None, name: str) -> bool:
        self._fence(h, by, attempt)
        if name in h.steps:
            return False
        self._fenced(h, by, attempt)
        if len(h.steps) >= self.rules.steps_max:
            raise RefusedError("limit_reached")
        self.go_on(h)
        h.steps.add(name)
        return True

    def _block(self, h: Handoff, by: str, attempt: int | None, to: str | None, park: bool) -> None:  # noqa: FBT001  # by name
        self._fence(h, by, attempt)
        if h.question is not None:
            raise RefusedError("already_blocked")
        self._fenced(h, by, attempt)
        self._ask(h, "question", to or h.sender)
        if park:
            self.let_go(h)

    def _counter(self, h: Handoff, by: str, attempt: int | None, deadline: int) -> None:
        direct = self._directly(h, by, attempt)
        if direct and self.unfit(h):
            self.reject_unfit(h.id)
            return
        if not direct:
            self._fence(h, by, attempt)
            if h.question is not None:
                raise RefusedError("already_blocked")
        if h.answers >= self.rules.answers_max:
            raise RefusedError("limit_reached")
        if direct:
            self.deliver(h, by, None)
        self._ask(h, "terms", h.origin, deadline_at=self.now + deadline)
        if not h.acknowledged and not h.queued:  # terms under discussion are no acceptance
            h.accept_at = max(h.accept_by or self.now, self.now)

    def _ask(self, h: Handoff, kind: str, asked: str, deadline_at: int | None = None) -> None:
        if h.answers >= self.rules.answers_max:
            raise RefusedError("limit_reached")
        self.go_on(h)
        self._numbers += 1
        h.question = Question(number=self._numbers, kind=kind, asked=asked, deadline_at=deadline_at)
        h.state, h.turn_at = "blocked", None
        self.pause(h)

    def _reject(self, h: Handoff, by: str, attempt: int | None) -> None:
        if not self._directly(h, by, attempt):
            self._fence(h, by, attempt)
            if h.state == "blocked":
                raise RefusedError("wrong_state")
        else:
            h.attempt += 1
            h.delivered_to = by
        self.next_candidate(h, "rejected")

    def _complete(self, h: Handoff, by: str, attempt: int | None, made: Sequence[str]) -> None:
        exhausted = h.state == "failed" and h.code == "attempts_exhausted"
        undecided = h.decision is None and not h.late_result
        mine = by == h.recipient == h.delivered_to and attempt == h.attempt
        if (h.state == "expired" or exhausted) and undecided and mine:
            h.late_result = True
            return
        self._fenced(h, by, attempt)
        self.end(h, "completed")
        self.follow(h, made)

    def _fail(
        self,
        h: Handoff,
        by: str,
        attempt: int | None,
        retryable: bool,  # noqa: FBT001  # by name
        code: str,
    ) -> None:
        self._fenced(h, by, attempt)
        if not retryable:
            self.end(h, "failed", code)
        elif h.tries + 1 >= h.attempts_max:
            self.exhaust(h)
        else:
            h.tries += 1
            self.give_back(h, wait=self.rules.backoff(h.tries))

    def _release(self, h: Handoff, by: str, attempt: int | None) -> None:
        self._fence(h, by, attempt)
        if h.state == "blocked":
            self.let_go(h)
            return
        tried = h.releases >= self.rules.releases_free
        if tried and h.tries + 1 >= h.attempts_max:
            self.exhaust(h)
            return
        h.releases += 1
        h.tries += tried
        self.give_back(h)

    # --- those who are asked ---

    def _answer(self, h: Handoff, by: str, number: int | None) -> None:
        late = h.withdrawn
        if late and late.number == number and late.kind == "question" and h.state in DEAD:
            self._require(by, late.asked, h.origin)
            if h.decision is not None:
                raise RefusedError("already_decided")
            h.withdrawn = None
            h.answers += 1
            return
        question = self._open_question(h, number, "question")
        self._require(by, question.asked, h.origin)
        h.answers += 1
        self._answered(h)

    def _agree(self, h: Handoff, by: str, number: int | None) -> None:
        question = self._open_question(h, number, "terms")
        self._require(by, h.origin)
        h.deadline_at = question.deadline_at or h.deadline_at
        self._answered(h)

    def _decline(self, h: Handoff, by: str, number: int | None) -> None:
        self._open_question(h, number, "terms")
        self._require(by, h.origin)
        self.next_candidate(h, "declined")

    @staticmethod
    def _open_question(h: Handoff, number: int | None, kind: str) -> Question:
        if h.question is None or h.question.number != number:
            raise RefusedError("stale_question")
        if h.question.kind != kind:
            raise RefusedError("invalid_request")
        return h.question

    def _answered(self, h: Handoff) -> None:
        """Wake the attempt that asked, if it still lives."""
        if not h.live:
            self.give_back(h, answered=True)
            return
        h.question, h.state, h.accept_at = None, "accepted", None
        if not h.acknowledged:
            h.acknowledged, h.sign_at, h.queued = True, self.now, False
        self.count_active_time(h, h.timeout_left)

    # --- the requester ---

    def _cancel(self, h: Handoff, by: str) -> None:
        self._require(by, h.origin)
        if h.ended:
            raise RefusedError("already_finished")
        self.end(h, "cancelled")
        h.settled = by == h.origin

    def _reassign(self, h: Handoff, by: str, to: str) -> None:
        if h.ended:
            self._require(by, h.origin)
            raise RefusedError("already_finished")
        to, capability, routed = self.target(to, h.capability)
        self._require(by, h.origin)
        h.capability, h.routed = capability, routed
        self.bind(h, to)

    def _settle(self, h: Handoff, by: str) -> bool:
        self._require(by, h.origin)
        if not h.ended:
            raise RefusedError("not_finished")
        changed, h.settled = not h.settled, True
        return changed

    def _redrive(self, h: Handoff, by: str, to: str | None, made: Sequence[str]) -> None:
        self._decides(h, by)
        if h.state not in DEAD:
            raise RefusedError("wrong_state")
        nobody = to is None and h.code == "no_match"
        if nobody and h.recipient != h.sender:
            to = h.recipient
        target = self.target(to, h.capability, *made[:1]) if to or nobody else None
        self.succeed(h, made[:1], target)
        h.decision, h.settled = "redriven", True

    def _accept(self, h: Handoff, by: str, made: Sequence[str]) -> None:
        self._decides(h, by)
        if not h.late_result:
            raise RefusedError("wrong_state")
        successor = self.succeed(h, made[:1])
        self.end(successor, "completed")
        self.follow(successor, made[1:])
        h.decision, h.settled = "accepted_late", True

    def _discard(self, h: Handoff, by: str) -> None:
        self._decides(h, by)
        h.decision, h.settled = "discarded", True

    def _decides(self, h: Handoff, by: str) -> None:
        self._require(by, h.origin)
        if not h.ended:
            raise RefusedError("not_finished")
        if h.decision is not None:
            raise RefusedError("already_decided")

    def _note(self, h: Handoff, by: str) -> None:
        """Any party may."""


_MAKING: Final = frozenset({"complete", "redrive", "accept"})
"""What may make another handoff."""
