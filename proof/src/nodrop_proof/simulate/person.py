"""The person the relay works for: looks in now and then, and decides what nobody else did."""

from nodrop.model.errors import (
    AlreadyDecidedError,
    CallerError,
    NoMatchError,
    NotFoundError,
    WrongStateError,
)
from nodrop.model.limits import HOUR, MINUTE
from nodrop.protocol import requests
from nodrop.protocol.views import HandoffView
from nodrop_proof.simulate.audit import Audit
from nodrop_proof.simulate.line import Line
from nodrop_proof.simulate.trail import RELAY
from nodrop_proof.simulate.violation import Violation
from nodrop_proof.simulate.world import World


class Person:
    """`me`, an operator."""

    def __init__(self, world: World, audit: Audit) -> None:
        self._world = world
        self._audit = audit
        self._line = Line(world, "me", operator=True)
        self._chance = world.chance("me")
        self._discarded: list[str] = []

    def start(self) -> None:
        """Begin the day."""
        pauses = (10 * MINUTE, 2 * HOUR)
        self._world.spawn(self._world.every(lambda: self._chance.uniform(*pauses), self._look_in))

    async def _look_in(self) -> None:
        letters = (await self._line(requests.ListDeadLetters(limit=20), "dead_letters")).handoffs
        for letter in letters:
            if self._chance.strikes(0.5):
                await self._decide(letter)
        await self._tidy_up()
        blocked = (
            await self._line(requests.ListHandoffs(state="blocked", limit=20), "list_handoffs")
        ).handoffs
        for view in blocked:
            if self._chance.strikes(0.3):
                await self._answer(view)

    async def _decide(self, letter: HandoffView) -> None:
        group = letter.to == RELAY  # which is not tried again as a whole
        ways = {"redrive": 0 if group else 40, "discard": 40, "note": 20}
        if letter.late_result:
            ways["accept"] = 200
        try:
            match self._chance.pick(ways):
                case "accept":
                    decided = (await self._line(requests.AcceptLate(), "accept", letter.id)).handoff
                    self._audit.answered(decided.successor)
                case "redrive":
                    decided = (await self._line(requests.Redrive(), "redrive", letter.id)).handoff
                    self._audit.answered(decided.successor)
                case "discard":
                    await self._line(requests.Discard(reason="old"), "discard", letter.id)
                    self._discarded.append(letter.id)
                case _:
                    await self._line(requests.Note(text="later"), "note", letter.id)
                    await self._dismiss(letter)
        except AlreadyDecidedError:
            return  # somebody was quicker
        except CallerError as error:
            had_no_match = letter.outcome is not None and letter.outcome.code == NoMatchError.code
            if isinstance(error, NoMatchError) and had_no_match:
                return  # still nobody is there for it
            raise Violation(f"{letter.id}: no decision is taken: {error.code}") from error

    async def _dismiss(self, letter: HandoffView) -> None:
        """Put the notice of a dead letter aside; it stays a dead letter."""
        try:
            await self._line(requests.Dismiss(), "dismiss", letter.id)
        except NotFoundError:
            return  # its offer has no step that tells a person

    async def _tidy_up(self) -> None:
        """Erase what is over for everybody: the words go, the log stays whole."""
        for handoff_id in tuple(self._discarded):
            try:
                await self._line(requests.Erase(), "erase", handoff_id)
            except WrongStateError:
                continue  # not everybody has settled it yet
            self._discarded.remove(handoff_id)

    async def _answer(self, view: HandoffView) -> None:
        assert view.question is not None, "a blocked handoff shows its question"
        try:
            if view.question.kind == "question":
                answer = requests.Answer(seq=view.question.seq, answer="ask them")
                await self._line(answer, "answer", view.id)
            else:
                await self._line(requests.Agree(seq=view.question.seq), "agree", view.id)
        except CallerError:
            return  # somebody was quicker
