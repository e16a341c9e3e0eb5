"""Microsoft Agent Framework: agents and workflows as agents; tools and participants that hand off.

An agent's request for approval is a question, and so is a workflow's request for information. The
session of an agent is parked with it, as is the last checkpoint of a workflow.
"""

from collections.abc import Callable
from typing import Unpack

from nodrop.adapters.agent_framework.agents import AgentDriver, RemoteAgent
from nodrop.adapters.agent_framework.workflows import WorkflowDriver
from nodrop.adapters.port.events import Driver
from nodrop.adapters.port.handing import Handing, HandOff
from nodrop.adapters.port.installed import needs
from nodrop.adapters.port.serving import Terms, agent_of
from nodrop.client.agent import Agent
from nodrop.client.settings import Address, CaFile

with needs("agent-framework-core", "1.23", extra="agent-framework"):
    from agent_framework import FunctionTool, SupportsAgentRun, Workflow

__all__ = ["as_agent", "hand_off_tool", "remote_agent", "serve"]

Target = SupportsAgentRun | Workflow | Callable[[], Workflow]


def as_agent(target: Target, *, agent: str, **terms: Unpack[Terms]) -> Agent:
    """Return an agent that has `target` work on each handoff.

    A workflow runs once at a time; a function that builds it makes one for each handoff.
    """
    if isinstance(target, Workflow):
        terms.setdefault("concurrency", 1)
    driver: Driver = (
        AgentDriver(target)
        if isinstance(target, SupportsAgentRun) and not isinstance(target, Workflow)
        else WorkflowDriver(target)
    )
    return agent_of(driver, agent, "agent-framework", terms)


async def serve(
    target: Target,
    *,
    agent: str,
    address: Address | None = None,
    ca: CaFile | None = None,
    **terms: Unpack[Terms],
) -> None:
    """Work as `agent` until stopped or cancelled; see `as_agent`, and `Agent.serve` for `address` and `ca`."""
    await as_agent(target, agent=agent, **terms).serve(address, ca=ca)


def hand_off_tool(to: str | None = None, **terms: Unpack[Handing]) -> FunctionTool:
    """Return a tool that hands a task over and brings the result."""
    hand_off = HandOff(to, terms)
    return FunctionTool(
        name=hand_off.name, description=hand_off.description, func=hand_off.function()
    )


def remote_agent(to: str, **terms: Unpack[Handing]) -> RemoteAgent:
    """Return an agent who is somewhere else: a participant of workflows, or `as_tool()`."""
    hand_off = HandOff(to, terms)
    return RemoteAgent(hand_off, name=hand_off.participant, description=hand_off.description)
