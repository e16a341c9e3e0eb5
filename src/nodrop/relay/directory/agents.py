"""Handlers of the operations about agents: who there is, what they can do, and how they come in."""

from collections.abc import Sequence
from typing import Final

from nodrop.model.errors import NotFoundError
from nodrop.protocol import directory, views
from nodrop.protocol.identity import key_views
from nodrop.relay.asking import Asking, Handler, Reply, showing
from nodrop.relay.directory.contracts import Contracts
from nodrop.relay.directory.discovery import Discovery
from nodrop.relay.directory.reach import Reaches
from nodrop.relay.directory.register import Register
from nodrop.relay.identity.membership import Membership
from nodrop.relay.identity.people import People
from nodrop.relay.identity.signing_in import SigningIn
from nodrop.relay.intake import Intake
from nodrop.relay.ports import Clock

OF_MEMBERSHIP: Final = (
    *("create_invitation", "list_invitations", "revoke_invitation", "join"),
    *("add_key", "keys", "revoke_key", "get_policy", "set_policy"),
)


class Agents:
    """Carries out the operations that are about the agents of a team."""

    def __init__(
        self,
        *,
        register: Register,
        discovery: Discovery,
        contracts: Contracts,
        people: People,
        reaches: Reaches,
        membership: Membership,
        signing_in: SigningIn,
        intake: Intake,
        clock: Clock,
    ) -> None:
        self._register = register
        self._discovery = discovery
        self._contracts = contracts
        self._people = people
        self._reaches = reaches
        self._membership = membership
        self._signing_in = signing_in
        self._intake = intake
        self._clock = clock

    def handlers(self) -> dict[str, Handler]:
        """Return what carries out each operation."""
        return {
            "agents": self._list,
            "get_agent": lambda a: self._shown(a.caller.team, a.name or a.request.agent),
            "contract": self._contract,
            "register": self._register_agent,
            "remove_agent": self._remove,
            "create_token": showing(lambda a: self._people.create_token(a.caller, a.request)),
            "list_tokens": self._list_tokens,
            "revoke_token": self._revoke_token,
            "create_link": showing(lambda a: self._signing_in.create(a.caller, a.request)),
            "redeem_link": showing(lambda a: self._signing_in.redeem(a.caller, a.request)),
            "whoami": _who_am_i,
            **dict.fromkeys(("get_reach", "set_reach"), showing(self._reach)),
            **dict.fromkeys(OF_MEMBERSHIP, showing(self._membership_of)),
        }

    def _list(self, asking: Asking) -> Reply:
        return Reply(answer=self._discovery.answer(asking.caller.team, asking.request))

    def _contract(self, asking: Asking) -> Reply:
        caller, now = asking.caller, self._clock.now()
        made = self._contracts.negotiate(caller.team, caller.agent, asking.request, now=now)
        return Reply(answer=made)

    async def _register_agent(self, asking: Asking) -> Reply:
        caller, request = asking.caller, asking.request
        agent = asking.name or request.agent
        await self._people.register(caller, agent, bytes(request.manifest), request.command_id)
        return self._shown(caller.team, agent)

    async def _remove(self, asking: Asking) -> Reply:
        caller, agent = asking.caller, asking.name or asking.request.agent
        shown = self._shown(caller.team, agent)
        await self._people.remove(caller, agent, asking.request.command_id)
        return shown

    def _list_tokens(self, asking: Asking) -> Reply:
        tokens = self._people.tokens(asking.caller, asking.request.agent)
        tokens += self._signing_in.listed(asking.caller, asking.request.agent)
        limit = self._intake.limit(asking.request.limit)
        return Reply(answer=_page(tokens, asking.request.after, limit))

    async def _revoke_token(self, asking: Asking) -> Reply:
        caller, token_id = asking.caller, asking.name or asking.request.token_id
        ended = await self._signing_in.revoke(caller, token_id)
        return Reply(answer=ended or await self._people.revoke_token(caller, token_id))

    async def _reach(self, asking: Asking) -> views.View:
        agent = asking.name or asking.request.agent
        return await self._reaches.call(asking.caller, asking.request, agent)

    async def _membership_of(self, asking: Asking) -> views.View:
        return await self._membership.call(asking.caller, asking.request, asking.name)

    def manifest(self, team: str, agent: str) -> bytes:
        """Return an agent's manifest as it was sent."""
        known = self._register.get(team, agent)
        if known is None:
            raise NotFoundError("no such agent")
        return known[1]

    def _shown(self, team: str, agent: str) -> Reply:
        return Reply(answer=directory.AgentAnswer(agent=self._discovery.show(team, agent)))


def _who_am_i(asking: Asking) -> Reply:
    caller = asking.caller
    who = key_views.WhoAmIAnswer(team=caller.team, agent=caller.agent, role=caller.role.value)
    return Reply(answer=who)


def _page(tokens: Sequence[views.TokenView], after: str | None, limit: int) -> views.TokensAnswer:
    """Return tokens in the order in which they were made, which is that of their ids."""
    behind = sorted(
        (token for token in tokens if after is None or token.token_id > after),
        key=lambda token: token.token_id,
    )
    more = behind[limit - 1].token_id if len(behind) > limit else None
    return views.TokensAnswer(tokens=tuple(behind[:limit]), after=more)
