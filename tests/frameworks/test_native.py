"""What is particular to one framework: its own kinds of agents, pauses and participants."""

import asyncio
import json
from contextlib import nullcontext
from typing import Annotated, Any

import agents
import pytest
from agent_framework import Agent as MafAgent
from agent_framework import tool
from agent_framework.orchestrations import SequentialBuilder
from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.conditions import TextMentionTermination
from autogen_agentchat.teams import Swarm
from google.adk.agents import LlmAgent
from google.adk.runners import InMemoryRunner
from langchain_core.messages import AIMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import interrupt
from opentelemetry.sdk.trace import TracerProvider
from typing_extensions import TypedDict
from workflows import Workflow, step
from workflows.events import StartEvent, StopEvent

import nodrop
from cast.agent_framework import Model as MafModel
from cast.autogen import Model as AutogenModel
from cast.brain import Call, Say, turns
from cast.google_adk import Model as AdkModel
from cast.openai_agents import Model as OpenaiModel
from inside import WAIT, legal, serving
from nodrop.adapters import (
    agent_framework,
    autogen,
    current,
    google_adk,
    langgraph,
    llama_index,
    openai_agents,
)
from nodrop.adapters.port import turns as turns_of_the_port
from nodrop.client.tracing import current_traceparent
from story import TRACE_ID, TRACEPARENT, answered

# --- LangGraph -------------------------------------------------------------------------------


class Both(TypedDict, total=False):
    first: str
    second: str


class Topic(TypedDict, total=False):
    topic: str
    plan: str


def two_pauses() -> Any:
    """Two nodes that ask at the same time."""
    graph = StateGraph(Both)
    graph.add_node("one", lambda state: {"first": interrupt("First?")})
    graph.add_node("two", lambda state: {"second": interrupt("Second?")})
    return graph.add_edge(START, "one").add_edge(START, "two")


async def test_two_interrupts_at_once_are_one_question(me: nodrop.Client) -> None:
    async with serving(langgraph.as_agent(two_pauses().compile(), agent="planner")):
        handoff = await me.hand_off("planner", payload={})
        assert sorted(json.loads(await answered(me, handoff, "yes"))) == ["First?", "Second?"]
        assert await handoff.result(wait=WAIT) == {"first": "yes", "second": "yes"}


async def test_a_graph_with_a_checkpointer_of_its_own_is_parked_there(me: nodrop.Client) -> None:
    saver = InMemorySaver()
    graph = two_pauses().compile(checkpointer=saver)
    async with serving(langgraph.as_agent(graph, agent="planner")):
        handoff = await me.hand_off("planner", payload={})
        await answered(me, handoff, "yes")
        await handoff.result(wait=WAIT)
    assert list(saver.list({"configurable": {"thread_id": handoff.id}})) != []


async def test_a_graph_with_a_checkpointer_goes_on_where_it_broke(me: nodrop.Client) -> None:
    begun: list[str] = []

    def first(state: Both) -> Both:
        begun.append("first")
        return {"first": "done"}

    def second(state: Both) -> Both:
        begun.append("second")
        if begun.count("second") == 1:
            raise OSError("the model is down")
        return {"second": "done"}

    graph = StateGraph(Both).add_node("one", first).add_node("two", second)
    graph = graph.add_edge(START, "one").add_edge("one", "two")
    planner = langgraph.as_agent(graph.compile(checkpointer=InMemorySaver()), agent="planner")
    async with serving(planner):
        handoff = await me.hand_off("planner", payload={}, backoff={"first": "10ms"})
        assert await handoff.result(wait=WAIT) == {"first": "done", "second": "done"}
    assert begun == ["first", "second", "second"]


async def test_a_subgraph_that_asks_is_parked_with_the_rest(me: nodrop.Client) -> None:
    inner = StateGraph(Both).add_node("ask", lambda state: {"first": interrupt("First?")})
    outer = StateGraph(Both).add_node("inner", inner.add_edge(START, "ask").compile())
    graph = outer.add_edge(START, "inner").compile()
    async with serving(langgraph.as_agent(graph, agent="planner")):
        handoff = await me.hand_off("planner", payload={})
        await answered(me, handoff, "yes")
        assert await handoff.result(wait=WAIT) == {"first": "yes"}


