"""Pydantic AI on stage: an agent whose model is `brain`."""

from collections.abc import AsyncIterator
from typing import Any

import pydantic_ai
from pydantic_ai.messages import (
    ModelMessage,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel

from cast import brain
from nodrop import Agent
from nodrop.adapters import pydantic_ai as adapter


def answer(messages: list[ModelMessage]) -> str | DeltaToolCall:
    parts = [part for message in messages for part in message.parts]
    task = next(str(part.content) for part in parts if isinstance(part, UserPromptPart))
    heard = [part.model_response_str() for part in parts if isinstance(part, ToolReturnPart)]
    match brain.decide(task, heard):
        case brain.Say(text):
            return text
        case brain.Ask(question):
            return _call("ask_for_help", {"question": question}, len(parts))
        case brain.Call(name, arguments):
            return _call(name, arguments, len(parts))


async def streamed(messages: list[ModelMessage], _: AgentInfo) -> AsyncIterator[Any]:
    said = answer(messages)
    yield said if isinstance(said, str) else {0: said}


def whole(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
    said = answer(messages)
    if isinstance(said, str):
        return ModelResponse(parts=[TextPart(said)])
    call = ToolCallPart(said.name or "", said.json_args, tool_call_id=said.tool_call_id or "")
    return ModelResponse(parts=[call])


MODEL = FunctionModel(whole, stream_function=streamed)


def _call(name: str, arguments: dict[str, Any], number: int) -> DeltaToolCall:
    return DeltaToolCall(name=name, json_args=brain.dumped(arguments), tool_call_id=f"c{number}")


def ask_for_help(question: str) -> str:
    raise pydantic_ai.CallDeferred(metadata={"question": question})


def members(targets: list[str]) -> list[Agent]:
    agent = pydantic_ai.Agent(
        MODEL,
        tools=[
            brain.report,
            brain.named(brain.hold_async, "hold"),
            ask_for_help,
            *(adapter.hand_off_tool(to=to, attempts_max=2) for to in targets),
        ],
    )
    return [adapter.as_agent(agent, agent="pydantic_ai", **brain.terms())]
