"""The OpenAI Agents SDK on stage: an agent whose model is `brain`."""

from collections.abc import AsyncIterator
from typing import Any

import agents
from openai.types.responses import (
    Response,
    ResponseCompletedEvent,
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
)

from cast import brain
from nodrop import Agent
from nodrop.adapters import openai_agents

agents.set_tracing_disabled(True)


class Model(agents.Model):
    def __init__(self, decide: brain.Decide | None = None) -> None:
        self._decide = decide
        self._calls = 0

    async def get_response(
        self,
        system_instructions: str | None,
        input: Any,  # noqa: A002  # the SDK's name for it
        *_: Any,
        **__: Any,
    ) -> agents.ModelResponse:
        items = [{"role": "user", "content": input}] if isinstance(input, str) else input
        task = next(item["content"] for item in items if item.get("role") == "user")
        heard = [
            str(item["output"]) for item in items if item.get("type") == "function_call_output"
        ]
        match (self._decide or brain.decide)(task, heard):
            case brain.Say(text):
                output: Any = ResponseOutputMessage(
                    id="m",
                    type="message",
                    role="assistant",
                    status="completed",
                    content=[ResponseOutputText(text=text, type="output_text", annotations=[])],
                )
            case brain.Ask(question):
                output = self._call("ask_for_help", {"question": question})
            case brain.Call(name, arguments):
                output = self._call(name, arguments)
        return agents.ModelResponse(output=[output], usage=agents.Usage(), response_id=None)

    async def stream_response(self, *given: Any, **more: Any) -> AsyncIterator[Any]:
        said = await self.get_response(*given, **more)
        response = Response(
            id="r",
            created_at=0,
            model="scripted",
            object="response",
            output=said.output,
            tool_choice="none",
            tools=[],
            parallel_tool_calls=False,
        )
        yield ResponseCompletedEvent(
            type="response.completed", sequence_number=0, response=response
        )

    def _call(self, name: str, arguments: dict[str, Any]) -> ResponseFunctionToolCall:
        self._calls += 1
        return ResponseFunctionToolCall(
            id=f"f{self._calls}",
            call_id=f"c{self._calls}",
            type="function_call",
            name=name,
            arguments=brain.dumped(arguments),
        )


@agents.function_tool(needs_approval=True)
def ask_for_help(question: str) -> str:
    """Ask whoever gave the task."""
    return question


def members(targets: list[str]) -> list[Agent]:
    agent = agents.Agent(
        name="agent",
        model=Model(),
        tools=[
            agents.function_tool(brain.report),
            agents.function_tool(brain.named(brain.hold_async, "hold")),
            ask_for_help,
            *(openai_agents.hand_off_tool(to=to, attempts_max=2) for to in targets),
        ],
    )
    return [openai_agents.as_agent(agent, agent="openai_agents", **brain.terms())]
