"""What is asked about agents: who there is, what they can do, and how they come in.

Each request goes to whoever carries it out; what no other answers is about membership.
"""

from nodrop.core.errors import NotFoundError
from nodrop.engine.asking import Reply
from nodrop.engine.contracts import Contracts
from nodrop.engine.discovery import Discovery
from nodrop.engine.membership import Membership
from nodrop.engine.people import People
from nodrop.engine.ports import Clock
from nodrop.engine.reach import Reaches
from nodrop.engine.register import Register
from nodrop.engine.shows import Caller
from nodrop.engine.signing_in import SigningIn
from nodrop.engine.standings import Standings
from nodrop.wire import directory, key_views, requests, views
from nodrop.wire.requests import Request


class Agents:
    """Carries out the operations that are about the agents of a team."""

    def __init__(
        self,
        *,
        register: Register,
        discovery: Discovery,
        contracts: Contracts,
        people: People,
        standings: Standings,
        reaches: Reaches,
        membership: Membership,
        signing_in: SigningIn,
        clock: Clock,
    ) -> None:
        self._register = register
        self._discovery = discovery
        self._contracts = contracts
        self._people = people
        self._standings = standings
        self._reaches = reaches
        self._membership = membership
        self._signing_in = signing_in
        self._clock = clock

    async def call(self, caller: Caller, request: Request, name: str | None) -> Reply:
        """Carry out an operation about the agent `name`, or about all of them."""
        match request:
            case requests.ListAgents():
                return Reply(answer=self._discovery.answer(caller.team, request))
            case requests.GetAgent():
                return self._shown(caller.team, name or request.agent)
            case requests.Contract():
                now = self._clock.now()
                return Reply(
                    answer=self._contracts.negotiate(caller.team, caller.agent, request, now=now)
                )
            case requests.Register():
                agent = name or request.agent
                manifest = bytes(request.manifest)
                await self._people.register(caller, agent, manifest, request.command_id)
                await self._standings.joined(caller.team, agent)
                return self._shown(caller.team, agent)
            case requests.RemoveAgent():
                shown = self._shown(caller.team, name or request.agent)
                await self._people.remove(caller, name or request.agent, request.command_id)
                return shown
            case requests.CreateToken():
                return Reply(answer=await self._people.create_token(caller, request))
            case requests.ListTokens():
                tokens = self._people.tokens(caller, request.agent)
                tokens += self._signing_in.listed(caller, request.agent)
                return Reply(answer=views.TokensAnswer(tokens=tuple(tokens)))
            case requests.RevokeToken():
                token_id = name or request.token_id
                ended = await self._signing_in.revoke(caller, token_id)
                return Reply(answer=ended or await self._people.revoke_token(caller, token_id))
            case requests.CreateLink():
                return Reply(answer=await self._signing_in.create(caller, request))
            case requests.RedeemLink():
                return Reply(answer=await self._signing_in.redeem(caller, request))
            case requests.WhoAmI():
                who = key_views.WhoAmIAnswer(
                    team=caller.team, agent=caller.agent, role=caller.role.value
                )
                return Reply(answer=who)
            case requests.SetReach() | requests.GetReach():
                agent = name or request.agent
                return Reply(answer=await self._reaches.call(caller, request, agent))
            case _:
                return Reply(answer=await self._membership.call(caller, request, name))

    def manifest(self, team: str, agent: str) -> bytes:
        """Return an agent's manifest as it was sent."""
        known = self._register.get(team, agent)
        if known is None:
            raise NotFoundError("no such agent")
        return known[1]

    def _shown(self, team: str, agent: str) -> Reply:
        return Reply(answer=directory.AgentAnswer(agent=self._discovery.show(team, agent)))
