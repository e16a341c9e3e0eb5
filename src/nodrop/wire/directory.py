"""Agents as the relay knows them: what is claimed, what was observed, what a contract says.

Parts of the answers of `wire.views`.
"""

import msgspec


class ClaimView(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent says about a capability of its own."""

    timeout_seconds: float | None
    reliability_sla: float | None


class ObservedView(msgspec.Struct, frozen=True, kw_only=True):
    """What the relay measured of an agent's last outcomes in a capability."""

    n: int
    completed: int
    success: float | None
    """None while there is not enough data."""
    duration_seconds: float | None
    """The median from acknowledgement to result."""
    says: str


class OfferingView(msgspec.Struct, frozen=True, kw_only=True):
    """One capability of an agent: what is claimed, what was observed, how it fits what is asked."""

    capability: str
    claimed: ClaimView
    observed: ObservedView
    input: str | None
    """Whether what the caller would send is taken; None if nobody asked."""
    output: str | None
    """Whether what comes back is what the caller needs; None if nobody asked."""
    why: str
    """What it is ranked by, in the order in which it counts."""


class ContractView(msgspec.Struct, frozen=True, kw_only=True):
    """What an offer and a manifest have in common. Its canonical JSON is what the digest is of."""

    team: str
    agent: str
    capability: str
    manifest_version: int
    manifest_digest: str
    """Of the manifest as it was sent."""
    timeout: str | None
    accept_within: str
    update_every: str
    deadline: str
    attempts_max: int
