"""Joining and leaving: invitations, keys, and the rules of a team.

Every change is an entry of the log and a record beside it, in one commit. What a change depends on
is looked at inside the batch: of two who come with one invitation, one joins.
"""

from collections.abc import Callable, Mapping
from typing import Final, TypeVar

import msgspec
from msgspec.structs import replace

from nodrop.log.port import Record, Store, Wanted
from nodrop.model.errors import (
    ConflictError,
    ForbiddenError,
    InvalidRequestError,
    InvitationUsedError,
    LimitReachedError,
    NotFoundError,
    Problem,
    SignatureInvalidError,
    UnauthenticatedError,
    UnavailableError,
)
from nodrop.model.limits import DAY
from nodrop.model.policy import ANY, STEPS, Allow, Policy, Signatures
from nodrop.protocol import requests
from nodrop.protocol.identity import invitations as wire_invitations
from nodrop.protocol.identity import key_views, signatures
from nodrop.protocol.identity.invitations import Hint
from nodrop.protocol.identity.keys import PublicKey
from nodrop.protocol.times import format_time
from nodrop.protocol.view import View
from nodrop.relay.batch import Batch
from nodrop.relay.engine import Engine
from nodrop.relay.identity import invitations, keys, policies
from nodrop.relay.identity.access import ROLES, hashed
from nodrop.relay.identity.identity import Identity
from nodrop.relay.identity.invitations import Invitation
from nodrop.relay.identity.keys import Key
from nodrop.relay.identity.people import People, draft
from nodrop.relay.intake import Intake
from nodrop.relay.jobs import FunctionJob
from nodrop.relay.ports import Ids, Signer
from nodrop.relay.shows import Caller

T = TypeVar("T")

_FORGOTTEN_MS: Final = 7 * DAY
"""How long an invitation is remembered past its end."""


