"""Signed requests against what the log says came of them, and the relay's statements on top.

What a requester signed bounds what the relay may make of it: the recipient it named, or somebody
found by the capability; its escalation; its legs, one after the other. What the relay chose within
that, it states under its own key.
"""

from typing import Any, cast

import msgspec

from nodrop.audit.verify.finding import DoesNotHoldError, Tally
from nodrop.audit.verify.ring import Ring
from nodrop.model import events
from nodrop.model.errors import SignatureInvalidError
from nodrop.model.events import Event
from nodrop.model.handoff import Handoff
from nodrop.protocol import canonical
from nodrop.protocol.entries import Entry
from nodrop.protocol.identity import keys, signatures
from nodrop.protocol.identity.keys import PublicKey
from nodrop.protocol.requests import MARKS
from nodrop.protocol.times import parse_due

_SAID_BY: dict[type[Event], str] = {
    events.Completed: "complete",
    events.LateResultKept: "complete",
    events.Failed: "fail",
    events.Returned: "fail",
    events.Rejected: "reject",
    events.Reassigned: "reject",
}
"""What a recipient said, by what came of it."""
_OLDER = "signatures of keys that were added before this log begins"


class _Asked(msgspec.Struct, kw_only=True):
    """A handoff that follows from a signed request."""

    seq: int
    event: events.Offered
    request: dict[str, Any] | None
    """What was signed; None: an earlier handoff of the chain has it."""
    jws: str | None
    within: str | None


class SignedRequests:
    """Checks every signature of a log, and that what the relay added stays within."""

    def __init__(self, ring: Ring, tally: Tally, *, relay_key: PublicKey | None) -> None:
        self._ring = ring
        self._tally = tally
        self._relay_key = relay_key
        self._asked: dict[str, _Asked] = {}
        self._unstated: dict[str, int] = {}
        """Handoffs that the relay still has to state, and the entries that made them."""

    def read(self, entry: Entry, event: Event, body: Any, before: Handoff | None) -> None:
        """Check an entry about a handoff, which was `before`."""
        words = cast("dict[str, Any]", body) if isinstance(body, dict) else None
        if isinstance(event, events.Offered):
            self._offered(entry, event, words)
        elif type(event) in _SAID_BY and before is not None:
            self._said(entry, event, words or {}, before)

    # --- offers ---

    def _offered(self, entry: Entry, event: events.Offered, body: dict[str, Any] | None) -> None:
        if body is None:
            return  # erased, or not ours to see; the chain of hashes has counted it
        kept: dict[str, Any] | None = body.get("signed")
        within: str | None = body.get("within")
        if kept is None and within is None:
            if self._ring.signed_only and entry.actor != "relay" and event.redrive_of is None:
                raise DoesNotHoldError("the team wants offers signed, and this one is not")
            self._tally.unchecked["offers that nobody signed"] += 1
            return
        handoff_id = entry.handoff_id or ""
        asked = _Asked(seq=entry.seq, event=event, request=None, jws=None, within=within)
        if kept is not None:
            said = signatures.restored(kept["request"], body)
            first = event.redrive_of is None
            if self._ring.verify(entry, kept["jws"], said, first=first) is None:
                self._tally.unchecked[_OLDER] += 1
            else:
                self._tally.checked["signatures"] += 1
            asked.request, asked.jws = said, kept["jws"]
            if first:
                _check_offer(entry, event, said)
            else:
                self._check_successor(event, asked)
        elif within is not None:
            self._check_leg(event, within)
        self._asked[handoff_id] = asked
        self._unstated[handoff_id] = entry.seq

    def _check_successor(self, event: events.Offered, asked: _Asked) -> None:
        """Check a handoff that carries on one that ended: the same request, by the same hand."""
        original = self._asked.get(event.redrive_of or "")
        if original is not None and original.jws != asked.jws:
            raise DoesNotHoldError("it carries on a handoff with another signature than that one's")

    def _check_leg(self, event: events.Offered, within: str) -> None:
        """Check a leg that the relay opened against the legs that were signed."""
        begun = self._asked.get(within)
        if begun is None or begun.request is None:
            self._tally.unchecked["legs of requests from before this log begins"] += 1
            return
        legs: list[dict[str, Any]] = begun.request.get("then") or []
        index = len(legs) - len(event.legs) - 1  # fallbacks that were not needed are passed over
        if not 0 <= index < len(legs):
            raise DoesNotHoldError("it is a leg that nobody asked for")
        if event.redrive_of is None:
            _check_target(event, legs[index])
        self._tally.checked["legs within what was signed"] += 1

    # --- outcomes ---

    def _said(self, entry: Entry, event: Event, body: dict[str, Any], before: Handoff) -> None:
        kept: dict[str, Any] | None = body.get("signed")
        if kept is None:
            told = type(event) in {events.Completed, events.LateResultKept, events.Failed}
            by_recipient = entry.actor == before.recipient and before.redrive_of is None
            if self._ring.signed_only and told and by_recipient and body:
                raise DoesNotHoldError("the team wants outcomes signed, and this one is not")
            return
        said = signatures.restored(kept["request"], body)
        born = isinstance(event, events.Completed) and before.version == 1
        about = before.redrive_of if born else before.id
        if said["op"] != _SAID_BY[type(event)] or said.get("handoff_id") != about:
            raise DoesNotHoldError("something else was signed")
        if not born and said["command_id"] != entry.command_id:
            raise DoesNotHoldError("another command was signed")
        attempt = getattr(event, "attempt", None)
        if not born and None not in {attempt, said.get("attempt")} and said["attempt"] != attempt:
            raise DoesNotHoldError("another attempt was signed")
        if self._ring.verify(entry, kept["jws"], said, first=not born) is None:
            self._tally.unchecked[_OLDER] += 1
        else:
            self._tally.checked["signatures"] += 1

    # --- the relay's statements ---

    def stated(self, entry: Entry) -> None:
        """Check what the relay says that it added."""
        jws: str = msgspec.json.decode(entry.data)["jws"]
        payload = keys.decode(jws.split(".")[1])
        if self._relay_key is None:
            self._tally.unchecked["statements of the relay: its key is not known"] += 1
        else:
            try:
                if keys.read_header(jws).typ != signatures.STATEMENT:
                    raise DoesNotHoldError("the relay signed something else")
                self._relay_key.verify(jws)
            except SignatureInvalidError as error:
                raise DoesNotHoldError(f"the relay's signature: {error.detail}") from error
            self._tally.checked["statements of the relay"] += 1
        told: dict[str, Any] = msgspec.json.decode(payload)
        if told["team"] != entry.team or told["at"] != entry.at:
            raise DoesNotHoldError("the relay stated it of another team, or at another time")
        for said in told["statements"]:
            self._match(said)

    def _match(self, said: dict[str, Any]) -> None:
        asked = self._asked.get(said["handoff_id"])
        if asked is None:
            return  # its body is gone, or was never ours to see
        event = asked.event
        signature = None
        if asked.jws is not None and event.redrive_of is None:
            signature = canonical.sha256(asked.jws.encode())
        made = {
            "sender": event.sender,
            "recipient": event.recipient,
            "capability": event.capability,
            "manifest_version": event.manifest_version,
            "deadline_at": event.terms.deadline_at,
            "signature": signature,
            "redrive_of": event.redrive_of,
        }
        for name, value in made.items():
            if said.get(name) != value:
                raise DoesNotHoldError(f"the relay stated another {name} than entry {asked.seq}")
        self._unstated.pop(said["handoff_id"], None)

    def end(self) -> None:
        """Refuse a log in which the relay made something of a signed request and kept silent."""
        if self._unstated:
            first = min(self._unstated.values())
            raise DoesNotHoldError("the relay never stated what it made of it", seq=first)


