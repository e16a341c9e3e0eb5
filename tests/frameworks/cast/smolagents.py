"""smolagents on stage: an agent whose model is `brain`."""

from typing import Any

from smolagents import ChatMessage, MessageRole, Model, ToolCallingAgent, tool
from smolagents.models import ChatMessageToolCall, ChatMessageToolCallFunction

from cast import brain
from nodrop import Agent
from nodrop.adapters import smolagents
from nodrop.adapters.port.serving import Terms


class Scripted(Model):
    def generate(self, messages: list[Any], *_: Any, **__: Any) -> ChatMessage:
        spoken = [(m.role, brain.words(m.content)) for m in messages]
        task = next(text for role, text in spoken if role == MessageRole.USER)
        task = task.split("New task:\n")[-1]
        heard = [text for role, text in spoken if role == MessageRole.TOOL_RESPONSE]
        heard = [text.split("Observation:\n", 1)[-1].strip() for text in heard]
        match brain.decide(task, heard):
            case brain.Say(text):
                name, arguments = "final_answer", {"answer": text}
            case brain.Ask(question):
                name, arguments = "ask_for_help", {"question": question}
            case brain.Call(name, arguments):
                pass
        function = ChatMessageToolCallFunction(name=name, arguments=arguments)
        call = ChatMessageToolCall(id=f"c{len(messages)}", type="function", function=function)
        return ChatMessage(role=MessageRole.ASSISTANT, content="", tool_calls=[call])


@tool
def report() -> str:
    """Say what is known of the handoff."""
    return brain.report()


@tool
def hold() -> str:
    """Hang."""
    return brain.hold()


def members(targets: list[str]) -> list[Agent]:
    def agent() -> ToolCallingAgent:
        tools = [report, hold, smolagents.ask_tool()]
        tools += [smolagents.hand_off_tool(to=to, attempts_max=2) for to in targets]
        return ToolCallingAgent(tools, Scripted(model_id="scripted"), verbosity_level=0)

    terms = brain.terms()
    six: Terms = {**terms, "concurrency": 6}
    return [
        smolagents.as_agent(agent, agent="smolagents", **terms),
        smolagents.as_agent(agent(), agent="smolagents_object", **six),
    ]
