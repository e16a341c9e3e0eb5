"""A CrewAI agent at work: its tool hands a part of the review to a plain agent of the team."""

import asyncio
import os

os.environ |= {"CREWAI_DISABLE_TELEMETRY": "true", "CREWAI_TRACING_ENABLED": "false"}
from crewai import Agent, BaseLLM  # after the line above: it is read when CrewAI is imported

import nodrop
from nodrop.adapters import crewai

lawyer = nodrop.Agent("lawyer")
lawyer.handler(lambda task: f"{task.payload['task']}: no objections")


class Scripted(BaseLLM):  # in your program, a real model
    def call(self, messages, *_, **__):
        if "no objections" in str(messages):
            return "Thought: I now can give a great answer\nFinal Answer: sign the lease"
        return 'Action: hand_off_to_lawyer\nAction Input: {"task": "the lease"}'


async def main() -> None:
    llm, tools = Scripted(model="scripted"), [crewai.hand_off_tool(to="lawyer")]
    reviewer = Agent(role="reviewer", goal="review", backstory="careful", llm=llm, tools=tools)
    working = crewai.as_agent(reviewer, agent="reviewer")
    async with nodrop.connect("team.db", agent="boss") as me, asyncio.TaskGroup() as group:
        for agent in (working, lawyer):
            group.create_task(agent.serve("team.db"))
        handoff = await me.hand_off("reviewer", payload={"task": "Review the lease"})
        print(await handoff.result(wait="60s"))
        working.stop()
        lawyer.stop()


asyncio.run(main())
