"""Access: tokens, bearers, links and invitations, and the caller that each one stands for.

Secrets are kept as hashes only. A caller that was let in is looked at again with every command,
which is a lookup: revocation and expiry count at once, on open connections too. What holds for a
turn of the event loop is looked at once in it.
"""

import hashlib
from typing import Final

import msgspec

from nodrop.log.port import Key, Store, Token
from nodrop.model.errors import ForbiddenError, UnauthenticatedError
from nodrop.model.limits import Limits
from nodrop.model.names import name_pattern
from nodrop.model.roles import Role
from nodrop.protocol.identity.invitations import PREFIX
from nodrop.protocol.requests import Request
from nodrop.relay.identity.invitations import Invitations
from nodrop.relay.identity.keys import KeyRing
from nodrop.relay.identity.links import Links
from nodrop.relay.identity.revocations import Revocations
from nodrop.relay.identity.roles import MAY, require_role
from nodrop.relay.intake import Intake
from nodrop.relay.ports import Clock
from nodrop.relay.room import COUNTED, NONE_LEFT, InTurn, Rates, Shares
from nodrop.relay.shows import Caller

ROLES: Final = tuple(role.value for role in Role)
REVOKED_MAX: Final = 1_024
"""Revoked tokens that are remembered, so that revoking one again is answered as the first time."""

_BY_WORKERS: Final = frozenset(
    name for name, roles in MAY.items() if {Role.AGENT, Role.OPERATOR} <= roles
)
"""Operations that agents and operators may ask for."""
_COMMANDS: Final = (_BY_WORKERS & COUNTED) - {"offer", "redeem_link"}
"""Those that are counted as commands, and as nothing else."""


class Access:
    """Everything that lets somebody in."""

    def __init__(
        self,
        store: Store,
        *,
        clock: Clock,
        keys: KeyRing,
        invitations: Invitations,
        links: Links,
    ) -> None:
        self.revocations = Revocations()
        self._store = store
        self._clock = clock
        self._keys = keys
        self._invitations = invitations
        self._links = links
        self._tokens: dict[str, Token] = {}
        self.by_id: dict[Key, Token] = {}
        """Every good token."""
        self._revoked: dict[Key, Token] = {}

    async def load(self, team: str | None = None) -> None:
        """Read what the store knows, of one team or of all."""
        for token in await self._store.tokens(team):
            self.put(token)

    def put(self, token: Token) -> None:
        """Know a token, new or revoked."""
        key = (token.team, token.id)
        if token.revoked_at is None:
            self._tokens[token.secret_sha256] = self.by_id[key] = token
            return
        self._tokens.pop(token.secret_sha256, None)
        self.by_id.pop(key, None)
        self._revoked[key] = token
        if len(self._revoked) > REVOKED_MAX:
            del self._revoked[next(iter(self._revoked))]
        self.revocations.revoked(token.team, token.id)

    def is_token(self, secret: str) -> bool:
        """Whether `secret` is a token that is good."""
        return self._holder(self._tokens.get(hashed(secret))) is not None

    def of(self, team: str) -> list[Token]:
        """Return every good token of a team, oldest first."""
        mine = [token for token in self.by_id.values() if token.team == team]
        return sorted(mine, key=lambda token: (token.created_at, token.id))

    def find(self, team: str, token_id: str) -> Token | None:
        """Return a token of a team by its id: one that is good, or was lately revoked."""
        return self.by_id.get((team, token_id)) or self._revoked.get((team, token_id))

    def authenticate(self, secret: str, *, address: str | None = None) -> Caller:
        """Return who holds `secret`. Looked up by hash, so timing tells nothing about it."""
        now = self._clock.now()
        caller = self._keys.authenticate(secret, now=now)
        if caller is None and secret.startswith(PREFIX):
            caller = self._invitations.authenticate(hashed(secret), now=now)
        elif caller is None:
            digest = hashed(secret)
            caller = self._holder(self._tokens.get(digest))
            caller = caller or self._links.authenticate(digest, now=now)
        if caller is None:
            raise UnauthenticatedError
        return caller if address is None else msgspec.structs.replace(caller, address=address)

    @staticmethod
    def _holder(token: Token | None) -> Caller | None:
        if token is None:
            return None
        return Caller(
            team=token.team,
            agent=token.agent,
            operator=token.role == Role.OPERATOR,
            observer=token.role == Role.OBSERVER,
            token_id=token.id,
        )

    def require(self, caller: Caller, operation: str | None = None) -> None:
        """Refuse a caller whose credential is no longer good, or not for this.

        Args:
            caller: who asks, as it was let in.
            operation: what it asks for; None: to be pushed to.

        Raises:
            UnauthenticatedError: it would not be let in now.
            ForbiddenError: it may not do this, whatever it is about.
        """
        if caller.token_id is not None:
            if (caller.team, caller.token_id) not in self.by_id:
                raise UnauthenticatedError
        elif caller.key_id is not None:
            if not self._keys.good(caller.team, caller.key_id, now=self._clock.now()):
                raise UnauthenticatedError
        elif caller.invitation_id is not None and operation != "join":
            raise ForbiddenError("an invitation is for joining, and for nothing else")
        elif caller.link_id is not None:
            if not self._links.good(caller.team, caller.link_id, now=self._clock.now()):
                raise UnauthenticatedError
        elif not caller.agent and caller.invitation_id is None and operation != "redeem_link":
            raise UnauthenticatedError


