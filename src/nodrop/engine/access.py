"""Access: tokens, and the caller that each one stands for. Secrets are kept as hashes only."""

import hashlib
from typing import Final

from nodrop.core.errors import UnauthenticatedError
from nodrop.core.roles import Role
from nodrop.engine.shows import Caller
from nodrop.store import Store, Token

ROLES: Final = tuple(role.value for role in Role)


class Access:
    """Every token of every team, by the hash of its secret."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._tokens: dict[str, Token] = {}

    async def load(self) -> None:
        """Read what the store knows."""
        for token in await self._store.tokens():
            self.put(token)

    def put(self, token: Token) -> None:
        """Know a token, new or revoked."""
        self._tokens[token.secret_sha256] = token

    def all(self) -> list[Token]:
        """Return every token there is."""
        return list(self._tokens.values())

    def find(self, team: str, token_id: str) -> Token | None:
        """Return a token of a team by its id."""
        mine = (t for t in self._tokens.values() if t.team == team and t.id == token_id)
        return next(mine, None)

    def authenticate(self, secret: str, *, address: str | None = None) -> Caller:
        """Return who holds `secret`. Looked up by hash, so timing tells nothing about it."""
        token = self._tokens.get(hashed(secret))
        if token is None or token.revoked_at is not None:
            raise UnauthenticatedError
        return Caller(
            team=token.team,
            agent=token.agent,
            operator=token.role == Role.OPERATOR,
            observer=token.role == Role.OBSERVER,
            token_id=token.id,
            address=address,
        )


def hashed(secret: str) -> str:
    """Return what is stored of a secret. Secrets are random and long, so a plain hash is enough."""
    return hashlib.sha256(secret.encode()).hexdigest()
