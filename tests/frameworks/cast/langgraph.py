"""LangGraph on stage: a graph that does what `brain` decides."""

from typing import Any, NotRequired

from langgraph.graph import START, StateGraph
from langgraph.types import interrupt
from typing_extensions import TypedDict

from cast import brain
from nodrop import Agent
from nodrop.adapters import langgraph


class State(TypedDict):
    task: str
    answer: NotRequired[str]


def members(targets: list[str]) -> list[Agent]:
    tools = {f"hand_off_to_{to}": langgraph.hand_off_tool(to=to, attempts_max=2) for to in targets}

    async def act(state: State) -> dict[str, Any]:
        heard: list[str] = []
        while True:
            match brain.decide(state["task"], heard):
                case brain.Say(text):
                    return {"answer": text}
                case brain.Ask(question):
                    heard.append(str(interrupt(question)))
                case brain.Call("report"):
                    heard.append(brain.report())
                case brain.Call("hold"):
                    heard.append(await brain.hold_async())
                case brain.Call(name, arguments):
                    heard.append(await tools[name].ainvoke(arguments))

    graph = StateGraph(State).add_node("act", act).add_edge(START, "act").compile()
    terms = brain.terms()
    return [langgraph.as_agent(graph, agent="langgraph", answer="answer", **terms)]
