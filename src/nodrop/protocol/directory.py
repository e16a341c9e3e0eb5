"""Agents as the relay knows them: what is claimed, what was observed, what a contract says."""

import msgspec

from nodrop.protocol.view import View


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


class AgentView(View, frozen=True, kw_only=True):
    """An agent: its manifest, byte for byte, and what the relay sees of it."""

    agent_id: str
    version: int
    manifest: msgspec.Raw
    connected: bool
    presence: str
    """working, idle, asleep or ghost."""
    until: str | None
    """When a sleeper said it would be back."""
    seen_at: str | None
    """Its last sign of life since the relay started."""
    queued: int
    registered_at: str
    offers: tuple[OfferingView, ...] = ()
    """What of it was asked for; all of it where one agent was."""


class AgentAnswer(View, frozen=True, kw_only=True):
    """One agent."""

    agent: AgentView


class AgentsAnswer(View, frozen=True, kw_only=True, omit_defaults=True):
    """The agents of a team; `after` fetches the next page of the list by name."""

    agents: tuple[AgentView, ...]
    after: str | None = None


class ContractAnswer(View, frozen=True, kw_only=True):
    """A contract to offer under, and how whom it is with stands."""

    contract: ContractView
    digest: str
    offering: OfferingView
    presence: str
