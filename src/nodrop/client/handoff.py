"""A handoff in the hands of whoever follows it: wait for it, take its result, withdraw it."""

import asyncio
import logging
from collections.abc import Mapping
from typing import Any, Final, Literal

import msgspec

from nodrop.client.durations import Duration, Wait
from nodrop.client.endings import HandoffFailed, WaitElapsed
from nodrop.client.shown import Ack, HandoffShown, Outcome, outcome_of
from nodrop.client.transports.calls import Calls
from nodrop.client.values import given
from nodrop.model.errors import ForbiddenError, NodropError, SignatureInvalidError
from nodrop.model.handoff import FINAL, State
from nodrop.protocol.identity import signatures
from nodrop.protocol.identity.keys import PublicKey
from nodrop.protocol.pushed import Ended, Followed, Stored
from nodrop.protocol.pushed import Outcome as Pushed
from nodrop.protocol.requests import MARKS

Of = Literal["handoff", "chain"]

_LOG: Final = logging.getLogger("nodrop.client")


_COMPLETED: Final = State.COMPLETED.value
_VERBATIM: Final = (
    *("trigger", "title", "priority", "payload", "expected_outcome", "parent_id"),
    *("idempotency_key", "observations", "parameters", "covariates", "metadata"),
    *MARKS,
)
"""The fields of an offer that are shown as they were made."""