async def test_a_graph_of_messages_reads_the_task_and_says_the_last(me: nodrop.Client) -> None:
    def reply(state: MessagesState) -> dict[str, Any]:
        return {"messages": [AIMessage(f"re: {state['messages'][-1].text}")]}

    graph = StateGraph(MessagesState).add_node("reply", reply).add_edge(START, "reply").compile()
    async with serving(langgraph.as_agent(graph, agent="planner")):
        handoff = await me.hand_off("planner", payload={"task": "tides"})
        assert await handoff.result(wait=WAIT) == "re: tides"


def of_a_topic() -> Any:
    """A graph that is not told a task, but what it is about."""

    def plan(state: Topic) -> Topic:
        return {"plan": f"on {state.get('topic')}"}

    return StateGraph(Topic).add_node("plan", plan).add_edge(START, "plan").compile()


@pytest.mark.parametrize("payload", ["tides", {"task": "tides"}, [1, 2], {"branch:to:plan": 1}])
async def test_a_payload_of_another_graph_is_refused_once(me: nodrop.Client, payload: Any) -> None:
    async with serving(langgraph.as_agent(of_a_topic(), agent="planner", answer="plan")):
        outcome = await (await me.hand_off("planner", payload=payload)).outcome(wait=WAIT)
    assert (outcome.state, outcome.code) == ("failed", "payload_invalid")
    assert "it has ['topic', 'plan']" in (outcome.reason or "")
    assert outcome.handoff.attempt == 1


async def test_fields_that_a_graph_does_not_have_are_left_out(me: nodrop.Client) -> None:
    async with serving(langgraph.as_agent(of_a_topic(), agent="planner", answer="plan")):
        handoff = await me.hand_off("planner", payload={"topic": "tides", "size": 3})
        assert await handoff.result(wait=WAIT) == "on tides"


async def test_a_graph_that_takes_nothing_is_handed_nothing(me: nodrop.Client) -> None:
    graph = StateGraph(Both).add_node("one", lambda state: {"first": "done"}).add_edge(START, "one")
    async with serving(langgraph.as_agent(graph.compile(), agent="planner", answer="first")):
        assert await (await me.hand_off("planner")).result(wait=WAIT) == "done"


async def test_a_graph_whose_state_is_one_value_is_handed_that(me: nodrop.Client) -> None:
    schema: Any = int  # which LangGraph takes, and its types do not say
    graph: Any = StateGraph(schema)
    graph.add_node("one", lambda state: state + 1).add_edge(START, "one")
    async with serving(langgraph.as_agent(graph.compile(), agent="counter")):
        assert await (await me.hand_off("counter", payload=41)).result(wait=WAIT) == 42


def test_an_answer_that_the_graph_does_not_have_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match=r"no 'pln': answer is one of \['topic', 'plan'\]"):
        langgraph.as_agent(of_a_topic(), agent="planner", answer="pln")


async def test_a_graph_that_is_not_awaited_hands_off_as_well(me: nodrop.Client) -> None:
    tool = langgraph.hand_off_tool("legal", client=me)
    node = langgraph.hand_off_node("legal", task="first", result="second", client=me)
    graph = StateGraph(Both).add_node("hand_off", node).add_edge(START, "hand_off").compile()
    given: Both = {"first": "the lease"}
    async with serving(legal()):
        blocking = [
            await asyncio.to_thread(tool.invoke, {"task": "the lease"}),
            (await asyncio.to_thread(graph.invoke, given))["second"],
        ]
        awaited = [
            await tool.ainvoke({"task": "the lease"}),
            (await graph.ainvoke(given))["second"],
        ]
    assert blocking == awaited == ["no objections to the lease"] * 2


# --- LlamaIndex ------------------------------------------------------------------------------


