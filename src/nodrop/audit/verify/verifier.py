"""Reads a log from its beginning to its end, or to the first entry that does not hold."""

from collections.abc import Callable
from typing import Any, Final

import msgspec

from nodrop.audit.verify.chain import Chain, Checkpoint, read_entry
from nodrop.audit.verify.finding import DoesNotHoldError, Finding, Tally, Verdict
from nodrop.audit.verify.requests import SignedRequests
from nodrop.audit.verify.ring import Ring
from nodrop.model import events
from nodrop.model.events import Event
from nodrop.model.handoff import Handoff
from nodrop.model.machine import evolve
from nodrop.protocol import events as wire_events
from nodrop.protocol.entries import Entry
from nodrop.protocol.identity.keys import PublicKey

_RECIPIENTS_OWN: Final = (
    events.Acknowledged,
    events.Updated,
    events.Blocked,
    events.StepRecorded,
    events.Checkpointed,
    events.LateResultKept,
)
"""What only the recipient can have said."""
_NAMES: Final = frozenset(wire_events.NAMES.values())


class Verifier:
    """Holds a team's log to what it says about itself."""

    def __init__(
        self,
        team: str,
        *,
        relay_key: str | None = None,
    ) -> None:
        """Begin with an empty log.

        Args:
            team: whose log it is.
            relay_key: the relay's public key, as somebody knows it.
        """
        self._team = team
        self._relay_key = relay_key
        self._tally = Tally()
        self._chain = Chain(self._tally)
        self._ring = Ring()
        key = None if relay_key is None else PublicKey(relay_key)
        self._requests = SignedRequests(self._ring, self._tally, relay_key=key)
        self._handoffs: dict[str, Handoff] = {}
        self._skipped: set[str] = set()
        self._finding: Finding | None = None

    @property
    def holds(self) -> bool:
        """Whether everything so far does."""
        return self._finding is None

    def expect(self, checkpoint: Checkpoint) -> None:
        """Hold the log to a checkpoint. Before the entries are read."""

        def check() -> None:
            if self._relay_key not in {None, checkpoint.public_key}:
                raise DoesNotHoldError("it is signed by another key than the relay's")
            self._chain.expect(checkpoint)

        if self.holds:
            self._guarded(checkpoint.size, "checkpoint", check)
        if self.holds:
            self._tally.checked["checkpoints"] += 1

    def read(self, view: dict[str, Any]) -> None:
        """Take the next entry, as the log shows it. After a finding nothing more is looked at."""

        def check() -> None:
            try:
                entry = read_entry(self._team, view)
            except (KeyError, TypeError, ValueError) as error:
                raise DoesNotHoldError(f"it is no entry: {error!r}") from error
            self._check(entry, view.get("body"), view.get("body_salt"))

        if self.holds:
            self._guarded(view.get("seq", 0), str(view.get("type")), check)

    def shown(self, view: dict[str, Any]) -> None:
        """Hold a handoff, as the relay shows it, to its entries. After the entries were read."""
        handoff = self._handoffs.get(view["id"])
        if handoff is None or not self.holds:
            return
        state = (handoff.state.value, handoff.attempt, handoff.recipient)
        if (view["state"], view["attempt"], view["to"]) != state:
            why = f"the relay shows {view['id']} as {view['state']}; its entries say {state[0]}"
            self._finding = Finding(seq=self._chain.seq or 0, type="handoff", why=why)
        self._tally.checked["handoffs as shown"] += 1

    def verdict(self) -> Verdict:
        """Return what is to be said about the log, now that it was read to its end."""
        if self.holds:
            self._guarded(self._chain.seq or 0, "the end", self._end)
        return Verdict(
            holds=self.holds,
            team=self._team,
            entries=self._tally.checked["entries"],
            head=self._chain.head,
            checked=dict(self._tally.checked),
            unchecked=dict(self._tally.unchecked),
            finding=self._finding,
        )

    def _end(self) -> None:
        self._chain.end()
        self._requests.end()
        self._tally.checked["handoffs"] = len(self._handoffs)

    def _guarded(self, seq: int, kind: str, check: Callable[[], None]) -> None:
        try:
            check()
        except DoesNotHoldError as error:
            where = seq if error.seq is None else error.seq
            self._finding = Finding(seq=where, type=kind, why=error.why)

    def _check(self, entry: Entry, body: Any, salt: str | None) -> None:
        self._chain.read(entry, body, salt)
        try:
            if entry.handoff_id is not None and entry.type in _NAMES:
                self._about_handoff(entry, entry.handoff_id, body)
            elif entry.type == "relay.stated.v1":
                self._requests.stated(entry)
            else:
                self._ring.read(entry, pruned=self._chain.pruned)
        except (KeyError, ValueError, msgspec.MsgspecError) as error:
            raise DoesNotHoldError(f"it cannot be understood: {error!r}") from error

    def _about_handoff(self, entry: Entry, handoff_id: str, body: Any) -> None:
        if handoff_id in self._skipped:
            return
        event = wire_events.decode(entry.type, bytes(entry.data))
        before = self._handoffs.get(handoff_id)
        if before is None and not isinstance(event, events.Offered):
            if not self._chain.pruned:
                raise DoesNotHoldError("a handoff begins with its offer")
            self._skipped.add(handoff_id)
            self._tally.unchecked["handoffs that began before this log does"] += 1
            return
        self._handoffs[handoff_id] = self._follows(entry, event, before)
        self._requests.read(entry, event, body, before)

    def _follows(self, entry: Entry, event: Event, before: Handoff | None) -> Handoff:
        """Return the handoff after an event that the machine allows."""
        recipient = before.recipient if before else entry.actor
        if isinstance(event, _RECIPIENTS_OWN) and entry.actor != recipient:
            raise DoesNotHoldError(f"only {recipient} can have said this")
        try:
            after = evolve(
                before,
                event,
                team=self._team,
                handoff_id=entry.handoff_id or "",
                by=entry.actor,
                at=entry.at,
            )
        except (KeyError, AssertionError):
            state = before.state if before else "not there"
            raise DoesNotHoldError(f"it cannot happen to a handoff that is {state}") from None
        if after.version != entry.version:
            raise DoesNotHoldError(
                f"it is event {entry.version} of its handoff, not {after.version}"
            )
        return after
