"""Code that a framework runs in threads of its own knows which handoff it is part of.

The cast of the matrix has one tool of each framework look; here are the other ways to run code.
"""

import json
from collections.abc import Callable
from typing import Any

import crewai
import pytest
from crewai.flow import Flow, listen, start
from crewai.tools import tool
from langchain_core.messages import AIMessage
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from smolagents import ChatMessage, CodeAgent, MessageRole, Model, Tool
from smolagents import tool as smolagents_tool
from typing_extensions import TypedDict
from workflows import Workflow, step
from workflows.events import StartEvent, StopEvent

import nodrop
from inside import WAIT, legal, serving
from nodrop.adapters import crewai as crewai_adapter
from nodrop.adapters import current, langgraph, llama_index, smolagents

seen: list[str | None] = []
"""The chains that code here was part of, as it was run."""


def look() -> str:
    """Look."""
    here = current()
    seen.append(None if here is None else here.correlation_id)
    return "looked"


# --- LangGraph -------------------------------------------------------------------------------


class Looked(TypedDict, total=False):
    task: str
    said: str


def plain_node() -> nodrop.Agent:
    graph = StateGraph(Looked).add_node("look", lambda state: {"said": look()})
    return langgraph.as_agent(graph.add_edge(START, "look").compile(), agent="looker")


def tool_node() -> nodrop.Agent:
    """Two plain functions at once."""
    calls: list[Any] = [{"id": str(n), "name": "look", "args": {}} for n in range(2)]
    graph = StateGraph(MessagesState)
    graph.add_node("model", lambda state: {"messages": [AIMessage("", tool_calls=calls)]})
    graph.add_node("tools", ToolNode([look]))
    graph.add_edge(START, "model").add_edge("model", "tools")
    return langgraph.as_agent(graph.compile(), agent="looker")


# --- CrewAI ----------------------------------------------------------------------------------


class Calling(crewai.BaseLLM):
    """A model that calls functions the way most do, two at once."""

    def call(self, messages: Any, *_: Any, **__: Any) -> Any:
        if any(message["role"] == "tool" for message in messages):
            return "looked"
        return [
            {"id": f"c{n}", "type": "function", "function": {"name": "look", "arguments": "{}"}}
            for n in range(2)
        ]

    def supports_function_calling(self) -> bool:
        return True


def calling() -> crewai.Agent:
    return crewai.Agent(
        role="looker",
        goal="look",
        backstory="curious",
        llm=Calling(model="scripted"),
        tools=[tool("look")(look)],
    )


def crew_agent() -> nodrop.Agent:
    return crewai_adapter.as_agent(calling(), agent="looker")


def crew_in_the_background() -> nodrop.Agent:
    agent = calling()
    task = crewai.Task(
        description="{task}", expected_output="a look", agent=agent, async_execution=True
    )
    return crewai_adapter.as_agent(crewai.Crew(agents=[agent], tasks=[task]), agent="looker")


class LookTwice(Flow):
    @start()
    def once(self) -> str:
        return look()

    @listen(once)
    def twice(self) -> str:
        return look()


def flow() -> nodrop.Agent:
    return crewai_adapter.as_agent(LookTwice, agent="looker")


# --- LlamaIndex ------------------------------------------------------------------------------


class Looks(Workflow):
    @step
    def look(self, event: StartEvent) -> StopEvent:
        return StopEvent(result=look())


def plain_step() -> nodrop.Agent:
    return llama_index.as_agent(Looks(), agent="looker")


# --- smolagents ------------------------------------------------------------------------------


class Writing(Model):
    """A model that writes code, always the same."""

    def __init__(self, code: str) -> None:
        super().__init__(model_id="scripted")
        self._code = code

    def generate(self, messages: list[Any], *_: Any, **__: Any) -> ChatMessage:
        said = f"Thought: so be it\n<code>\n{self._code}\n</code>"
        return ChatMessage(role=MessageRole.ASSISTANT, content=said)


def writer(code: str, *tools: Tool, **more: Any) -> CodeAgent:
    return CodeAgent(list(tools), Writing(code), verbosity_level=0, max_steps=2, **more)


def code() -> nodrop.Agent:
    agent = writer("final_answer(look())", smolagents_tool(look))
    return smolagents.as_agent(agent, agent="looker")


def code_of_a_managed_agent() -> nodrop.Agent:
    managed = writer(
        "final_answer(look())", smolagents_tool(look), name="helper", description="It looks."
    )
    boss = writer("final_answer(helper(task='look'))", managed_agents=[managed])
    return smolagents.as_agent(boss, agent="looker")


WAYS = [
    *(plain_node, tool_node, crew_agent, crew_in_the_background, flow, plain_step),
    *(code, code_of_a_managed_agent),
]


@pytest.mark.parametrize("made", WAYS, ids=lambda made: made.__name__)
async def test_code_knows_what_it_is_part_of(
    me: nodrop.Client, made: Callable[[], nodrop.Agent]
) -> None:
    seen.clear()
    async with serving(made()):
        handoff = await me.hand_off("looker", payload={"task": "look"}, correlation_id="case-7")
        assert "looked" in json.dumps(await handoff.result(wait=WAIT))
    assert set(seen) == {"case-7"}


async def test_code_that_a_model_writes_hands_off_and_asks(me: nodrop.Client) -> None:
    """With the tools that are ours, over the connection of the handoff."""
    tools = [smolagents.hand_off_tool("legal"), smolagents.ask_tool()]
    agent = writer(
        "said = hand_off_to_legal(task='the lease')\nfinal_answer(said + ask_for_help('Sure?'))",
        *tools,
    )
    async with serving(smolagents.as_agent(agent, agent="coder"), legal()):
        handoff = await me.hand_off("coder", payload={"task": "go"})
        (question,) = await me.inbox(wait=WAIT)
        await question.answer(", yes")
        assert await handoff.result(wait=WAIT) == "no objections to the lease, yes"
