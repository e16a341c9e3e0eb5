"""What the relay answers about keys, invitations, the rules of a team, and how agents are reached."""

from typing import Any

from nodrop.protocol.view import View


class InvitationView(View, frozen=True, kw_only=True):
    """An invitation to join."""

    invitation_id: str
    agent: str | None
    role: str
    expires_at: str
    used_at: str | None = None
    revoked_at: str | None = None


class InvitationAnswer(InvitationView, frozen=True, kw_only=True):
    """An invitation; the secret is told once, when it is made."""

    invitation: str | None = None


class InvitationsAnswer(View, frozen=True, kw_only=True):
    """The invitations that are open."""

    invitations: tuple[InvitationView, ...]


class LinkAnswer(View, frozen=True, kw_only=True):
    """A link that signs in; the code is told once, when it is made."""

    token_id: str
    """What `list_tokens` and `revoke_token` call it."""
    kind: str
    code: str
    path: str
    """What to open, below the address of the relay."""
    expires_at: str


class SignedInAnswer(View, frozen=True, kw_only=True):
    """The bearer that a link was redeemed for, and what it stands for."""

    token: str
    token_id: str
    team: str
    agent: str
    role: str
    payloads: bool
    """Whether its answers show payloads, results and other bodies."""
    expires_at: str


class KeyView(View, frozen=True, kw_only=True):
    """A public key and whose it is."""

    key_id: str
    agent: str
    role: str
    public_key: str
    added_at: str
    expires_at: str | None
    revoked_at: str | None


class KeyAnswer(View, frozen=True, kw_only=True):
    """A key of an agent, the team it belongs to, and the relay's own public key."""

    team: str
    key: KeyView
    relay_public_key: str


class KeysAnswer(View, frozen=True, kw_only=True):
    """The keys of a team, and the relay's own public key."""

    team: str
    keys: tuple[KeyView, ...]
    relay_public_key: str


class WhoAmIAnswer(View, frozen=True, kw_only=True):
    """The team, agent and role of a caller."""

    team: str
    agent: str
    role: str


class PolicyAnswer(View, frozen=True, kw_only=True):
    """The rules of a team."""

    signatures: str
    allow: tuple[dict[str, str], ...]
    escalation: tuple[dict[str, Any], ...]
    """The team's escalation steps, for offers that have no step of the same kind."""


class ReachAnswer(View, frozen=True, kw_only=True):
    """How an agent is reached beyond its team. `token` says whether there is one."""

    agent: str
    public: bool
    a2a: str | None
    token: bool
    private: bool