class Membership:
    """Who belongs to a team, and with which keys."""

    def __init__(
        self,
        engine: Engine,
        store: Store,
        identity: Identity,
        *,
        people: People,
        intake: Intake,
        ids: Ids,
        signer: Signer,
    ) -> None:
        self._engine = engine
        self._store = store
        self._identity = identity
        self._ring = identity.keys
        self._invitations = identity.invitations
        self._policies = identity.policies
        self._people = people
        self._intake = intake
        self._ids = ids
        self._signer = signer

    async def call(self, caller: Caller, request: requests.Request, name: str | None) -> View:
        """Carry out an operation about membership."""
        match request:
            case requests.CreateInvitation():
                return await self._invite(caller, request)
            case requests.ListInvitations():
                return self._list_invitations(caller)
            case requests.RevokeInvitation():
                return await self._withdraw(caller, name or request.invitation_id)
            case requests.Join():
                return await self._join(caller, request)
            case requests.AddKey():
                return await self._add_key(caller, request)
            case requests.ListKeys():
                listed = tuple(map(_key_view, self._ring.of(caller.team, request.agent)))
                return key_views.KeysAnswer(
                    team=caller.team, keys=listed, relay_public_key=self._signer.public_key
                )
            case requests.RevokeKey():
                return await self._revoke_key(caller, name or request.key_id)
            case requests.GetPolicy():
                return policies.view(self._policies.get(caller.team))
            case requests.SetPolicy():
                return await self._set_policy(caller, request)
            case _:
                raise NotFoundError("no such operation")

    # --- invitations ---

    async def _invite(
        self, caller: Caller, request: requests.CreateInvitation
    ) -> key_views.InvitationAnswer:
        _require_operator(caller, "invites")
        self._people.check_name(caller.team, request.agent, "agent")
        _check_role(request.role)
        now, limits = self._engine.now(), self._engine.limits
        expires_at = self._intake.due(request.expires, "expires", DAY, now=now)
        if expires_at - now > limits.invitation_ms_max:
            raise _invalid("expires", "too far in the future")
        known = self._invitations.of(caller.team)
        if sum(i.open(now) for i in known) >= limits.invitations_max:
            raise LimitReachedError(f"{limits.invitations_max} invitations are open")
        stale = [i.id for i in known if i.expires_at + _FORGOTTEN_MS < now]
        hint = Hint(team=caller.team, agent=request.agent)
        secret = wire_invitations.write(hint, self._ids.secret())
        invitation_id = self._ids.new()

        def run(batch: Batch) -> Invitation:
            made = Invitation(
                id=invitation_id,
                secret_sha256=hashed(secret),
                agent=request.agent,
                role=request.role,
                created_by=caller.agent,
                created_at=batch.now,
                expires_at=expires_at,
            )
            self._keep(batch, made.record(caller.team))
            for gone in stale:
                batch.drop_record(caller.team, invitations.KIND, gone)
            data = {
                "invitation_id": made.id,
                "agent": made.agent,
                "role": made.role,
                "expires_at": made.expires_at,
                "nonce": made.secret_sha256,  # what the proof of whoever joins is over
            }
            batch.write(
                draft(caller, batch, "invitation.created.v1", data, command_id=request.command_id)
            )
            return made

        made = await self._submit(run)
        return msgspec.convert(
            {**msgspec.to_builtins(_invitation_view(made)), "invitation": secret},
            key_views.InvitationAnswer,
        )

    def _list_invitations(self, caller: Caller) -> key_views.InvitationsAnswer:
        _require_operator(caller, "sees invitations")
        now = self._engine.now()
        still = (i for i in self._invitations.of(caller.team) if i.open(now))
        return key_views.InvitationsAnswer(invitations=tuple(map(_invitation_view, still)))

    async def _withdraw(self, caller: Caller, invitation_id: str) -> key_views.InvitationAnswer:
        _require_operator(caller, "takes invitations back")

        def run(batch: Batch) -> Invitation:
            found = self._invitation(batch, caller.team, invitation_id)
            if found is None:
                raise NotFoundError("no such invitation")
            if found.revoked_at is not None or found.used_at is not None:
                return found  # whoever joined has a key of its own, to be revoked by itself
            gone = replace(found, revoked_at=batch.now)
            self._keep(batch, gone.record(caller.team))
            data = {"invitation_id": gone.id}
            batch.write(draft(caller, batch, "invitation.revoked.v1", data))
            return gone

        found = await self._submit(run)
        return msgspec.convert(
            msgspec.to_builtins(_invitation_view(found)), key_views.InvitationAnswer
        )

    def _invitation(self, batch: Batch, team: str, invitation_id: str) -> Invitation | None:
        """Return an invitation as the batch has it now."""
        changed = batch.record(team, invitations.KIND, invitation_id)
        if changed is not None:
            return invitations.read(changed)
        return self._invitations.get(team, invitation_id)

    # --- keys ---

    async def _join(self, caller: Caller, request: requests.Join) -> key_views.KeyAnswer:
        invitation_id = caller.invitation_id
        if invitation_id is None:
            raise ForbiddenError("to join takes an invitation", next_step=_INVITED)
        known = self._invitations.get(caller.team, invitation_id)
        if known is None:
            raise UnauthenticatedError
        self._people.check_name(caller.team, request.agent, "agent")
        if known.agent not in {None, request.agent}:
            raise ForbiddenError(f"this invitation is for {known.agent}")
        public = self._proved(request, request.agent, nonce=known.secret_sha256)
        itself = replace(caller, agent=request.agent)

        def run(batch: Batch) -> Key:
            invitation = self._invitation(batch, caller.team, invitation_id)
            if invitation is None or not invitation.lives(batch.now):
                raise UnauthenticatedError
            if invitation.used_at is not None:
                return self._joined_before(batch, caller.team, invitation, public, request.agent)
            if invitation.agent is None and self._people.known(caller.team, request.agent):
                raise ForbiddenError(
                    f"there is an agent called {request.agent}",
                    next_step="Choose another name, or ask for an invitation in this one.",
                )
            more = {"invitation_id": invitation.id, "proof": request.proof}
            key = self._keep_key(
                batch,
                itself,
                request.agent,
                public,
                role=invitation.role,
                more=more,
                command_id=request.command_id,
            )
            used = replace(invitation, used_at=batch.now, key_id=key.id)
            self._keep(batch, used.record(caller.team))
            self._people.admit(batch, caller.team, request.agent)
            return key

        return self._key_answer(caller.team, await self._submit(run))

    def _joined_before(
        self, batch: Batch, team: str, invitation: Invitation, public: PublicKey, agent: str
    ) -> Key:
        """Return the key of an earlier `join`, to who made it and did not hear the answer."""
        key = self._key(batch, team, public.id)
        if key is None or invitation.key_id != public.id or key.agent != agent:
            raise InvitationUsedError
        return key

    async def _add_key(self, caller: Caller, request: requests.AddKey) -> key_views.KeyAnswer:
        agent = request.agent or caller.agent
        if agent != caller.agent and not caller.operator:
            raise ForbiddenError(f"{caller.agent} cannot add a key of {agent}")
        self._people.check_name(caller.team, agent, "agent")
        own = _role(caller) if agent == caller.agent else "agent"
        role = request.role or own
        _check_role(role)
        if role != own and not caller.operator:
            raise ForbiddenError("only an operator gives roles")
        if request.command_id is None:
            raise SignatureInvalidError("what is proved is for one command: it needs a command_id")
        public = self._proved(request, agent, nonce=request.command_id)
        overlap = self._intake.length(request.overlap, "overlap")

        def run(batch: Batch) -> Key:
            before = self._key(batch, caller.team, public.id)
            if before is not None and before.agent == agent and before.good(batch.now):
                return before
            mine = [k for k in self._ring.of(caller.team, agent) if k.good(batch.now)]
            mine = [self._key(batch, caller.team, k.id) or k for k in mine]
            if len(mine) >= self._engine.limits.keys_per_agent_max:
                raise LimitReachedError(f"{agent} has {len(mine)} keys that are good")
            older = keys.retired(mine, at=batch.now + overlap)
            more = {
                "proof": request.proof,
                "retires": [key.id for key in older],
                "retires_at": batch.now + overlap,
            }
            key = self._keep_key(
                batch,
                caller,
                agent,
                public,
                role=role,
                more=more,
                command_id=request.command_id,
            )
            for old in older:
                self._keep(batch, old.record(caller.team))
            self._people.admit(batch, caller.team, agent)
            return key

        return self._key_answer(caller.team, await self._submit(run))

    def _keep_key(
        self,
        batch: Batch,
        caller: Caller,
        agent: str,
        public: PublicKey,
        *,
        role: str,
        more: Mapping[str, object],
        command_id: str | None,
    ) -> Key:
        if self._key(batch, caller.team, public.id) is not None:
            raise ConflictError("this key was used before", next_step="Make a key of your own.")
        key = Key(id=public.id, agent=agent, role=role, public_key=public.text, added_at=batch.now)
        self._keep(batch, key.record(caller.team))
        data = {
            "key_id": key.id,
            "agent": agent,
            "role": role,
            "public_key": key.public_key,
            **more,
        }
        batch.write(draft(caller, batch, "key.added.v1", data, command_id=command_id))
        return key

    def _proved(
        self, request: requests.Join | requests.AddKey, agent: str, *, nonce: str
    ) -> PublicKey:
        try:
            public = PublicKey(request.public_key)
        except ValueError as error:
            raise _invalid("public_key", str(error)) from None
        try:
            signatures.check_proof(request.proof, public, agent=agent, nonce=nonce)
        except SignatureInvalidError as error:
            raise SignatureInvalidError(f"the proof: {error.detail}") from None
        return public

    async def _revoke_key(self, caller: Caller, key_id: str) -> key_views.KeyAnswer:
        def run(batch: Batch) -> Key:
            key = self._key(batch, caller.team, key_id)
            if key is None or not (caller.operator or key.agent == caller.agent):
                raise NotFoundError("no such key")
            if key.revoked_at is not None:
                return key
            revoked = replace(key, revoked_at=batch.now)
            self._keep(batch, revoked.record(caller.team))
            data = {"key_id": key.id, "agent": key.agent}
            batch.write(draft(caller, batch, "key.revoked.v1", data))
            return revoked

        return self._key_answer(caller.team, await self._submit(run))

    def _key(self, batch: Batch, team: str, key_id: str) -> Key | None:
        """Return a key as the batch has it now."""
        changed = batch.record(team, keys.KIND, key_id)
        if changed is not None:
            return msgspec.json.decode(changed.json, type=Key)
        return self._ring.get(team, key_id)

    def _key_answer(self, team: str, key: Key) -> key_views.KeyAnswer:
        return key_views.KeyAnswer(
            team=team, key=_key_view(key), relay_public_key=self._signer.public_key
        )

    async def _submit(self, change: Callable[[Batch], T]) -> T:
        def run(batch: Batch) -> T:
            self._identity.require_certainty(batch)
            return change(batch)

        try:
            return await self._engine.submit(FunctionJob(Wanted(), run))
        except UnavailableError:
            # Nobody knows whether it was kept: look, before anything else is decided on it.
            await self._identity.load_records()
            raise

    def _keep(self, batch: Batch, record: Record) -> None:
        batch.keep_record(record)
        self._identity.changes_with(batch)

    # --- the rules ---

    async def _set_policy(
        self, caller: Caller, request: requests.SetPolicy
    ) -> key_views.PolicyAnswer:
        _require_operator(caller, "sets the rules")
        if request.signatures not in set(Signatures):
            raise _invalid("signatures", f"expected one of {', '.join(Signatures)}")
        most = self._engine.limits.allow_rules_max
        if len(request.allow) > most:
            raise _invalid("allow", f"at most {most}")
        for index, rule in enumerate(request.allow):
            for field, name in (("from", rule.from_), ("to", rule.to)):
                self._intake.agent(None if name == ANY else name, f"allow[{index}].{field}")
            self._intake.name(rule.capability, f"allow[{index}].capability")
        policy = Policy(
            signatures=Signatures(request.signatures),
            allow=tuple(
                Allow(from_=rule.from_, to=rule.to, capability=rule.capability)
                for rule in request.allow
            ),
            escalation=STEPS
            if request.escalation is None
            else self._intake.team_steps(request.escalation),
        )

        def run(batch: Batch) -> Policy:
            self._keep(batch, policies.record(caller.team, policy))
            data = msgspec.to_builtins(policy)
            batch.write(draft(caller, batch, "policy.set.v1", data, command_id=request.command_id))
            return policy

        return policies.view(await self._submit(run))


