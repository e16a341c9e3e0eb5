"""What each role may ask for: one table, read by the relay and by the documentation.

A role is the first of several questions. Whether a handoff is the caller's to act on is decided by
`model.decisions`, whether it is the caller's to see by `relay.shows`, and whom its sender may hand
work to by `relay.identity.rules`.
"""

from collections.abc import Mapping
from typing import Final

from nodrop.model.errors import ForbiddenError
from nodrop.model.roles import Role
from nodrop.protocol.operations import OPERATIONS
from nodrop.relay.shows import Caller

_WORKING: Final = frozenset({Role.AGENT, Role.OPERATOR})
_LOOKING: Final = frozenset(Role)
_LOOKING_AFTER: Final = frozenset({Role.OPERATOR})

_SEEN_BY_ALL: Final = frozenset(
    {
        "get_handoff",
        "list_handoffs",
        "trace",
        "get_group",
        "triggers",
        "dead_letters",
        "log",
        "agents",
        "get_agent",
        "checkpoints",
    }
)
"""Where a team stands. Inboxes and recorded steps are somebody's own."""
_OWN: Final = frozenset(
    {
        *("keys", "add_key", "revoke_key"),
        *("create_token", "list_tokens", "revoke_token"),
        *("whoami", "get_policy", "join", "create_link", "redeem_link"),
    }
)
"""One's own way in, and the rules one is held to."""
_OPERATORS: Final = frozenset(
    {
        "refusals",
        "backup",
        "create_invitation",
        "list_invitations",
        "revoke_invitation",
        "set_policy",
        "put_trigger",
        "remove_trigger",
        "test_trigger",
        "get_reach",
        "set_reach",
    }
)


def _roles(operation: str) -> frozenset[Role]:
    if operation in _OPERATORS:
        return _LOOKING_AFTER
    return _LOOKING if operation in _SEEN_BY_ALL | _OWN else _WORKING


MAY: Final[Mapping[str, frozenset[Role]]] = {name: _roles(name) for name in OPERATIONS}
"""Who may ask for an operation. What it then does may still be refused."""

WORK: Final = frozenset(name for name, roles in MAY.items() if Role.AGENT in roles)
"""Operations that agents may ask for."""

_VIEWED: Final = (_SEEN_BY_ALL - {"triggers"}) | {"whoami", "keys", "get_policy", "redeem_link"}
"""The reads that a view link is for. A rule holds the payload of what it hands off."""


def viewed(*, payloads: bool) -> frozenset[str]:
    """Return what the bearer of a view link may ask for."""
    return _VIEWED | {"triggers"} if payloads else _VIEWED


def require_role(caller: Caller, operation: str) -> None:
    """Refuse what the caller's role may not ask for."""
    if not (caller.operator or caller.observer) and operation in WORK:
        return
    if caller.viewer and operation not in viewed(payloads=caller.payloads):
        raise ForbiddenError(
            f"a view link does not let you ask for {operation}",
            next_step="Sign in as yourself: `nodrop open`.",
        )
    if caller.role not in MAY[operation]:
        raise ForbiddenError(f"an {caller.role} may not ask for {operation}")
