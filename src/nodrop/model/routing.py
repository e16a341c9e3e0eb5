"""Who is asked next. Each candidate is asked once; a named recipient has none after it."""

from nodrop.model import events
from nodrop.model.commands import Candidate
from nodrop.model.events import Fact
from nodrop.model.handoff import Handoff
from nodrop.model.surroundings import Facts, Surroundings


def next_candidate(
    handoff: Handoff, reason: str, around: Surroundings, body: bytes | None = None
) -> Facts:
    """Ask the next candidate, or end it because nobody is left."""
    if handoff.routed:
        for candidate in around.candidates:
            if candidate.agent not in handoff.asked:
                capability = handoff.capability
                moved = reassigned(handoff, capability, candidate, reason=reason, routed=True)
                return (Fact(event=moved, body=body),)
    code = "no_candidate" if handoff.routed else reason
    return (Fact(event=events.Rejected(code=code), body=body),)


def reassigned(
    handoff: Handoff,
    capability: str | None,
    candidate: Candidate,
    *,
    reason: str,
    routed: bool,
) -> events.Reassigned:
    """Return that `candidate` is asked now."""
    return events.Reassigned(
        recipient=candidate.agent,
        reason=reason,
        capability=capability,
        manifest_version=candidate.manifest_version,
        timeout_ms=handoff.terms.timeout_with(candidate.timeout_ms),
        routed=routed,
    )
