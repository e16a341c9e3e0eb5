"""The ring: every public key of every team, and who it lets in.

Keys are added, expire and are revoked by entries of the log (`relay.identity.membership`); what is here is
what the committed ones come to. A revoked key is good for nothing from its commit on.
"""

from collections.abc import Iterable
from typing import Final

import msgspec
from msgspec.structs import replace

from nodrop.log.port import Record
from nodrop.model.errors import SignatureInvalidError, UnauthenticatedError
from nodrop.model.limits import Limits
from nodrop.protocol.identity import bearer
from nodrop.protocol.identity.keys import PublicKey
from nodrop.relay.shows import Caller

KIND: Final = "key"


class Key(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A public key of an agent, known by its thumbprint."""

    id: str
    agent: str
    role: str
    public_key: str
    added_at: int
    expires_at: int | None = None
    revoked_at: int | None = None

    def good(self, now: int) -> bool:
        """Whether what it signs counts."""
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)

    def record(self, team: str) -> Record:
        """Return it as a store keeps it."""
        return Record(team=team, kind=KIND, id=self.id, json=msgspec.json.encode(self))


class KeyRing:
    """The keys of every team, and the bearer tokens that were verified with them."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._keys: dict[tuple[str, str], Key] = {}
        self._verifiers: dict[str, PublicKey] = {}
        self._bearers: dict[str, tuple[Caller, int]] = {}
        """By the token itself: who it is, and until when."""

    def put(self, record: Record) -> Key:
        """Know a key as it is now."""
        key = msgspec.json.decode(record.json, type=Key)
        self._keys[record.team, key.id] = key
        self._verifiers.setdefault(key.id, PublicKey(key.public_key))
        if key.revoked_at is not None:
            for token, (caller, _) in list(self._bearers.items()):
                if (caller.team, caller.key_id) == (record.team, key.id):
                    del self._bearers[token]
        return key

    def get(self, team: str, key_id: str) -> Key | None:
        """Return a key of a team, whether or not it is still good."""
        return self._keys.get((team, key_id))

    def of(self, team: str, agent: str | None = None) -> list[Key]:
        """Return the keys of a team, or of one of its agents, oldest first."""
        mine = (
            key
            for (owner, _), key in self._keys.items()
            if owner == team and agent in {None, key.agent}
        )
        return sorted(mine, key=lambda key: (key.added_at, key.id))

    def good(self, team: str, key_id: str, *, now: int) -> bool:
        """Whether what a key signs counts."""
        key = self._keys.get((team, key_id))
        return key is not None and key.good(now)

    def verifier(self, key: Key) -> PublicKey:
        """Return what checks the signatures of a key."""
        return self._verifiers[key.id]

    # --- bearer tokens ---

    def authenticate(self, token: str, *, now: int) -> Caller | None:
        """Return who signed a bearer token; None: it is none.

        Raises:
            UnauthenticatedError: it is one, and does not hold.
        """
        known = self._bearers.get(token)
        if known is not None:
            caller, until = known
            if now < until and caller.key_id and self.good(caller.team, caller.key_id, now=now):
                return caller
            del self._bearers[token]
        if not bearer.is_one(token):
            return None
        try:
            caller, until = self._verified(token, now=now)
        except SignatureInvalidError as error:
            # Why is for the agent to find out from its own clock and key: others learn nothing.
            raise UnauthenticatedError from error
        self._remember(token, caller, until)
        return caller

    def _verified(self, token: str, *, now: int) -> tuple[Caller, int]:
        key_id, claims = bearer.peek(token)
        key = self._keys.get((claims.sub, key_id))
        if key is None or not key.good(now) or key.agent != claims.iss:
            raise SignatureInvalidError
        bearer.verify(token, claims, self.verifier(key), now=now)
        return caller_of(claims.sub, key), claims.exp * 1000

    def _remember(self, token: str, caller: Caller, until: int) -> None:
        self._bearers[token] = (caller, until)
        while len(self._bearers) > self._limits.bearers_max:
            del self._bearers[next(iter(self._bearers))]


def caller_of(team: str, key: Key) -> Caller:
    """Return whom a key stands for."""
    return Caller(
        team=team,
        agent=key.agent,
        operator=key.role == "operator",
        observer=key.role == "observer",
        key_id=key.id,
    )


def retired(keys: Iterable[Key], *, at: int) -> list[Key]:
    """Return those of `keys` that would outlast `at`, as they are when they end there."""
    lasting = (k for k in keys if k.revoked_at is None)
    return [
        replace(key, expires_at=at)
        for key in lasting
        if key.expires_at is None or key.expires_at > at
    ]