def _check_offer(entry: Entry, event: events.Offered, said: dict[str, Any]) -> None:
    """Check that an offer is what its requester signed, and what the relay added is within."""
    if said["op"] != "offer" or said["command_id"] != entry.command_id:
        raise DoesNotHoldError("something else was signed")
    if event.sender != (said.get("from") or entry.actor):
        raise DoesNotHoldError("it is from somebody else than was signed")
    _check_target(event, said)
    if event.key != said.get("idempotency_key"):
        raise DoesNotHoldError("another idempotency key was signed")
    if list(event.watchers) != list(said.get("watchers") or ()):
        raise DoesNotHoldError("other watchers were signed")
    marks = dict([mark.split("=", 1) for mark in event.terms.marks])
    for name in (*marks, *MARKS):
        if marks.get(name) != said.get(name):
            raise DoesNotHoldError(f"another {name} was signed")
    told = event.terms.escalation and [step.notify for step in event.terms.escalation]
    signed = said.get("escalation")
    if (told or []) != [step.get("notify") for step in signed or ()]:
        raise DoesNotHoldError("another escalation was signed")
    if signed == [] and event.team_steps:
        raise DoesNotHoldError("the offer opted out of the team's escalation steps")
    legs = [(leg.to, leg.capability) for leg in event.legs]
    if legs != [(leg.get("to"), leg.get("capability")) for leg in said.get("then") or ()]:
        raise DoesNotHoldError("other legs were signed")
    if (deadline := said.get("deadline")) is not None:
        due = parse_due(deadline, now=entry.at)
        if abs(due - event.terms.deadline_at) > signatures.WINDOW_MS:
            raise DoesNotHoldError("another deadline was signed")


def _check_target(event: events.Offered, said: dict[str, Any]) -> None:
    to, capability = said.get("to"), said.get("capability")
    if to is not None and event.recipient != to:
        raise DoesNotHoldError(f"{event.recipient} is asked, and {to} was signed")
    if capability is not None and event.capability != capability:
        raise DoesNotHoldError(f"{capability} was signed, and something else is asked for")
