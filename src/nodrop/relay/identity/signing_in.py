"""Signing in: links are made, redeemed, listed and revoked.

Every change is an entry of the log and a record beside it, in one commit. Whether a one-time code is
still unused is looked at inside the batch: of two who redeem it at once, one is signed in.
"""

from collections.abc import Callable
from typing import Final, TypeVar

from msgspec.structs import replace

from nodrop.log.port import Wanted
from nodrop.model.errors import (
    ForbiddenError,
    InvalidRequestError,
    LimitReachedError,
    LinkInvalidError,
    Problem,
    UnavailableError,
)
from nodrop.model.limits import DAY, MINUTE
from nodrop.model.roles import Role
from nodrop.protocol import requests, views
from nodrop.protocol.identity import key_views
from nodrop.protocol.times import format_time
from nodrop.relay.batch import Batch
from nodrop.relay.engine import Engine
from nodrop.relay.identity import links
from nodrop.relay.identity.access import hashed
from nodrop.relay.identity.identity import Identity
from nodrop.relay.identity.links import Link
from nodrop.relay.identity.people import draft
from nodrop.relay.intake import Intake
from nodrop.relay.jobs import FunctionJob
from nodrop.relay.ports import Ids
from nodrop.relay.shows import Caller

T = TypeVar("T")

_DEFAULT_MS: Final = {links.SIGN_IN: 15 * MINUTE, links.VIEW: DAY}


