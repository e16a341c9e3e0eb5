"""The names and bytes of events: one mapping, read by both ends.

Names are spelled out and never derived from class names: renaming a class must not break a log.
"""

from typing import Any, Final

import msgspec

from nodrop.model import events
from nodrop.model.events import Event

NAMES: Final[dict[type[Event], str]] = {
    events.Offered: "handoff.offered.v1",
    events.Delivered: "handoff.delivered.v1",
    events.Queued: "handoff.queued.v1",
    events.QueueLapsed: "handoff.queue_lapsed.v1",
    events.Acknowledged: "handoff.accepted.v1",
    events.Updated: "handoff.updated.v1",
    events.Blocked: "handoff.blocked.v1",
    events.Parked: "handoff.parked.v1",
    events.Answered: "handoff.answered.v1",
    events.Agreed: "handoff.agreed.v1",
    events.Resumed: "handoff.resumed.v1",
    events.Returned: "handoff.returned.v1",
    events.Reclaimed: "handoff.reclaimed.v1",
    events.Revived: "handoff.revived.v1",
    events.Reassigned: "handoff.reassigned.v1",
    events.StepRecorded: "handoff.step_recorded.v1",
    events.Checkpointed: "handoff.checkpointed.v1",
    events.Completed: "handoff.completed.v1",
    events.Failed: "handoff.failed.v1",
    events.Rejected: "handoff.rejected.v1",
    events.Expired: "handoff.expired.v1",
    events.Cancelled: "handoff.cancelled.v1",
    events.OutcomeDelivered: "handoff.outcome_delivered.v1",
    events.Settled: "handoff.settled.v1",
    events.LateResultKept: "handoff.late_result_kept.v1",
    events.LateAnswerKept: "handoff.late_answer_kept.v1",
    events.Redriven: "handoff.redriven.v1",
    events.AcceptedLate: "handoff.accepted_late.v1",
    events.Discarded: "handoff.discarded.v1",
    events.MemberMoved: "handoff.member_moved.v1",
    events.Joined: "handoff.joined.v1",
    events.Erased: "handoff.erased.v1",
    events.Nudged: "handoff.nudged.v1",
    events.Escalated: "handoff.escalated.v1",
    events.Rearmed: "handoff.rearmed.v1",
    events.Ready: "handoff.ready.v1",
    events.Dismissed: "handoff.dismissed.v1",
    events.Noted: "handoff.noted.v1",
}

TEAM_NAMES: Final = (
    "agent.registered.v1",
    "agent.removed.v1",
    "agent.reach_set.v1",
    "token.created.v1",
    "token.revoked.v1",
    "key.added.v1",
    "key.revoked.v1",
    "invitation.created.v1",
    "invitation.revoked.v1",
    "link.created.v1",
    "link.redeemed.v1",
    "link.revoked.v1",
    "policy.set.v1",
    "relay.stated.v1",
    "event.emitted.v1",
    "trigger.set.v1",
    "trigger.removed.v1",
    "outlet.set.v1",
    "outlet.removed.v1",
    "outlet.gave_up.v1",
    "outlet.tested.v1",
    "message.said.v1",
    "status.told.v1",
    "topic.subscribed.v1",
    "topic.unsubscribed.v1",
    "webhook.set.v1",
    "webhook.removed.v1",
    "finding.raised.v1",
    "team.noted.v1",
    "team.pruned.v1",
)
"""Entries that are about the team, or about a handoff that they do not change."""

data: Final = msgspec.json.Encoder(order="sorted").encode
"""Return the data of an event, as its entry has it."""
_DECODERS: Final[dict[str, msgspec.json.Decoder[Any]]] = {
    name: msgspec.json.Decoder(kind) for kind, name in NAMES.items()
}

DECODED: Final = frozenset(_DECODERS)
"""The names of everything that `decode` knows: the events of a handoff."""


def encode(event: Event) -> tuple[str, bytes]:
    """Return the event's wire name and its data."""
    return NAMES[type(event)], data(event)


def decode(name: str, data: bytes) -> Event:
    """Return the event that `encode` was given."""
    return _DECODERS[name].decode(data)
