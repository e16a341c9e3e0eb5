"""The operations about agents and people themselves: joining, tokens, notes on the team's log."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from nodrop.log.port import Key, Token, Wanted
from nodrop.model.contract import Agent, Manifest
from nodrop.model.errors import (
    ForbiddenError,
    InvalidRequestError,
    LimitReachedError,
    NameTakenError,
    NotFoundError,
    Problem,
)
from nodrop.model.names import RESERVED, folded
from nodrop.model.roles import Role
from nodrop.protocol import canonical, requests, views
from nodrop.protocol.entries import Draft
from nodrop.protocol.times import format_time
from nodrop.relay.batch import Batch
from nodrop.relay.directory.manifests import read_manifest
from nodrop.relay.directory.register import Register
from nodrop.relay.engine import Engine
from nodrop.relay.handoffs.repeats import done_before, request_digest
from nodrop.relay.identity.access import ROLES, Access, hashed
from nodrop.relay.intake import Intake
from nodrop.relay.jobs import FunctionJob, Job
from nodrop.relay.ports import Ids
from nodrop.relay.shows import Caller

_NOTED: Final = "team.noted.v1"


class People:
    """Keeps the register of agents and their tokens, in the log like everything else."""

    def __init__(
        self, engine: Engine, *, register: Register, access: Access, intake: Intake, ids: Ids
    ) -> None:
        self._engine = engine
        self._register = register
        self._access = access
        self._intake = intake
        self._ids = ids
        self._minting: Counter[Key] = Counter()
        """Tokens that are being made, by team and agent."""

    # --- agents ---

    async def register(
        self, caller: Caller, agent: str, manifest: bytes, command_id: str | None
    ) -> None:
        """Publish a manifest. The same one again changes nothing."""
        self._intake.agent(agent, "agent_id")
        if caller.agent != agent and not caller.operator:
            raise ForbiddenError(f"{caller.agent} cannot publish a manifest for {agent}")
        self.check_name(caller.team, agent, "agent_id")
        self._intake.bounded(manifest)
        read = read_manifest(manifest, agent, self._engine.limits)
        known = self._register.get(caller.team, agent)
        if known is not None and known[1] == manifest and known[0].version > 0:
            return

        def run(batch: Batch) -> tuple[Agent, bytes]:
            self._require_unlike(batch, caller.team, agent, "agent_id")
            version = self._register.last_version(caller.team, agent) + 1
            made = Agent(
                team=caller.team,
                id=agent,
                version=version,
                manifest=read,
                registered_at=batch.now,
            )
            batch.register(made, manifest)
            data = {
                "agent": agent,
                "version": version,
                "capabilities": [c.name for c in read.capabilities],
            }
            batch.write(
                draft(
                    caller, batch, "agent.registered.v1", data, body=manifest, command_id=command_id
                )
            )
            return made, manifest

        job = FunctionJob(Wanted(), run, by=(caller.team, caller.agent))
        self._register.put(*await self._engine.submit(job))

    async def remove(self, caller: Caller, agent: str, command_id: str | None) -> None:
        """Take an agent off the register. Its mail is kept."""
        if caller.agent != agent and not caller.operator:
            raise ForbiddenError(f"{caller.agent} cannot remove {agent}")
        known = self._register.get(caller.team, agent)
        if known is None:
            raise NotFoundError("no such agent")

        def run(batch: Batch) -> tuple[Agent, bytes]:
            gone = msgspec.structs.replace(known[0], removed_at=batch.now)
            batch.register(gone, known[1])
            data = {"agent": agent}
            batch.write(draft(caller, batch, "agent.removed.v1", data, command_id=command_id))
            return gone, known[1]

        self._register.put(*await self._engine.submit(FunctionJob(Wanted(), run)))

    # --- tokens ---

    async def create_token(
        self, caller: Caller, request: requests.CreateToken
    ) -> views.TokenAnswer:
        """Mint a token. An operator may mint for anybody, an agent for itself."""
        self.check_name(caller.team, request.agent, "agent")
        if request.role not in ROLES:
            problem = Problem(path="role", message=f"expected one of {', '.join(ROLES)}")
            raise InvalidRequestError("no such role", errors=(problem,))
        self._intake.text(request.label, "label")
        own = Role.OBSERVER if caller.observer else Role.AGENT
        itself = request.agent == caller.agent and request.role == own
        if not caller.operator and not itself:
            raise ForbiddenError("only an operator mints tokens for others")
        secret = f"nd_{self._ids.secret()}"
        holder = (caller.team, request.agent)
        if not caller.operator:
            self._require_room(holder)
        self._minting[holder] += 1
        try:
            token = await self._mint(caller, request.agent, request.role, secret, request.label)
        finally:
            self._minting[holder] -= 1
            if not self._minting[holder]:
                del self._minting[holder]
        return views.TokenAnswer(
            token_id=token.id, agent=token.agent, role=token.role, token=secret
        )

    def _require_room(self, holder: Key) -> None:
        """Refuse one token more than an agent may have made for itself."""
        team, agent = holder
        most = self._engine.limits.tokens_per_agent_max
        good = sum(t.agent == agent for t in self._access.of(team))
        if good + self._minting[holder] >= most:
            raise LimitReachedError(
                f"{agent} has {most} tokens",
                next_step="Revoke one that is not needed (`nodrop token --list`), or ask an operator.",
            )

    async def ensure_token(self, caller: Caller, *, agent: str, role: str, secret: str) -> None:
        """Make `secret` a token, unless it is one."""
        if not self._access.is_token(secret):
            await self._mint(caller, agent, role, secret, None)

    async def _mint(
        self, caller: Caller, agent: str, role: str, secret: str, label: str | None
    ) -> Token:
        token_id = self._ids.new()

        def run(batch: Batch) -> Token:
            token = Token(
                team=caller.team,
                id=token_id,
                secret_sha256=hashed(secret),
                agent=agent,
                role=role,
                label=label,
                created_at=batch.now,
            )
            batch.keep_token(token)
            data = {"token_id": token_id, "agent": agent, "role": role}
            batch.write(draft(caller, batch, "token.created.v1", data))
            self.admit(batch, caller.team, agent)
            return token

        job = FunctionJob(Wanted(), run, by=(caller.team, caller.agent))
        token = await self._engine.submit(job)
        self._access.put(token)
        return token

    def admit(self, batch: Batch, team: str, agent: str) -> None:
        """Have an agent that was let in on the register, even before it says what it can do."""
        if self._register.get(team, agent) is not None:
            return
        self._require_unlike(batch, team, agent, "agent")
        manifest = msgspec.json.encode({"agent_id": agent})
        joined = Agent(
            team=team,
            id=agent,
            version=self._register.last_version(team, agent),
            manifest=Manifest(agent_id=agent),
            registered_at=batch.now,
        )
        batch.register(joined, manifest)

    def check_name(self, team: str, agent: str | None, path: str) -> None:
        """Refuse a name that no agent can get; one that is known keeps it.

        Raises:
            InvalidRequestError: it cannot be a name, or is reserved.
            NameTakenError: another agent has a name that differs only in case or dots at its end.
        """
        self._intake.agent(agent, path)
        if agent is None or self._register.knows(team, agent):
            return
        if folded(agent) in RESERVED:
            problem = Problem(path=path, message=f"{agent} is a reserved name")
            raise InvalidRequestError(
                f"no agent can be called {agent}",
                errors=(problem,),
                next_step="Choose another name.",
            )
        other = self._register.like(team, agent)
        if other is not None and other != agent:
            raise _too_alike(agent, other, path)

    def _require_unlike(self, batch: Batch, team: str, agent: str, path: str) -> None:
        """Refuse a name where an agent with one much like it has joined since it was asked for."""
        self.check_name(team, agent, path)
        for other in batch.registered(team):
            if other != agent and folded(other) == folded(agent):
                raise _too_alike(agent, other, path)

    def known(self, team: str, agent: str) -> bool:
        """Whether anybody goes by this name, or did."""
        return self._register.knows(team, agent)

    def tokens(self, caller: Caller, agent: str | None) -> list[views.TokenView]:
        """Return the tokens that are good, of one agent or of all that the caller may know of."""
        self._intake.agent(agent, "agent")
        return [
            views.TokenView(
                token_id=token.id,
                agent=token.agent,
                role=token.role,
                label=token.label,
                created_at=format_time(token.created_at),
            )
            for token in self._access.of(caller.team)
            if agent in {None, token.agent} and (caller.operator or token.agent == caller.agent)
        ]

    async def revoke_token(self, caller: Caller, token_id: str) -> views.TokenAnswer:
        """End a token at once."""
        token = self._access.find(caller.team, token_id)
        if token is None or not (caller.operator or token.agent == caller.agent):
            raise NotFoundError("no such token")

        def run(batch: Batch) -> Token:
            revoked = msgspec.structs.replace(token, revoked_at=batch.now)
            batch.keep_token(revoked)
            data = {"token_id": token_id, "agent": token.agent}
            batch.write(draft(caller, batch, "token.revoked.v1", data))
            return revoked

        if token.revoked_at is None:
            self._access.put(await self._engine.submit(FunctionJob(Wanted(), run)))
        return views.TokenAnswer(token_id=token.id, agent=token.agent, role=token.role)

    # --- notes ---

    async def note(self, caller: Caller, body: bytes, request: requests.Note) -> int:
        """Write on the team's log; return where it stands."""
        wanted = Wanted()
        command_id = request.command_id
        asked = None
        if command_id is not None:
            wanted = Wanted(commands=frozenset({(caller.team, caller.agent, command_id)}))
            asked = request_digest(request, "team")

        def run(batch: Batch) -> Callable[[Sequence[int]], int]:
            if places := done_before(
                batch, caller, command_id, leaves=frozenset({_NOTED}), request=asked
            ):
                before = places[0].seq
                return lambda _: before
            at = batch.written(caller.team, caller.agent, command_id)
            if at is None:
                at = batch.write(draft(caller, batch, _NOTED, {}, body=body, command_id=command_id))
            return lambda seqs: seqs[at]

        job: Job[object] = FunctionJob(wanted, run, by=(caller.team, caller.agent))
        seq = await self._engine.submit(job)
        assert isinstance(seq, int), "the engine fills in the sequence numbers"
        return seq


def draft(
    caller: Caller,
    batch: Batch,
    name: str,
    data: Mapping[str, object],
    *,
    body: bytes | None = None,
    command_id: str | None = None,
) -> Draft:
    """Return an entry about the team."""
    return Draft(
        team=caller.team,
        at=batch.now,
        type=name,
        actor=caller.agent,
        command_id=command_id,
        data=msgspec.Raw(canonical.dumps(data)),
        body=body,
    )


def _too_alike(agent: str, other: str, path: str) -> NameTakenError:
    return NameTakenError(
        f"{agent} is too much like {other}, which is an agent of the team",
        errors=(Problem(path=path, message=f"too much like {other}"),),
    )