class SigningIn:
    """Makes links and lets browsers in with them."""

    def __init__(self, engine: Engine, identity: Identity, *, intake: Intake, ids: Ids) -> None:
        self._engine = engine
        self._identity = identity
        self._links = identity.links
        self._intake = intake
        self._ids = ids

    async def create(self, caller: Caller, request: requests.CreateLink) -> key_views.LinkAnswer:
        """Make a link; its code is in the answer and nowhere else."""
        if request.kind not in links.KINDS:
            raise _invalid("kind", f"expected one of {', '.join(links.KINDS)}")
        view = request.kind == links.VIEW
        if view and not caller.sees_team:
            raise ForbiddenError("only an operator or an observer makes a view link")
        if view and request.payloads and not caller.operator:
            raise ForbiddenError("only an operator makes a view link that shows payloads")
        now, limits = self._engine.now(), self._engine.limits
        default = _DEFAULT_MS[request.kind]
        expires_at = self._intake.due(request.expires_in, "expires_in", default, now=now)
        if expires_at - now > limits.link_ms_max:
            raise _invalid("expires_in", "too far in the future")
        known = self._links.of(caller.team)
        if sum(link.good(now) for link in known) >= limits.links_max:
            raise LimitReachedError(
                f"{limits.links_max} links of this team still count",
                next_step="Revoke some: `nodrop token --list`, `nodrop token --revoke ID`.",
            )
        stale = [link.id for link in known if not link.good(now)]
        code = self._ids.secret()
        bearer = links.view_bearer(code) if view else None
        link_id = self._ids.new()

        def run(batch: Batch) -> Link:
            made = Link(
                id=link_id,
                kind=request.kind,
                code_sha256=hashed(code),
                agent=links.VIEWER if view else caller.agent,
                role=Role.OBSERVER if view else caller.role,
                payloads=view and request.payloads,
                created_by=caller.agent,
                created_at=batch.now,
                expires_at=expires_at,
                bearer_sha256=None if bearer is None else hashed(bearer),
            )
            self._keep(batch, caller.team, made)
            for gone in stale:
                batch.drop_record(caller.team, links.KIND, gone)
            data = {
                "link_id": made.id,
                "kind": made.kind,
                "agent": made.agent,
                "role": made.role,
                "payloads": made.payloads,
                "expires_at": made.expires_at,
            }
            batch.write(
                draft(caller, batch, "link.created.v1", data, command_id=request.command_id)
            )
            return made

        made = await self._submit(run)
        return key_views.LinkAnswer(
            token_id=made.id,
            kind=made.kind,
            code=code,
            path=f"/#signin={code}",
            expires_at=format_time(made.expires_at),
        )

    async def redeem(
        self, caller: Caller, request: requests.RedeemLink
    ) -> key_views.SignedInAnswer:
        """Return the bearer that a code stands for. Whoever has the code may ask."""
        found = self._links.find(hashed(request.code))
        if found is None or caller.team not in {"", found[0]}:
            raise LinkInvalidError
        team, known = found
        if known.kind == links.VIEW:
            if not known.redeemable(self._engine.now()):
                raise LinkInvalidError
            return _signed_in(team, known, links.view_bearer(request.code))
        bearer = f"nds_{self._ids.secret()}"
        itself = Caller(team=team, agent=known.agent)

        def run(batch: Batch) -> Link:
            link = self._link(batch, team, known.id)
            if link is None or not link.redeemable(batch.now):
                raise LinkInvalidError
            used = replace(
                link,
                used_at=batch.now,
                bearer_sha256=hashed(bearer),
                bearer_expires_at=batch.now + self._engine.limits.sign_in_ms,
            )
            self._keep(batch, team, used)
            data = {"link_id": link.id, "expires_at": used.bearer_expires_at}
            batch.write(draft(itself, batch, "link.redeemed.v1", data))
            return used

        return _signed_in(team, await self._submit(run), bearer)

    def listed(self, caller: Caller, agent: str | None) -> list[views.TokenView]:
        """Return the links that count, as tokens are listed."""
        now = self._engine.now()
        return [
            views.TokenView(
                token_id=link.id,
                agent=link.agent,
                role=link.role,
                label=f"made by {link.created_by}",
                created_at=format_time(link.created_at),
                kind=link.kind,
                expires_at=format_time(link.ends_at),
                used_at=None if link.used_at is None else format_time(link.used_at),
                payloads=link.payloads,
            )
            for link in self._links.of(caller.team)
            if link.good(now) and link.belongs_to(caller) and agent in {None, link.agent}
        ]

    async def revoke(self, caller: Caller, link_id: str) -> views.TokenAnswer | None:
        """End a link and its bearer at once; None: the caller knows of no such link."""
        known = self._links.get(caller.team, link_id)
        if known is None or not known.belongs_to(caller):
            return None

        def run(batch: Batch) -> Link:
            link = self._link(batch, caller.team, link_id) or known
            if link.revoked_at is not None:
                return link
            revoked = replace(link, revoked_at=batch.now)
            self._keep(batch, caller.team, revoked)
            data = {"link_id": link_id, "agent": link.agent}
            batch.write(draft(caller, batch, "link.revoked.v1", data))
            return revoked

        ended = await self._submit(run)
        return views.TokenAnswer(token_id=ended.id, agent=ended.agent, role=ended.role)

    def _link(self, batch: Batch, team: str, link_id: str) -> Link | None:
        """Return a link as the batch has it now."""
        changed = batch.record(team, links.KIND, link_id)
        return self._links.get(team, link_id) if changed is None else links.read(changed)

    def _keep(self, batch: Batch, team: str, link: Link) -> None:
        batch.keep_record(link.record(team))
        self._identity.changes_with(batch)

    async def _submit(self, change: Callable[[Batch], T]) -> T:
        def run(batch: Batch) -> T:
            self._identity.require_certainty(batch)
            return change(batch)

        try:
            return await self._engine.submit(FunctionJob(Wanted(), run))
        except UnavailableError:
            # It is unknown whether the commit was kept: read before anything is decided on it.
            await self._identity.load_records()
            raise


def _signed_in(team: str, link: Link, bearer: str) -> key_views.SignedInAnswer:
    return key_views.SignedInAnswer(
        token=bearer,
        token_id=link.id,
        team=team,
        agent=link.agent,
        role=link.role,
        payloads=link.payloads or link.role != Role.OBSERVER,
        expires_at=format_time(link.ends_at),
    )


def _invalid(path: str, message: str) -> InvalidRequestError:
    return InvalidRequestError(f"{path}: {message}", errors=(Problem(path=path, message=message),))
