"""A2A: an agent that speaks the Agent2Agent protocol elsewhere, as an agent of the team.

The way to OpenClaw, ADK's `to_a2a` and any other A2A server, without code of ours in it. A task that
requires input is a question, answered in the same task.
"""

from typing import Unpack

from nodrop.adapters.a2a.tasks import TaskDriver
from nodrop.adapters.port.installed import needs
from nodrop.adapters.port.serving import Terms, agent_of
from nodrop.client.agent import Agent
from nodrop.client.settings import Address

with needs("a2a-sdk", "1.3", extra="a2a"):
    from a2a.types import AgentCard, AgentInterface

__all__ = ["as_agent", "endpoint", "serve"]


def as_agent(
    target: str | AgentCard, *, agent: str, token: str | None = None, **terms: Unpack[Terms]
) -> Agent:
    """Return an agent whose work is done by the A2A agent at a URL or of a card.

    `token` is the bearer token it wants; see `endpoint` for servers without a card.
    """
    return agent_of(TaskDriver(target, token), agent, "a2a", terms)


async def serve(
    target: str | AgentCard,
    *,
    agent: str,
    address: Address | None = None,
    token: str | None = None,
    **terms: Unpack[Terms],
) -> None:
    """Work as `agent` until stopped or cancelled; see `as_agent`."""
    await as_agent(target, agent=agent, token=token, **terms).serve(address)


def endpoint(url: str) -> AgentCard:
    """Return a card for an A2A 1.0 JSON-RPC address whose card is not needed, such as OpenClaw's."""
    way = AgentInterface(url=url, protocol_binding="JSONRPC", protocol_version="1.0")
    return AgentCard(name="remote", supported_interfaces=[way])
