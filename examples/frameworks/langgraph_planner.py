"""A LangGraph graph as an agent: it is handed a task, asks, is answered, and finishes."""

import asyncio

from langgraph.graph import START, StateGraph
from langgraph.types import interrupt
from typing_extensions import TypedDict

import nodrop
from nodrop.adapters import langgraph


class State(TypedDict, total=False):
    task: str
    plan: str


def plan(state: State) -> State:
    budget = interrupt("What may it cost?")  # parks the graph; whoever handed it off is asked
    return {"plan": f"{state.get('task')} for {budget}"}


graph = StateGraph(State).add_node("plan", plan).add_edge(START, "plan").compile()


async def main() -> None:
    async with nodrop.connect("team.db", agent="boss") as me:
        planner = langgraph.as_agent(graph, agent="planner", answer="plan")
        working = asyncio.create_task(planner.serve("team.db"))
        handoff = await me.hand_off("planner", payload={"task": "a day at the sea"})
        (question,) = await me.inbox(wait="30s")
        print(question.sender, question.summary)
        await question.answer("20 euros")
        print(await handoff.result(wait="30s"))
        planner.stop()
        await working


asyncio.run(main())