class Topical(StartEvent):
    topic: str


class Anything(Workflow):
    @step
    async def plan(self, event: StartEvent) -> StopEvent:
        return StopEvent(result=dict(event.items()))


class OfATopic(Workflow):
    @step
    async def plan(self, event: Topical) -> StopEvent:
        return StopEvent(result=f"on {event.topic}")


async def test_a_payload_may_have_fields_that_are_called_as_parameters(me: nodrop.Client) -> None:
    payload = {"task": "tides", "ctx": "one", "start_event": "two"}
    async with serving(llama_index.as_agent(Anything(), agent="planner")):
        assert await (await me.hand_off("planner", payload=payload)).result(wait=WAIT) == payload


@pytest.mark.parametrize(
    ("workflow", "payload"), [(OfATopic, {"task": "tides"}), (Anything, {"self": "me"})]
)
async def test_a_payload_that_no_start_event_is_made_of_is_refused_once(
    me: nodrop.Client, workflow: type[Workflow], payload: Any
) -> None:
    async with serving(llama_index.as_agent(workflow(), agent="planner")):
        outcome = await (await me.hand_off("planner", payload=payload)).outcome(wait=WAIT)
    assert (outcome.state, outcome.code) == ("failed", "payload_invalid")
    assert outcome.handoff.attempt == 1


# --- one at a time ---------------------------------------------------------------------------


def one_object() -> nodrop.Agent:
    """Six handoffs may be here at once; the assistant remembers what it is told."""
    assistant = AssistantAgent("assistant", AutogenModel())
    return autogen.as_agent(assistant, agent="assistant", concurrency=6)


async def heard_right(me: nodrop.Client, agent: nodrop.Agent) -> list[bool]:
    """Say six things at once; return which were understood."""
    async with serving(agent):
        said = [f"number {n}" for n in range(6)]
        told = [await me.hand_off("assistant", payload={"task": task}) for task in said]
        heard = [json.loads(await handoff.result(wait=WAIT))["task"] for handoff in told]
    return [one == other for one, other in zip(said, heard, strict=True)]


async def test_an_object_that_remembers_is_used_in_turns(me: nodrop.Client) -> None:
    assert all(await heard_right(me, one_object()))


async def test_without_turns_it_would_hear_the_others(
    me: nodrop.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns_of_the_port, "lock_of", lambda _: nullcontext())
    assert not all(await heard_right(me, one_object()))


# --- agents who are somewhere else -----------------------------------------------------------


async def test_an_autogen_swarm_hands_to_a_member_who_is_elsewhere(me: nodrop.Client) -> None:
    model = AutogenModel(turns(Call("transfer_to_legal"), Say("thanks TERMINATE")))
    triage = AssistantAgent("triage", model, handoffs=["legal"])
    team = Swarm(
        [triage, autogen.remote_agent("legal", client=me)],
        termination_condition=TextMentionTermination("TERMINATE"),
    )
    async with serving(legal()):
        result = await team.run(task="the lease")
    said = [(message.source, message.to_text()) for message in result.messages]
    assert [source for source, _ in said[-2:]] == ["legal", "triage"]
    assert "no objections to" in said[-2][1]


async def test_an_autogen_team_can_be_served(me: nodrop.Client) -> None:
    writer = AssistantAgent("writer", AutogenModel(turns(Say("a post TERMINATE"))))
    team = Swarm([writer], termination_condition=TextMentionTermination("TERMINATE"))
    async with serving(autogen.as_agent(team, agent="writers")):
        handoff = await me.hand_off("writers", payload={"task": "tides"})
        assert await handoff.result(wait=WAIT) == "a post TERMINATE"


@pytest.mark.parametrize("adapter", [autogen, google_adk, openai_agents, agent_framework])
async def test_an_agent_elsewhere_may_have_any_name(me: nodrop.Client, adapter: Any) -> None:
    assert adapter.remote_agent("bug-fixer", client=me).name == "bug_fixer"
    assert adapter.remote_agent("bug-fixer", client=me, name="fixer").name == "fixer"


