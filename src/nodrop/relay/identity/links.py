"""Links: codes that sign a browser in, and the bearers that they were redeemed for.

A sign-in link is good once, and its bearer is a secret of its own: the code stays behind in the
history of a browser. A view link may be redeemed by many until it expires; its bearer follows from
the code, so that redeeming one writes nothing. Codes and bearers are kept as hashes only.
"""

import hashlib
from collections.abc import Collection
from typing import Final

import msgspec

from nodrop.log.port import Record
from nodrop.model.roles import Role
from nodrop.relay.shows import Caller

KIND: Final = "link"
SIGN_IN: Final = "sign_in"
VIEW: Final = "view"
KINDS: Final = (SIGN_IN, VIEW)
VIEWER: Final = "viewer"
"""The name of the bearer of a view link."""
_VIEW_PREFIX: Final = "ndv_"


class Link(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Whom a link signs in, as what, and until when."""

    id: str
    kind: str
    code_sha256: str
    agent: str
    role: str
    payloads: bool = False
    created_by: str
    created_at: int
    expires_at: int
    """Until when the code can be redeemed; of a view link, its bearer too."""
    used_at: int | None = None
    bearer_sha256: str | None = None
    bearer_expires_at: int | None = None
    revoked_at: int | None = None

    def redeemable(self, now: int) -> bool:
        """Whether its code signs in."""
        return self.revoked_at is None and self.used_at is None and now < self.expires_at

    @property
    def ends_at(self) -> int:
        """When nothing more can come of it."""
        return self.bearer_expires_at or self.expires_at

    def good(self, now: int) -> bool:
        """Whether its code or its bearer counts."""
        return self.revoked_at is None and now < self.ends_at

    def belongs_to(self, caller: Caller) -> bool:
        """Whether it is the caller's to know of, and to revoke."""
        return caller.operator or caller.agent == self.created_by

    def record(self, team: str) -> Record:
        """Return it as a store keeps it."""
        return Record(team=team, kind=KIND, id=self.id, json=msgspec.json.encode(self))


class Links:
    """The links of every team."""

    def __init__(self) -> None:
        self._all: dict[tuple[str, str], Link] = {}
        self._by_code: dict[str, tuple[str, str]] = {}
        self._by_bearer: dict[str, tuple[str, str]] = {}

    def put(self, record: Record) -> Link:
        """Know a link as it is now."""
        link, key = read(record), (record.team, record.id)
        self._all[key] = link
        self._by_code[link.code_sha256] = key
        if link.bearer_sha256 is not None:
            self._by_bearer[link.bearer_sha256] = key
        return link

    def drop(self, team: str, link_id: str) -> None:
        """Forget a link."""
        gone = self._all.pop((team, link_id), None)
        if gone is not None:
            self._by_code.pop(gone.code_sha256, None)
            self._by_bearer.pop(gone.bearer_sha256 or "", None)

    def keep_only(self, team: str, kept: Collection[str]) -> None:
        """Forget every link of a team but those whose ids are in `kept`."""
        for of, link_id in list(self._all):
            if of == team and link_id not in kept:
                self.drop(team, link_id)

    def get(self, team: str, link_id: str) -> Link | None:
        """Return a link of a team."""
        return self._all.get((team, link_id))

    def of(self, team: str) -> list[Link]:
        """Return every link of a team, oldest first."""
        mine = (link for (owner, _), link in self._all.items() if owner == team)
        return sorted(mine, key=lambda link: (link.created_at, link.id))

    def find(self, code_sha256: str) -> tuple[str, Link] | None:
        """Return the team and the link that a code is of."""
        key = self._by_code.get(code_sha256)
        return None if key is None else (key[0], self._all[key])

    def good(self, team: str, link_id: str, *, now: int) -> bool:
        """Whether the bearer of a link counts."""
        link = self._all.get((team, link_id))
        return link is not None and link.good(now)

    def authenticate(self, bearer_sha256: str, *, now: int) -> Caller | None:
        """Return the caller that a bearer stands for; None: there is none."""
        key = self._by_bearer.get(bearer_sha256)
        if key is None or not self._all[key].good(now):
            return None
        link = self._all[key]
        return Caller(
            team=key[0],
            agent=link.agent,
            operator=link.role == Role.OPERATOR,
            observer=link.role == Role.OBSERVER,
            link_id=link.id,
            viewer=link.kind == VIEW,
            payloads=link.payloads,
        )


def read(record: Record) -> Link:
    """Return the link in a record."""
    return msgspec.json.decode(record.json, type=Link)


def view_bearer(code: str) -> str:
    """Return the bearer of a view link: whoever has the code can redeem it as often as wanted."""
    return _VIEW_PREFIX + hashlib.sha256(b"nodrop view\0" + code.encode()).hexdigest()
