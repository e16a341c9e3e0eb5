"""What a relay publishes about its agents: signed cards, and who is there at all."""

from collections.abc import Callable

from a2a.types import AgentCard

from nodrop.relay.relay import Caller, Relay, operator_of
from nodrop.servers.a2a import cards
from nodrop.servers.a2a.calling.visit import View, Visit, Way
from nodrop.servers.a2a.signing import CardKeys


class Publishing:
    """The cards of one relay."""

    def __init__(
        self, relay: Relay, way: Callable[[Caller], Way], keys: CardKeys, *, team: str
    ) -> None:
        self._relay = relay
        self._way = way
        self._keys = keys
        self._team = team

    def address(self, base: str, team: str, agent: str) -> str:
        """Return where an agent is spoken to; the relay itself, if it is none."""
        if not agent:
            return f"{base}/a2a"
        return f"{base}{'' if team == self._team else f'/teams/{team}'}/agents/{agent}"

    async def agent(self, team: str, agent: str) -> View:
        """Return an agent of a team.

        Raises:
            NotFoundError: nobody of that name has joined.
        """
        way = self._way(operator_of(team))
        return (await way.call("get_agent", {}, name=agent))["agent"]

    async def agents(self, team: str, *, public_only: bool) -> list[View]:
        """Return the agents of a team, in the order of their names."""
        found = (await self._way(operator_of(team)).call("agents", {}))["agents"]
        return [a for a in found if not public_only or self.is_public(team, a["agent_id"])]

    def is_public(self, team: str, agent: str) -> bool:
        """Whether callers without a token may hand an agent work."""
        return self._relay.reaches.get(team, agent).public

    async def manifest(self, visit: Visit) -> View | None:
        """Return what the agent that is visited says it can do; None at the front desk."""
        if not visit.agent:
            return None
        return (await self.agent(visit.caller.team, visit.agent))["manifest"]

    async def card(
        self, team: str, agent: str, *, base: str, grpc: str | None
    ) -> tuple[AgentCard, str]:
        """Return the card of an agent, for everybody, and when the agent last changed."""
        public = self.is_public(team, agent)
        address = self.address(base, team, agent)
        found = await self.agent(team, agent)
        made = cards.card(found, address, public=public, grpc=grpc)
        return self._keys.sign(made, base=base), found["registered_at"]

    async def front_desk(self, team: str, *, base: str, public_only: bool) -> AgentCard:
        """Return the card of the relay itself."""
        found = await self.agents(team, public_only=public_only)
        made = cards.front_desk(found, self.address(base, team, ""))
        return self._keys.sign(made, base=base)

    async def extended(self, visit: Visit) -> AgentCard:
        """Return the card of an agent, for members of its team."""
        team, base = visit.caller.team, visit.base
        if not visit.agent:
            return await self.front_desk(team, base=base, public_only=False)
        made = cards.extended(
            await self.agent(team, visit.agent),
            self.address(base, team, visit.agent),
            public=self.is_public(team, visit.agent),
            grpc=visit.grpc,
        )
        return self._keys.sign(made, base=base)

    def jwks(self) -> bytes:
        """Return the keys that cards are signed with."""
        return self._keys.jwks()
