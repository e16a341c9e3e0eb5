"""CrewAI on stage: an agent whose model is `brain`, a crew, and a flow."""

import json
import os
from typing import Any

os.environ |= {  # before it is imported: it phones home otherwise
    "CREWAI_DISABLE_TELEMETRY": "true",
    "CREWAI_TRACING_ENABLED": "false",
    "OTEL_SDK_DISABLED": "true",
}

import crewai
from crewai.flow import Flow, human_feedback, listen, router, start
from crewai.tools import tool

from cast import brain
from nodrop import Agent
from nodrop.adapters import crewai as adapter


class Model(crewai.BaseLLM):
    def call(self, messages: Any, *_: Any, **__: Any) -> str:
        spoken = [message["content"] for message in messages]
        # The instructions before the task speak of observations as well.
        text = "\n".join(str(words) for words in spoken).split("Current Task:", 1)[-1]
        heard = [part.strip().partition("\n")[0] for part in text.split("Observation:")[1:]]
        match brain.decide(text, [words for words in heard if words]):
            case brain.Say(words):
                return f"Thought: I now can give a great answer\nFinal Answer: {words}"
            case brain.Ask(question):
                return _action("ask_for_help", {"question": question})
            case brain.Call(name, arguments):
                return _action(name, arguments)

    def supports_function_calling(self) -> bool:
        return False


def _action(name: str, arguments: dict[str, Any]) -> str:
    return f"Thought: I need a tool\nAction: {name}\nAction Input: {json.dumps(arguments)}"


@tool("report")
def report() -> str:
    """Say what is known of the handoff."""
    return brain.report()


@tool("hold")
def hold() -> str:
    """Hang."""
    return brain.hold()


class Act(Flow):
    """A flow that does what `brain` decides, without a model."""

    @start()
    async def begin(self) -> str:
        match brain.decide(self.state["task"], []):
            case brain.Ask(_):
                return "ask"
            case brain.Say(text):
                self.state["answer"] = text
            case brain.Call("report"):
                self._hear(brain.report())
            case brain.Call("hold"):
                self._hear(await brain.hold_async())
            case _:
                raise AssertionError("the flow of the cast hands nothing on")
        return "say"

    @router(begin)
    def route(self, what: str) -> str:
        return what

    @listen("ask")
    @human_feedback(message="Which account?", provider=adapter.Parking())
    def asked(self) -> str:
        return "a draft"

    @listen(asked)
    def told(self, feedback: Any) -> str:
        self._hear(feedback.feedback)
        return self.state["answer"]

    @listen("say")
    def finish(self) -> str:
        return self.state["answer"]

    def _hear(self, words: str) -> None:
        match brain.decide(self.state["task"], [words]):
            case brain.Say(text):
                self.state["answer"] = text
            case _:
                raise AssertionError("what was heard is said")


def members(targets: list[str]) -> list[Agent]:
    agent = crewai.Agent(
        role="worker",
        goal="do it",
        backstory="none",
        llm=Model(model="scripted"),
        tools=[
            report,
            hold,
            adapter.ask_tool(),
            *(adapter.hand_off_tool(to=to, attempts_max=2) for to in targets),
        ],
        verbose=False,
    )
    task = crewai.Task(description="{task}", expected_output="an answer", agent=agent)
    crew = crewai.Crew(agents=[agent], tasks=[task], verbose=False)
    return [
        adapter.as_agent(agent, agent="crewai", **brain.terms()),
        adapter.as_agent(crew, agent="crewai_crew", **brain.terms()),
        adapter.as_agent(Act, agent="crewai_flow", **brain.terms()),
    ]
