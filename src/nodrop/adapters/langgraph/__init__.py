"""LangGraph: compiled graphs as agents; tools and nodes that hand off.

An `interrupt()` is a question. A graph with a checkpointer keeps its own state and is parked by its
thread; without one, its checkpoints are parked with the handoff, so that any worker can go on.
"""

from collections.abc import Mapping
from typing import Any, Unpack

from nodrop.adapters.langgraph.graphs import Graph, GraphDriver
from nodrop.adapters.port.handing import Answer, Handing, HandOff, parsed
from nodrop.adapters.port.installed import needs
from nodrop.adapters.port.serving import Terms, agent_of
from nodrop.client.agent import Agent
from nodrop.client.settings import Address, CaFile

with needs("langgraph", "1.2", extra="langgraph"):
    from langchain_core.runnables import RunnableLambda
    from langchain_core.tools import StructuredTool

__all__ = ["as_agent", "hand_off_node", "hand_off_tool", "serve"]


def as_agent(
    graph: Graph, *, agent: str, answer: str | None = None, **terms: Unpack[Terms]
) -> Agent:
    """Return an agent that runs `graph` once per handoff.

    The payload's fields are the graph's input, and its text the message of a graph with messages.
    The result is the final state, or `answer` of it.
    """
    return agent_of(GraphDriver(graph, answer), agent, "langgraph", terms)


async def serve(
    graph: Graph,
    *,
    agent: str,
    address: Address | None = None,
    ca: CaFile | None = None,
    answer: str | None = None,
    **terms: Unpack[Terms],
) -> None:
    """Work as `agent` until stopped or cancelled; see `as_agent`, and `Agent.serve` for `address` and `ca`."""
    await as_agent(graph, agent=agent, answer=answer, **terms).serve(address, ca=ca)


def hand_off_tool(to: str | None = None, **terms: Unpack[Handing]) -> StructuredTool:
    """Return a tool, for agents and `ToolNode`, that hands a task over and brings the result."""
    hand_off = HandOff(to, terms)

    def blocking(task: str, context_json: str = "") -> str:
        return hand_off.call_sync(task, parsed(context_json)).text

    return StructuredTool.from_function(
        func=blocking,
        coroutine=hand_off.function(),
        name=hand_off.name,
        description=hand_off.description,
    )


def hand_off_node(
    to: str | None = None, *, task: str = "task", result: str = "result", **terms: Unpack[Handing]
) -> RunnableLambda[Any, dict[str, Any]]:
    """Return a node that hands over the state's `task` and puts what comes back into `result`."""
    hand_off = HandOff(to, terms)

    def said(answer: Answer) -> dict[str, Any]:
        return {result: answer.result if answer.done else answer.text}

    def blocking(state: Mapping[str, Any]) -> dict[str, Any]:
        return said(hand_off.call_sync(state[task]))

    async def node(state: Mapping[str, Any]) -> dict[str, Any]:
        return said(await hand_off(state[task]))

    return RunnableLambda(blocking, node, name=hand_off.name)
