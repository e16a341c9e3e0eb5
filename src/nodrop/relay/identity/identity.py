"""Identity: everything by which a relay knows who somebody is, put together once.

Follows the commits, not the callers: a caller that went away before its answer leaves nothing
behind that the store does not say.
"""

from nodrop.log.port import Changes, Record, Store
from nodrop.model.errors import StoreUnavailableError
from nodrop.model.limits import Limits
from nodrop.relay.batch import Batch
from nodrop.relay.identity import invitations, keys, links, policies
from nodrop.relay.identity.access import Access
from nodrop.relay.identity.invitations import Invitations
from nodrop.relay.identity.keys import KeyRing
from nodrop.relay.identity.links import Links
from nodrop.relay.identity.policies import Policies
from nodrop.relay.identity.signing import Signing
from nodrop.relay.ports import Clock


class Identity:
    """Keys, tokens, invitations, links and the rules of every team."""

    def __init__(self, store: Store, *, clock: Clock, limits: Limits) -> None:
        self.keys = KeyRing(limits)
        self.invitations = Invitations()
        self.links = Links()
        self.policies = Policies()
        self.access = Access(
            store,
            clock=clock,
            keys=self.keys,
            invitations=self.invitations,
            links=self.links,
        )
        self.signing = Signing(self.keys, self.policies, clock=clock)
        self._store = store
        self.changing: Batch | None = None
        """What changes something of this once it is committed, if anything does."""

    async def load(self) -> None:
        """Read what the store knows."""
        await self.access.load()
        await self.load_records()

    async def load_records(self) -> None:
        """Read keys, invitations, links and rules, again where a commit left it open what was kept."""
        for record in await self._records():
            self._know(record)
        self.changing = None

    async def reload(self, team: str) -> None:
        """Read everything of a team again: another engine has changed some of it.

        Nothing of this team is committed here until that is known. Other teams go on meanwhile:
        what was read of them may be out of date by now.
        """
        await self.access.load(team)
        found = await self._records(team)
        self.invitations.keep_only(team, {r.id for r in found if r.kind == invitations.KIND})
        self.links.keep_only(team, {r.id for r in found if r.kind == links.KIND})
        for record in found:
            self._know(record)

    async def make_sure(self) -> None:
        """Read again what a batch would have changed that came to nothing, if there was one."""
        if self.changing is not None:
            await self.load_records()

    async def _records(self, team: str | None = None) -> list[Record]:
        kinds = (keys.KIND, invitations.KIND, links.KIND, policies.KIND)
        of = None if team is None else (team, "")
        return [record for kind in kinds for record in await self._store.records(kind, of=of)]

    def require_certainty(self, batch: Batch) -> None:
        """Refuse to decide on what an earlier batch may or may not have changed."""
        if self.changing not in {None, batch}:
            raise StoreUnavailableError

    def changes_with(self, batch: Batch) -> None:
        """Know that what is here changes if `batch` is committed."""
        self.changing = batch

    def committed(self, changes: Changes) -> None:
        """Know what a commit made true, before anything else is decided."""
        self.changing = None
        if changes.tokens or changes.records or changes.records_gone:
            self.learn(changes)

    def learn(self, changes: Changes) -> None:
        """Know what has changed, here or by another engine."""
        for token in changes.tokens:
            self.access.put(token)
        for record in changes.records:
            self._know(record)
        for team, kind, record_id in changes.records_gone:
            if kind == invitations.KIND:
                self.invitations.drop(team, record_id)
            elif kind == links.KIND:
                self.links.drop(team, record_id)

    def _know(self, record: Record) -> None:
        match record.kind:
            case keys.KIND:
                key = self.keys.put(record)
                if key.revoked_at is not None:
                    self.access.revocations.revoked(record.team, key.id)
            case invitations.KIND:
                self.invitations.put(record)
            case links.KIND:
                link = self.links.put(record)
                if link.revoked_at is not None:
                    self.access.revocations.revoked(record.team, link.id)
            case policies.KIND:
                self.policies.put(record)
            case _:
                pass  # somebody else's
