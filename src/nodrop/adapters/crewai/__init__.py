"""CrewAI: agents, crews and flows as agents; tools that hand off, and one that asks.

Agents and crews block in threads, so a question holds the run: `human_input=True` asks, and so does
`ask_tool`. A flow is parked where `@human_feedback(provider=Parking())` asks. What is not verbose
prints nothing. CrewAI phones home unless its own variables say otherwise; see docs/frameworks.md.
"""

from typing import Any, Unpack

from nodrop.adapters.crewai.crews import CrewDriver
from nodrop.adapters.crewai.flows import FlowDriver, Parking
from nodrop.adapters.port.current import working
from nodrop.adapters.port.events import Driver, text
from nodrop.adapters.port.handing import Handing, HandOff, parsed
from nodrop.adapters.port.installed import needs
from nodrop.adapters.port.serving import Terms, agent_of
from nodrop.client.agent import Agent
from nodrop.client.settings import Address, CaFile

with needs("crewai", "1.15.28", extra="crewai"):
    import crewai
    from crewai.flow import Flow
    from crewai.tools import BaseTool

__all__ = ["Parking", "as_agent", "ask_tool", "hand_off_tool", "serve"]

Target = crewai.Agent | crewai.Crew | type[Flow[Any]]


def as_agent(target: Target, *, agent: str, **terms: Unpack[Terms]) -> Agent:
    """Return an agent that has an agent, a crew or a class of flows work on each handoff.

    An agent reads the payload as text. A crew's inputs, and a flow's, are the payload's fields.
    """
    driver: Driver = FlowDriver(target) if isinstance(target, type) else CrewDriver(target)
    return agent_of(driver, agent, "crewai", terms)


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


def hand_off_tool(to: str | None = None, **terms: Unpack[Handing]) -> BaseTool:
    """Return a tool that hands a task over and brings the result."""
    hand_off = HandOff(to, terms)

    class HandOffTool(BaseTool):
        name: str = hand_off.name
        description: str = hand_off.description

        def _run(self, task: str, context_json: str = "") -> str:
            return hand_off.call_sync(task, parsed(context_json)).text

        async def _arun(self, task: str, context_json: str = "") -> str:
            return (await hand_off(task, parsed(context_json))).text

    return HandOffTool()


def ask_tool(to: str | None = None, *, name: str = "ask_for_help") -> BaseTool:
    """Return a tool that asks whoever handed the work over, and waits for the answer."""
    called = name

    class AskTool(BaseTool):
        name: str = called
        description: str = "Ask whoever gave you the task, and wait for the answer."

        def _run(self, question: str) -> str:
            return text(working().ask_sync(question, to))

        async def _arun(self, question: str) -> str:
            here = working()
            return text(await here.portal.awaited(here.ask(question, to)))

    return AskTool()
