"""Google ADK on stage: an agent whose model is `brain`."""

from collections.abc import AsyncGenerator
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.models import BaseLlm
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.tools import LongRunningFunctionTool
from google.genai import types

from cast import brain
from nodrop import Agent
from nodrop.adapters import google_adk


class Model(BaseLlm):
    model: str = "scripted"
    decide: Any = None

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        parts = [part for content in llm_request.contents for part in content.parts or []]
        task = next(part.text for part in parts if part.text)
        heard = [
            _heard(part.function_response.response) for part in parts if part.function_response
        ]
        decide: brain.Decide = self.decide or brain.decide
        match decide(task, [text for text in heard if text is not None]):
            case brain.Say(text):
                part = types.Part(text=text)
            case brain.Ask(question):
                part = _call("ask_for_help", {"question": question})
            case brain.Call(name, arguments):
                part = _call(name, arguments)
        yield LlmResponse(content=types.Content(role="model", parts=[part]))


def _heard(response: dict[str, Any] | None) -> str | None:
    return None if not response or response.get("result") is None else str(response["result"])


def _call(name: str, arguments: dict[str, Any]) -> types.Part:
    return types.Part(function_call=types.FunctionCall(name=name, args=arguments))


def ask_for_help(question: str) -> None:
    """Ask whoever gave the task."""


def members(targets: list[str]) -> list[Agent]:
    agent = LlmAgent(
        name="agent",
        model=Model(),
        tools=[
            brain.report,
            brain.named(brain.hold_async, "hold"),
            LongRunningFunctionTool(ask_for_help),
            *(google_adk.hand_off_tool(to=to, attempts_max=2) for to in targets),
        ],
    )
    return [google_adk.as_agent(agent, agent="google_adk", **brain.terms())]
