"""One handoff as the log tells it, held to the protocol entry by entry.

Reads names and data of entries only: it shares no code with the machine that wrote them.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from nodrop.audit.ledger import ENDINGS
from nodrop_proof.simulate.violation import Violation

RELAY: Final = "relay"
TEAM_STEPS: Final = frozenset({"unacknowledged", "blocked", "dead"})
"""When a team that sets no steps of its own has a person told."""
TURN_MS: Final = 60_000
"""How long a taker without a heartbeat has to acknowledge."""
BEATS: Final = {True: 3, False: 6}
"""Missed heartbeats until a delivery lapses, by whether it was acknowledged."""


class Trail:
    """What is known of one handoff."""

    def __init__(self, handoff_id: str) -> None:
        self.id = handoff_id
        self.version = 0
        self.recipient = ""
        self.attempt = 0
        self.live = False
        """The current attempt may act."""
        self.revivable = False
        self.acknowledged = False
        self.queued_until: int | None = None
        """By when the recipient owes its next word on what it has in its queue."""
        self.question: int | None = None
        self.ending: str | None = None
        self.settled = False
        self.decided = False
        self.process: str | None = None
        self.heartbeat_ms: int | None = None
        self.sign_at = 0
        """The last sign of life that the log itself shows of the attempt."""
        self.escalated: set[tuple[str, int]] = set()
        """(episode, step) that fired since the episode began."""
        self.ladder: list[str] = []
        """The kinds of the requester's escalation steps, and of the team's."""
        self._steps: set[str] = set()
        self._redriven = False

    def tell(
        self, name: str, data: Mapping[str, Any], *, version: int, actor: str, at: int
    ) -> None:
        """Take in the next entry.

        Raises:
            Violation: it could not have happened.
        """
        try:
            self._expect(version == self.version + 1, f"follows version {self.version}")
            self._expect((name == "offered") == (version == 1), "is not how a handoff begins")
            self.version = version
            if name in _OF_RECIPIENT:
                self._by_attempt(data, actor)
            ended = f"handoff.{name}.v1" in ENDINGS
            if ended:
                self._end(name, data)
            elif (tell := _TELL.get(name)) is not None:
                tell(self, data, at)
            else:
                self._expect(name in _IN_THE_MARGIN, "is unknown")
        except Violation as broken:
            message = f"{self.id}: {name} (version {version}, by {actor}): {broken}"
            raise Violation(message) from None

    @staticmethod
    def _expect(holds: bool, what: str) -> None:  # noqa: FBT001  # an assertion by another name
        if not holds:
            raise Violation(what)

    def _by_attempt(self, data: Mapping[str, Any], actor: str) -> None:
        """Only the one live attempt of the recipient says what it does."""
        if data["attempt"] == 0:  # a late result that was accepted: the successor is born with it
            self._expect(self._redriven and self.version == 2, "names no attempt")  # noqa: PLR2004  # right after the offer
            return
        self._expect(
            data["attempt"] == self.attempt,
            f"attempt {data['attempt']} acts, the current one is {self.attempt}",
        )
        self._expect(self.live, f"attempt {self.attempt} acts and is not authorised")
        self._expect(actor == self.recipient, f"{self.recipient} is the recipient")

    # --- what entries say ---

    def offered(self, data: Mapping[str, Any], _: int) -> None:
        """A new handoff."""
        self.recipient = data["recipient"]
        self._redriven = data.get("redrive_of") is not None
        self._steps = {step["name"] for step in data.get("steps", ())}
        own: list[dict[str, Any]] | None = data["terms"].get("escalation")
        team: list[dict[str, Any]] = data.get("team_steps", [])
        kinds = {step["when"] for step in own or ()}
        expected = set[str]() if own == [] else set(TEAM_STEPS) - kinds
        added = {step["when"] for step in team}
        self._expect(added == expected, f"the team's steps are for {expected}, not for {added}")
        self.ladder = [str(step["when"]) for step in (*(own or ()), *team)]

    def delivered(self, data: Mapping[str, Any], at: int) -> None:
        """An attempt begins; there is no other."""
        self._open()
        self._expect(not self.live, f"attempt {self.attempt} is alive")
        self._expect(self.question is None, "a question is open")
        self._expect(data["attempt"] == self.attempt + 1, f"follows attempt {self.attempt}")
        self.attempt = data["attempt"]
        self.live, self.revivable, self.acknowledged = True, False, False
        self.process, self.heartbeat_ms = data["process"], data.get("heartbeat_ms")
        self.sign_at = at

    def queued(self, data: Mapping[str, Any], at: int) -> None:
        """The recipient has it in its queue, and says when it will be heard of."""
        self._open()
        self._expect(not self.live and self.question is None, "is not in the inbox")
        self._expect(data["next_update_at"] >= at, "promises the past")
        self.queued_until = data["next_update_at"]
        self._begin("unacknowledged", "silent")

    def queue_lapsed(self, data: Mapping[str, Any], at: int) -> None:
        """The recipient is held to that no longer."""
        self._expect(self.queued_until is not None, "was not queued")
        if data["reason"] == "promise_passed":
            self._expect(at >= (self.queued_until or 0), f"is early: due at {self.queued_until}")
        self.queued_until = None
        self._begin("unacknowledged")

    def accepted(self, _: Mapping[str, Any], at: int) -> None:
        """The attempt is acknowledged."""
        self._expect(not self.acknowledged, "was acknowledged already")
        self.acknowledged, self.queued_until = True, None
        self.sign_at = at
        self._begin("unacknowledged", "silent")

    def updated(self, *_: object) -> None:
        """The attempt gave a report."""
        self._expect(self.acknowledged, "was never acknowledged")
        self._begin("silent")

    def step_recorded(self, data: Mapping[str, Any], _: int) -> None:
        """A step is done, once and for all."""
        self._expect(self.acknowledged, "was never acknowledged")
        self._expect(data["name"] not in self._steps, f"step {data['name']} was recorded before")
        self._steps.add(data["name"])

    def blocked(self, data: Mapping[str, Any], _: int) -> None:
        """A question opens; there is no other."""
        self._expect(self.question is None, "a question is open")
        self._expect(self.acknowledged or data["kind"] == "terms", "was never acknowledged")
        self.question = self.version
        self.live = not data.get("parked", False)
        self._begin("blocked", "silent")

    def parked(self, *_: object) -> None:
        """Whoever asked is gone; the question stays."""
        self._expect(self.live and self.question is not None, "nobody waits for an answer")
        self.live = False

    def answered(self, data: Mapping[str, Any], _: int) -> None:
        """The open question is answered."""
        self._expect(data["question"] == self.question, f"the open question is {self.question}")

    def resumed(self, _: Mapping[str, Any], at: int) -> None:
        """Whoever asked goes on."""
        self._expect(self.live and self.question is not None, "nobody waits for an answer")
        self.question = None
        if not self.acknowledged:
            self.acknowledged, self.queued_until = True, None
            self.sign_at = at
        self._begin("unacknowledged", "silent")

    def returned(self, data: Mapping[str, Any], at: int) -> None:
        """Back in the inbox: the attempt is over, or could be revived."""
        self._open()
        answered = data["reason"] == "answered"
        self._expect(self.live != answered, "the attempt was over")
        self._expect(data["attempt"] == self.attempt, f"the attempt is {self.attempt}")
        if data["reason"] == "lease_lapsed" and self.heartbeat_ms is None:
            lapses_at = self.sign_at + TURN_MS
            self._expect(not self.acknowledged and at >= lapses_at, f"is early: due at {lapses_at}")
        if self.acknowledged or self.queued_until is not None:
            self._begin("unacknowledged")
        self.queued_until = None
        self.live, self.revivable, self.question = False, data.get("revivable", False), None

    def revived(self, data: Mapping[str, Any], at: int) -> None:
        """The lapsed attempt goes on."""
        self._expect(self.revivable, "nothing lapsed that could go on")
        self._expect(data["attempt"] == self.attempt, f"the attempt is {self.attempt}")
        self.live, self.revivable = True, False
        self.sign_at = at
        if self.acknowledged:
            self.queued_until = None
        self._begin(*(("unacknowledged", "silent") if self.acknowledged else ()))

    def reassigned(self, data: Mapping[str, Any], _: int) -> None:
        """Somebody else is asked."""
        self._open()
        acknowledged = self.acknowledged and (self.live or self.question is not None)
        if acknowledged or self.queued_until is not None:
            self._begin("unacknowledged")
        self.queued_until = None
        self.recipient = data["recipient"]
        self.live, self.revivable, self.acknowledged, self.question = False, False, False, None

    def escalation(self, data: Mapping[str, Any], _: int) -> None:
        """A step fires, once in its episode."""
        fired = (data["when"], data["step"])
        self._expect(self.ladder[int(data["step"])] == data["when"], "fires another step")
        self._expect(fired not in self.escalated, f"step {fired} fired before in this episode")
        self.escalated.add(fired)

    def settlement(self, *_: object) -> None:
        """Nothing more is owed."""
        self._expect(self.ending is not None, "has no outcome")
        self._expect(not self.settled, "was settled already")
        self.settled = True

    def decision(self, *_: object) -> None:
        """Somebody decided, once."""
        self._expect(self.ending is not None, "has no outcome")
        self._expect(not self.decided, "was decided already")
        self.decided = True

    def late(self, *_: object) -> None:
        """Something came after the end."""
        self._expect(self.ending in {"failed", "rejected", "expired"}, "is no dead letter")
        self._expect(not self.decided, "was decided already")

    def erasure(self, *_: object) -> None:
        """Its words are gone: nobody needs them any more."""
        self._expect(self.settled, "is not settled")
        self._expect(self.decided or self.ending in {"completed", "cancelled"}, "is undecided")

    def ready(self, *_: object) -> None:
        """The wait before a retry is over."""
        self._expect(not self.live, "was taken already")

    def _end(self, name: str, data: Mapping[str, Any]) -> None:
        self._expect(self.ending is None, f"was {self.ending} already")
        if name == "completed" and data["attempt"]:
            self._expect(self.acknowledged, "was never acknowledged")
        self.ending = name
        self.live, self.revivable, self.question = False, False, None

    def _open(self) -> None:
        self._expect(self.ending is None, f"is {self.ending}")

    def rearmed(self, data: Mapping[str, Any], _: int) -> None:
        """A clock counts anew."""
        if data["clock"] == "promise" and self.queued_until is not None:
            self.queued_until = data["at"]

    def _begin(self, *episodes: str) -> None:
        self.escalated = {fired for fired in self.escalated if fired[0] not in episodes}


_OF_RECIPIENT: Final = frozenset(
    {"accepted", "updated", "blocked", "step_recorded", "checkpointed", "completed"}
)
_IN_THE_MARGIN: Final = frozenset(
    {"checkpointed", "outcome_delivered", "nudged", "dismissed", "noted", "member_moved"}
)
_TELL: Final[Mapping[str, Callable[[Trail, Mapping[str, Any], int], None]]] = {
    "offered": Trail.offered,
    "delivered": Trail.delivered,
    "queued": Trail.queued,
    "queue_lapsed": Trail.queue_lapsed,
    "accepted": Trail.accepted,
    "updated": Trail.updated,
    "step_recorded": Trail.step_recorded,
    "blocked": Trail.blocked,
    "parked": Trail.parked,
    "answered": Trail.answered,
    "agreed": Trail.answered,
    "resumed": Trail.resumed,
    "returned": Trail.returned,
    "reclaimed": Trail.revived,
    "revived": Trail.revived,
    "reassigned": Trail.reassigned,
    "escalated": Trail.escalation,
    "settled": Trail.settlement,
    "redriven": Trail.decision,
    "accepted_late": Trail.decision,
    "discarded": Trail.decision,
    "erased": Trail.erasure,
    "joined": Trail.decision,
    "late_result_kept": Trail.late,
    "late_answer_kept": Trail.late,
    "ready": Trail.ready,
    "rearmed": Trail.rearmed,
}