class Admission:
    """Lets callers in, or says why not."""

    def __init__(
        self,
        access: Access,
        *,
        seen: dict[Key, int],
        shares: Shares,
        intake: Intake,
        limits: Limits,
        clock: Clock,
    ) -> None:
        self._access = access
        self._seen = seen
        """When each agent last gave a sign of life."""
        self._shares = shares
        self._in_turn = shares.in_turn
        self._intake = intake
        self._clock = clock
        self._spells_name: Final = name_pattern(limits.key_chars_max).fullmatch
        self.rates = Rates(limits, now=clock.now)

    def admit(self, caller: Caller, key: Key, operation: str, request: Request) -> None:
        """Refuse one who may not ask for this, or not so soon."""
        command_id = getattr(request, "command_id", None)
        if command_id is not None and self._spells_name(command_id) is None:
            self._intake.name(command_id, "command_id")
        looked = self._in_turn.get(key)
        if looked is None or looked.caller is not caller:
            looked = self._look_at(caller, key, operation, looked)
        meter = looked.meter
        if operation in _COMMANDS and meter.left >= 1:
            meter.left -= 1
            return
        works = not (caller.observer or caller.viewer)
        if operation not in _BY_WORKERS or not works:
            require_role(caller, operation)
        if operation == "redeem_link":
            self.rates.spend_attempt(caller.address or "")
        elif operation in COUNTED:
            meter = self.rates.spend(key, offer=operation == "offer")
            if works:
                looked.meter = meter

    def _look_at(self, caller: Caller, key: Key, operation: str, turn: InTurn | None) -> InTurn:
        """Refuse a caller whose credential is no longer good, and note a sign of life.

        Once in a turn of the loop: what a commit of the same turn ends is told to nobody before the next.
        """
        token_id = caller.token_id
        if token_id is None or (caller.team, token_id) not in self._access.by_id:
            self._access.require(caller, operation)
        if not caller.agent or caller.viewer:
            return InTurn()
        self._seen[key] = self._clock.now()
        if caller.invitation_id is not None or caller.link_id is not None:
            return InTurn()
        turn = turn or self._shares.turn_of(key)
        turn.caller = caller
        turn.meter = NONE_LEFT if caller.observer else self.rates.commands.get(key, NONE_LEFT)
        return turn


def hashed(secret: str) -> str:
    """Return what is stored of a secret. Secrets are random and long, so a plain hash is enough."""
    return hashlib.sha256(secret.encode()).hexdigest()