async def test_an_openai_agent_hands_over_to_one_who_is_elsewhere(me: nodrop.Client) -> None:
    model = OpenaiModel(turns(Call("transfer_to_legal")))
    triage = agents.Agent(
        name="triage", model=model, handoffs=[openai_agents.remote_agent("legal", client=me)]
    )
    async with serving(legal()):
        result = await agents.Runner.run(triage, "the lease")
    assert (result.last_agent.name, result.final_output) == ("legal", "no objections to the lease")


async def test_an_approved_tool_of_openai_runs(me: nodrop.Client) -> None:
    wired: list[str] = []

    @agents.function_tool(needs_approval=True)
    def wire() -> str:
        here = current()
        assert here is not None
        wired.append(here.correlation_id)
        return "wired"

    model = OpenaiModel(turns(Call("wire"), Say("paid")))
    payer = agents.Agent(name="payer", model=model, tools=[wire])
    async with serving(openai_agents.as_agent(payer, agent="payer")):
        handoff = await me.hand_off("payer", payload={"task": "pay"})
        assert "wire" in await answered(me, handoff, {"approve": True})
        assert await handoff.result(wait=WAIT) == "paid"
    assert wired == [handoff.correlation_id]


async def test_an_adk_agent_transfers_to_one_who_is_elsewhere(me: nodrop.Client) -> None:
    triage = LlmAgent(
        name="triage",
        model=AdkModel(decide=turns(Call("transfer_to_agent", {"agent_name": "legal"}))),
        sub_agents=[google_adk.remote_agent("legal", client=me)],
    )
    async with serving(legal()):
        events = await InMemoryRunner(agent=triage, app_name="x").run_debug("the lease", quiet=True)
    said = [part.text for event in events if event.content for part in event.content.parts or []]
    assert said[-1] == "no objections to the lease"


async def test_an_agent_framework_workflow_has_a_participant_elsewhere(me: nodrop.Client) -> None:
    writer = MafAgent(MafModel(turns(Say("a draft"))), name="writer")
    remote = agent_framework.remote_agent("legal", client=me)
    workflow = SequentialBuilder(participants=[writer, remote]).build()
    async with serving(legal()):
        outputs = (await workflow.run("the lease")).get_outputs()
    assert "no objections to" in outputs[-1].text


async def test_an_approved_tool_of_the_agent_framework_runs(me: nodrop.Client) -> None:
    wired: list[int] = []

    @tool(approval_mode="always_require")
    def wire(amount: Annotated[int, "how much"] = 5) -> str:
        """Wire money."""
        wired.append(amount)
        return "wired"

    model = MafModel(turns(Call("wire", {"amount": 5}), Say("paid")))
    payer = MafAgent(model, name="payer", tools=[wire])
    async with serving(agent_framework.as_agent(payer, agent="payer")):
        handoff = await me.hand_off("payer", payload={"task": "pay"})
        await answered(me, handoff, True)  # that is the answer
        assert await handoff.result(wait=WAIT) == "paid"
    assert wired == [5]


# --- traces ----------------------------------------------------------------------------------


async def test_the_spans_of_a_process_join_the_trace_of_the_handoff(me: nodrop.Client) -> None:
    seen: list[str] = []

    def act(state: Both) -> Both:
        with TracerProvider().get_tracer("docs").start_as_current_span("act") as span:
            seen.append(f"{span.get_span_context().trace_id:032x}")
            seen.append(current_traceparent() or "")
        return {"first": "done"}

    graph = StateGraph(Both).add_node("act", act).add_edge(START, "act").compile()
    async with serving(langgraph.as_agent(graph, agent="planner")):
        await (await me.hand_off("planner", payload={}, traceparent=TRACEPARENT)).result(wait=WAIT)
    assert seen[0] == TRACE_ID
    assert seen[1].split("-")[1] == TRACE_ID
    assert seen[1] != TRACEPARENT, "what is handed on names the span it was handed on in"