_INVITED: Final = "Send `Authorization: Bearer INVITATION`; an operator makes one."


def _require_operator(caller: Caller, what: str) -> None:
    if not caller.operator:
        raise ForbiddenError(f"only an operator {what}")


def _role(caller: Caller) -> str:
    if caller.operator:
        return "operator"
    return "observer" if caller.observer else "agent"


def _check_role(role: str) -> None:
    if role not in ROLES:
        raise _invalid("role", f"expected one of {', '.join(ROLES)}")


def _invalid(path: str, message: str) -> InvalidRequestError:
    return InvalidRequestError(f"{path}: {message}", errors=(Problem(path=path, message=message),))


def _invitation_view(invitation: Invitation) -> key_views.InvitationView:
    return key_views.InvitationView(
        invitation_id=invitation.id,
        agent=invitation.agent,
        role=invitation.role,
        expires_at=format_time(invitation.expires_at),
        used_at=_time(invitation.used_at),
        revoked_at=_time(invitation.revoked_at),
    )


def _key_view(key: Key) -> key_views.KeyView:
    return key_views.KeyView(
        key_id=key.id,
        agent=key.agent,
        role=key.role,
        public_key=key.public_key,
        added_at=format_time(key.added_at),
        expires_at=_time(key.expires_at),
        revoked_at=_time(key.revoked_at),
    )


def _time(ms: int | None) -> str | None:
    return None if ms is None else format_time(ms)
