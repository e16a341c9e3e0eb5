"""A handoff in the hands of whoever follows it: wait for it, take its result, withdraw it."""

import asyncio
import logging
from typing import Any, Final, Literal

from nodrop.client.calls import Calls
from nodrop.client.durations import Duration, Wait
from nodrop.client.endings import HandoffFailed, WaitElapsed
from nodrop.client.shown import Ack, HandoffShown, Outcome, outcome_of
from nodrop.client.values import given
from nodrop.core.errors import ForbiddenError, NodropError, SignatureInvalidError
from nodrop.wire import signatures
from nodrop.wire.keys import PublicKey

Of = Literal["handoff", "chain"]

_LOG: Final = logging.getLogger("nodrop.client")


class Handoff(HandoffShown):
    """A handoff as the relay last showed it. Every call below brings it up to date."""

    def __init__(self, view: dict[str, Any], calls: Calls) -> None:
        super().__init__(view)
        self._calls = calls
        self._settling: asyncio.Task[None] | None = None
        """The relay is being told that it is settled."""

    async def refresh(self) -> "Handoff":
        """Read it again."""
        self._view = await self._calls.about(self.id, "get_handoff")
        return self

    async def acknowledged(self, wait: Duration | None = None) -> Ack:
        """Wait until the recipient has said that it has it, and return what it said.

        Raises:
            WaitElapsed: it has not said so yet; `rung` tells how far it is.
            HandoffFailed: it ended before anybody acknowledged it.
        """
        await self._reach("acknowledged", wait)
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
        outcome = await self.outcome(wait, of)
        if not outcome.completed:
            raise HandoffFailed(outcome)
        return outcome.result

    async def outcome(self, wait: Duration | None = None, of: Of = "handoff") -> Outcome:
        """Wait for the end, whatever it is; the relay is told, aside, that the requester has it.

        `settle`, `flush` of the client and closing it wait until the relay has heard that.

        Raises:
            WaitElapsed: it goes on.
        """
        ended = await self._reach("finished", wait, of)
        outcome = outcome_of(ended)
        ended.settle_aside()
        return outcome

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
        if self._settling is None and self._is_ours_to_settle():
            self._settling = self._calls.say_aside(self._say_settled())

    async def settle(self) -> None:
        """Say that the requester has the outcome. Whoever merely looks on settles nothing."""
        if self._settling is not None:
            await asyncio.wait({self._settling})
        if self._is_ours_to_settle():
            await self._say_settled()

    def _is_ours_to_settle(self) -> bool:
        """Whether the relay waits to hear that we, as far as we know its requester, have it."""
        if self.view.get("settled_at") is not None:
            return False
        return self._calls.agent in {None, self.origin}

    async def _say_settled(self) -> None:
        try:
            self._view |= await self._calls.about(self.id, "settle", brief=True)
        except ForbiddenError:  # not known before where only the relay knows whose token it is
            return
        except NodropError as error:
            # The caller has what it waited for; that the relay will ask again is no harm.
            _LOG.warning("%s could not be settled: %s", self.ref, error)

    async def cancel(self, reason: str | None = None) -> "Handoff":
        """Withdraw it."""
        self._view = await self._calls.about(self.id, "cancel", **given(reason=reason))
        return self

    async def erase(self) -> "Handoff":
        """Have its words and data erased, once it is settled. The log keeps that it happened."""
        self._view = await self._calls.about(self.id, "erase")
        return self

    async def reassign(
        self, to: str | None = None, *, capability: str | None = None, reason: str | None = None
    ) -> "Handoff":
        """Give it to somebody else."""
        fields = given(to=to, capability=capability, reason=reason)
        self._view = await self._calls.about(self.id, "reassign", **fields)
        return self

    async def note(self, text: str) -> "Handoff":
        """Write in the margin of the log."""
        self._view = await self._calls.about(self.id, "note", text=text)
        return self

    async def _reach(self, rung: str, wait: Duration | None, of: Of = "handoff") -> "Handoff":
        """Wait for a rung and return the leg that reached it, or that ended first.

        A redriven handoff lives on in its successor, so the wait goes on there.
        """
        left = Wait(wait)
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
            self._view = view
            return self
        return Handoff(view, self._calls)
