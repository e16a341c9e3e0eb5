"""A2A: an agent that speaks the Agent2Agent protocol elsewhere, as an agent of the team.

The way to OpenClaw, ADK's `to_a2a` and any other A2A server, without code of ours in it. A task that
requires input is a question, answered in the same task. An executor written with the SDK hands work
on with `hand_off`.
"""

from typing import Unpack

from nodrop.adapters.a2a.handing import Handing, HandOff
from nodrop.adapters.a2a.outcomes import Question, tell
from nodrop.adapters.a2a.tasks import TaskDriver, endpoint
from nodrop.adapters.port.handing import Answer
from nodrop.adapters.port.installed import needs
from nodrop.adapters.port.serving import Terms, agent_of
from nodrop.client.agent import Agent
from nodrop.client.settings import Address, CaFile

with needs("a2a-sdk", "1.3", extra="a2a"):
    from a2a.types import AgentCard

__all__ = ["Answer", "HandOff", "Question", "as_agent", "endpoint", "hand_off", "serve", "tell"]


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
    ca: CaFile | None = None,
    token: str | None = None,
    **terms: Unpack[Terms],
) -> None:
    """Work as `agent` until stopped or cancelled; see `as_agent`, and `Agent.serve` for `address` and `ca`."""
    await as_agent(target, agent=agent, token=token, **terms).serve(address, ca=ca)


def hand_off(to: str, **terms: Unpack[Handing]) -> HandOff:
    """Return what an executor hands work to `to` with: `await planner(context, "tides")`.

    What comes back is an `Answer` or a `Question`; `tell` has the executor's own task come to that.
    """
    return HandOff(to, terms)
