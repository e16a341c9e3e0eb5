"""Invitations: secrets that let somebody join, once and soon. Kept as hashes only.

One that was used is kept until it would have expired, so that a joiner whose answer was lost can
ask again, and so that nobody else can join with it.
"""

from collections.abc import Collection
from typing import Final

import msgspec

from nodrop.log.port import Record
from nodrop.relay.shows import Caller

KIND: Final = "invitation"


class Invitation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Whom an invitation lets in, and until when."""

    id: str
    secret_sha256: str
    agent: str | None = None
    role: str
    created_by: str
    created_at: int
    expires_at: int
    used_at: int | None = None
    key_id: str | None = None
    """The key that somebody joined with."""
    revoked_at: int | None = None

    def open(self, now: int) -> bool:
        """Whether somebody may still join with it."""
        return self.used_at is None and self.lives(now)

    def lives(self, now: int) -> bool:
        """Whether it says anything at all to whoever holds it."""
        return self.revoked_at is None and now < self.expires_at

    def record(self, team: str) -> Record:
        """Return it as a store keeps it."""
        return Record(team=team, kind=KIND, id=self.id, json=msgspec.json.encode(self))


class Invitations:
    """The invitations of every team."""

    def __init__(self) -> None:
        self._all: dict[tuple[str, str], Invitation] = {}
        self._by_hash: dict[str, tuple[str, str]] = {}

    def put(self, record: Record) -> None:
        """Know an invitation as it is now."""
        invitation = read(record)
        self._all[record.team, invitation.id] = invitation
        self._by_hash[invitation.secret_sha256] = (record.team, invitation.id)

    def drop(self, team: str, invitation_id: str) -> None:
        """Forget an invitation."""
        gone = self._all.pop((team, invitation_id), None)
        if gone is not None:
            self._by_hash.pop(gone.secret_sha256, None)

    def keep_only(self, team: str, kept: Collection[str]) -> None:
        """Forget every invitation of a team but those whose ids are in `kept`."""
        for of, invitation_id in list(self._all):
            if of == team and invitation_id not in kept:
                self.drop(team, invitation_id)

    def get(self, team: str, invitation_id: str) -> Invitation | None:
        """Return an invitation of a team."""
        return self._all.get((team, invitation_id))

    def of(self, team: str) -> list[Invitation]:
        """Return every invitation of a team, oldest first."""
        mine = (i for (owner, _), i in self._all.items() if owner == team)
        return sorted(mine, key=lambda i: (i.created_at, i.id))

    def authenticate(self, secret_sha256: str, *, now: int) -> Caller | None:
        """Return the bearer of an invitation, who may join and do nothing else; None: there is none."""
        key = self._by_hash.get(secret_sha256)
        if key is None or not self._all[key].lives(now):
            return None
        return Caller(team=key[0], agent="", invitation_id=key[1])


def read(record: Record) -> Invitation:
    """Return the invitation in a record."""
    return msgspec.json.decode(record.json, type=Invitation)