class Handoff(HandoffShown):
    """A handoff as the relay last showed it. Every call below brings it up to date.

    After `hand_off` that is what was offered and what the relay made of it; `refresh` reads the
    rest, such as terms that were left to the relay.
    """

    had_ended = False
    """The offer was a repeat of one that had ended, and its outcome was not shown."""
    _id: str | None = None
    _stored: tuple[Stored, Mapping[str, Any]] | None = None
    """The answer to the offer, and the offer, until they are looked at."""
    _followed: Followed | None = None
    """The outcome, once the relay has pushed it."""
    _ended: Ended | None = None
    """The outcome that was pushed, until it is looked at."""
    _settling: asyncio.Task[None] | None = None
    """The relay is being told that it is settled."""
    _told_settled = False
    """The relay was told, and nobody waits for its answer."""

    def __init__(self, view: dict[str, Any], calls: Calls) -> None:
        self._view = view
        self._calls = calls

    @classmethod
    def made(
        cls, made: dict[str, Any] | Stored, offer: Mapping[str, Any], calls: Calls
    ) -> "Handoff":
        """Return the handoff that an offer made."""
        if isinstance(made, Stored):
            handoff, brief = cls({}, calls), made.brief
            handoff._id = brief.id
            handoff.had_ended = brief.state in FINAL
            handoff._stored = (made, offer)
            handoff._followed = made.followed
            return handoff
        handoff = cls(_offered(offer) | made, calls)
        handoff.had_ended = made["state"] in FINAL and made.get("outcome") is None
        return handoff

    @property
    def view(self) -> dict[str, Any]:
        """The handoff as it was last shown, and as it was offered."""
        if self._stored is not None:
            stored, offer = self._stored
            self._stored = None
            self._view = _offered(offer) | _read(stored.answer)["handoff"]
        if self._ended is not None:
            ended, self._ended = self._ended, None
            outcome = msgspec.structs.asdict(ended.outcome)
            self._view = self._view | _read(ended.handoff) | {"outcome": outcome}
        return self._view

    @property
    def id(self) -> str:
        """Its id."""
        return self._id or self.view["id"]

    def _show(self, view: dict[str, Any]) -> None:
        """Be what the relay shows from now on."""
        self._view = view
        self._id = self._stored = self._ended = None

    async def refresh(self) -> "Handoff":
        """Read it again."""
        self._show(await self._calls.about(self.id, "get_handoff"))
        return self

    async def acknowledged(self, wait: Duration | None = None) -> Ack:
        """Wait until the recipient has said that it has it, and return what it said.

        Raises:
            WaitElapsed: it has not said so yet; `rung` tells how far it is.
            HandoffFailed: it ended before anybody acknowledged it.
        """
        await self._reach("acknowledged", Wait(wait))
        ack = self.ack
        if ack is None:
            raise HandoffFailed(outcome_of(self))
        return ack

    async def result(self, wait: Duration | None = None, of: Of = "handoff") -> Any:
        """Wait for the result and return it; `of="chain"` waits for the last leg's.

        Raises:
            WaitElapsed: there is none yet, and the work goes on.
            HandoffFailed: it ended without one.
        """
        left = Wait(wait)
        pushed = await self._pushed(left, of)
        if pushed is not None:
            return pushed.result
        outcome = await self._outcome(left, of)
        if not outcome.completed:
            raise HandoffFailed(outcome)
        return outcome.result

    async def outcome(self, wait: Duration | None = None, of: Of = "handoff") -> Outcome:
        """Wait for the end, whatever it is; the relay is told, aside, that the requester has it.

        `settle`, `flush` of the client and closing it wait until the relay has heard that.

        Raises:
            WaitElapsed: it goes on.
        """
        left = Wait(wait)
        if await self._pushed(left, of) is not None:
            return outcome_of(self)
        return await self._outcome(left, of)

    async def _outcome(self, left: Wait, of: Of) -> Outcome:
        """Ask for the end."""
        ended = await self._reach("finished", left, of)
        outcome = outcome_of(ended)
        ended.settle_aside()
        return outcome

    async def _pushed(self, left: Wait, of: Of) -> Pushed | None:
        """Return the result that the relay pushes; None: it has to be asked for.

        What ended without one is asked for too: it may live on in a successor by now.
        """
        followed = self._followed
        if followed is None:
            return None
        self._calls.require_its_loop()
        if not await followed.wait(left.seconds):
            return None
        ended = followed.ended
        if ended is None or ended.outcome.state != _COMPLETED:
            self._followed = None
            return None
        brief = ended.brief
        if of == "chain" and brief.next_leg is not None:
            return None
        if not self._told_settled:
            self._id, self._ended = brief.id, ended
            agent = self._calls.agent
            if brief.settled_at is None and (agent is None or agent == brief.origin):
                self._told_settled = self._calls.tell("settle", brief.id)
        return ended.outcome

    async def verify(self, public_key: str, *, team: str = "default") -> None:
        """Check that the outcome is signed with a key that the caller knows, and is this one.

        That takes nobody's word for it, the relay's included: what was signed is in the log.

        Args:
            public_key: the recipient's, as it was made known; not as the relay shows it now.
            team: whose log.

        Raises:
            SignatureInvalidError: it is not signed, with another key, or says something else.
        """
        if not self.finished:
            await self.refresh()
        outcome = outcome_of(self) if self.finished else None
        body = await self._signed_body(outcome) if outcome else None
        if outcome is None or body is None:
            raise SignatureInvalidError("it has no signed outcome")
        said = signatures.restored(body["signed"]["request"], body)
        signatures.verify(body["signed"]["jws"], said, PublicKey(public_key), team=team)
        shown = (self.id, outcome.result, outcome.reason)
        if (said.get("handoff_id"), said.get("result"), said.get("reason")) != shown:
            raise SignatureInvalidError("what was signed is another outcome")

    async def _signed_body(self, outcome: Outcome) -> dict[str, Any] | None:
        of = {"handoff_id": self.id, "type": f"handoff.{outcome.state}.v1"}
        entries: list[dict[str, Any]] = (await self._calls.call("log", of))["entries"]
        bodies: list[dict[str, Any]] = [entry["body"] for entry in entries if entry.get("body")]
        return next((body for body in bodies if "signed" in body), None)

    def settle_aside(self) -> None:
        """Have the relay told that the requester has the outcome, and wait for nothing."""
        if self._settling is None and not self._told_settled and self._is_ours_to_settle():
            self._told_settled = self._calls.tell("settle", self.id)
            if not self._told_settled:
                self._settling = self._calls.say_aside(self._say_settled())

    async def settle(self) -> None:
        """Say that the requester has the outcome. Whoever merely looks on settles nothing."""
        if self._settling is not None:
            await asyncio.wait({self._settling})
        if self._told_settled:
            await self._calls.flush()
            await self.refresh()
        if self._is_ours_to_settle():
            await self._say_settled()

    def _is_ours_to_settle(self) -> bool:
        """Whether the relay waits to hear that we, as far as we know its requester, have it."""
        if self.view.get("settled_at") is not None:
            return False
        return self._calls.agent in {None, self.origin}

    async def _say_settled(self) -> None:
        try:
            self._show(self.view | await self._calls.about(self.id, "settle", brief=True))
        except ForbiddenError:  # not known before where only the relay knows whose token it is
            return
        except NodropError as error:
            # The caller has what it waited for; that the relay will ask again is no harm.
            _LOG.warning("%s could not be settled: %s", self.ref, error)

    async def cancel(self, reason: str | None = None) -> "Handoff":
        """Withdraw it."""
        self._show(await self._calls.about(self.id, "cancel", **given(reason=reason)))
        return self

    async def erase(self) -> "Handoff":
        """Have its words and data erased, once it is settled. The log keeps that it happened."""
        self._show(await self._calls.about(self.id, "erase"))
        return self

    async def reassign(
        self, to: str | None = None, *, capability: str | None = None, reason: str | None = None
    ) -> "Handoff":
        """Give it to somebody else."""
        fields = given(to=to, capability=capability, reason=reason)
        self._show(await self._calls.about(self.id, "reassign", **fields))
        return self

    async def dismiss(self, *, inbox: str | None = None) -> "Handoff":
        """Take the notices about it from your inbox, or as an operator from another's."""
        self._show(await self._calls.about(self.id, "dismiss", **given(inbox=inbox)))
        return self

    async def note(self, text: str) -> "Handoff":
        """Write in the margin of the log."""
        self._show(await self._calls.about(self.id, "note", text=text))
        return self

    async def _reach(self, rung: str, left: Wait, of: Of = "handoff") -> "Handoff":
        """Wait for a rung and return the leg that reached it, or that ended first.

        A redriven handoff lives on in its successor, so the wait goes on there.
        """
        leg = self
        while True:
            fields = {"wait": left.piece(), "until": rung, "of": of}
            answer = await self._calls.call("get_handoff", fields, handoff=leg.id)
            leg = self._follow(answer["handoff"], of)
            while leg.finished and leg.successor is not None:
                leg = self._follow(await self._calls.about(leg.successor, "get_handoff"), of)
            if leg.finished or (rung == "acknowledged" and leg.ack is not None):
                return leg
            if left.over:
                raise WaitElapsed(leg)

    def _follow(self, view: dict[str, Any], of: Of) -> "Handoff":
        """Return the handoff shown. Unless it is a later leg, it is this one from now on."""
        if of == "handoff" or view["id"] == self.id:
            self._show(view)
            return self
        return Handoff(view, self._calls)


def _offered(offer: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is shown of an offer as it was made."""
    return {"priority": "medium"} | {name: offer[name] for name in _VERBATIM if name in offer}


def _read(handoff: Any) -> dict[str, Any]:
    """Return what was pushed in plain values, as JSON gives them."""
    return msgspec.json.decode(msgspec.json.encode(handoff))
