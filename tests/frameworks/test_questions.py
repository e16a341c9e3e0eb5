"""The pauses that docs/frameworks.md names and the cast of the matrix does not use."""

import json
from collections.abc import AsyncIterator
from typing import Any

import crewai
import pytest
from google.adk.agents import LlmAgent
from google.adk.apps import App
from google.adk.tools import FunctionTool
from pydantic_ai import Agent, RunContext, Tool
from pydantic_ai.messages import ModelMessage, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel
from workflows import Context, Workflow, step
from workflows.events import HumanResponseEvent, InputRequiredEvent, StartEvent, StopEvent

import nodrop
from cast.brain import Call, Say, turns
from cast.google_adk import Model as AdkModel
from inside import WAIT, serving
from nodrop.adapters import crewai as crewai_adapter
from nodrop.adapters import google_adk, llama_index
from nodrop.adapters import pydantic_ai as pydantic_adapter
from story import answered

# --- CrewAI ----------------------------------------------------------------------------------


class Drafting(crewai.BaseLLM):
    """A model that has another draft each time."""

    drafts: int = 0

    def call(self, *_: Any, **__: Any) -> str:
        self.drafts += 1
        return f"Thought: I now can give a great answer\nFinal Answer: draft {self.drafts}"

    def supports_function_calling(self) -> bool:
        return False


async def test_human_input_of_a_crew_is_asked_until_it_is_accepted(me: nodrop.Client) -> None:
    agent = crewai.Agent(
        role="writer", goal="write", backstory="patient", llm=Drafting(model="scripted")
    )
    task = crewai.Task(
        description="{task}", expected_output="a text", agent=agent, human_input=True
    )
    crew = crewai.Crew(agents=[agent], tasks=[task])
    async with serving(crewai_adapter.as_agent(crew, agent="writer")):
        handoff = await me.hand_off("writer", payload={"task": "tides"})
        assert (await answered(me, handoff, "shorter")).startswith("Is this right?")
        await answered(me, handoff, "")
        assert await handoff.result(wait=WAIT) == "draft 2"


# --- Pydantic AI -----------------------------------------------------------------------------


async def wires(messages: list[ModelMessage], _: AgentInfo) -> AsyncIterator[Any]:
    """A model that calls `wire`, and says what it heard of it."""
    last = messages[-1].parts[-1]
    if isinstance(last, ToolReturnPart):
        yield f"heard: {last.content}"
    else:
        yield {0: DeltaToolCall(name="wire", json_args='{"amount": 5}', tool_call_id="c1")}


def wire(context: RunContext[str], amount: int) -> str:
    return f"wired {amount} from {context.deps}"


@pytest.mark.parametrize(
    ("answer", "heard"),
    [
        (True, "heard: wired 5 from account 42"),
        ({"approve": True}, "heard: wired 5 from account 42"),
        ("not that much", "heard: not that much"),
    ],
)
async def test_a_tool_of_pydantic_ai_waits_for_approval(
    me: nodrop.Client, answer: Any, heard: str
) -> None:
    model = FunctionModel(stream_function=wires)
    payer = Agent(model, deps_type=str, tools=[Tool(wire, requires_approval=True)])
    served = pydantic_adapter.as_agent(payer, agent="payer", deps=lambda: "account 42")
    async with serving(served):
        handoff = await me.hand_off("payer", payload={"task": "pay"})
        assert '"amount": 5' in await answered(me, handoff, answer)
        assert await handoff.result(wait=WAIT) == heard


# --- Google ADK ------------------------------------------------------------------------------


@pytest.mark.parametrize(("answer", "wired"), [(True, [5]), ("yes", [5]), ("not that much", [])])
async def test_a_tool_of_an_adk_app_waits_for_confirmation(
    me: nodrop.Client, answer: Any, wired: list[int]
) -> None:
    done: list[int] = []

    def wire_it(amount: int) -> str:
        done.append(amount)
        return "wired"

    model = AdkModel(decide=turns(Call("wire_it", {"amount": 5}), Say("it is over")))
    tools = [FunctionTool(wire_it, require_confirmation=True)]
    app = App(name="paying", root_agent=LlmAgent(name="payer", model=model, tools=list(tools)))
    async with serving(google_adk.as_agent(app, agent="payer")):
        handoff = await me.hand_off("payer", payload={"task": "pay"})
        (asked,) = json.loads(await answered(me, handoff, answer))
        assert await handoff.result(wait=WAIT) == "it is over"
    assert (asked["tool"], asked["arguments"]) == ("wire_it", {"amount": 5})
    assert done == wired


# --- LlamaIndex ------------------------------------------------------------------------------


class Greeting(Workflow):
    @step
    async def greet(self, ctx: Context, event: StartEvent) -> StopEvent:
        asking = InputRequiredEvent.model_validate({"prefix": "Your name?", "user": "bob"})
        said = await ctx.wait_for_event(
            HumanResponseEvent, waiter_event=asking, requirements={"user": "bob"}
        )
        return StopEvent(result=f"hello {said.response}")


async def test_a_step_that_waits_with_requirements_gets_what_it_requires(
    me: nodrop.Client,
) -> None:
    async with serving(llama_index.as_agent(Greeting(), agent="greeter")):
        handoff = await me.hand_off("greeter", payload={"task": "greet"})
        assert await answered(me, handoff, "Bob") == "Your name?"
        assert await handoff.result(wait=WAIT) == "hello Bob"
