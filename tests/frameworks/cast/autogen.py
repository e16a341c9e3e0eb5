"""AutoGen on stage: an assistant whose model is `brain`."""

from collections.abc import Sequence
from typing import Any

from autogen_agentchat.agents import AssistantAgent
from autogen_core import FunctionCall
from autogen_core.models import (
    CreateResult,
    FunctionExecutionResultMessage,
    LLMMessage,
    ModelInfo,
    RequestUsage,
    UserMessage,
)
from autogen_ext.models.replay import ReplayChatCompletionClient

from cast import brain
from nodrop import Agent
from nodrop.adapters import autogen
from nodrop.adapters.port.serving import Terms

INFO = ModelInfo(
    vision=False,
    function_calling=True,
    json_output=True,
    family="unknown",
    structured_output=False,
)


class Model(ReplayChatCompletionClient):
    def __init__(self, decide: brain.Decide | None = None) -> None:
        super().__init__([], model_info=INFO)
        self._decide = decide
        self._calls = 0

    async def create(self, messages: Sequence[LLMMessage], **_: Any) -> CreateResult:
        said = [m.content for m in messages if isinstance(m, UserMessage)]
        heard = [
            result.content
            for message in messages
            if isinstance(message, FunctionExecutionResultMessage)
            for result in message.content
        ]
        task = str(said[0])
        if len(said) > 1:  # whoever was asked has answered
            heard.append(str(said[-1]))
        match (self._decide or brain.decide)(task, heard):
            case brain.Say(text):
                return self._result(text, "stop")
            case brain.Ask(_):
                return self._call("transfer_to_user", {})
            case brain.Call(name, arguments):
                return self._call(name, arguments)

    def _call(self, name: str, arguments: dict[str, Any]) -> CreateResult:
        self._calls += 1
        call = FunctionCall(id=f"c{self._calls}", name=name, arguments=brain.dumped(arguments))
        return self._result([call], "function_calls")

    def _result(self, content: Any, reason: Any) -> CreateResult:
        return CreateResult(
            finish_reason=reason, content=content, usage=RequestUsage(0, 0), cached=False
        )


def members(targets: list[str]) -> list[Agent]:
    tools = [autogen.hand_off_tool(to=to, attempts_max=2) for to in targets]

    def assistant() -> AssistantAgent:
        return AssistantAgent(
            "assistant",
            model_client=Model(),
            handoffs=["user"],
            tools=[brain.report, brain.named(brain.hold_async, "hold"), *tools],
            reflect_on_tool_use=True,
        )

    terms = brain.terms()
    six: Terms = {**terms, "concurrency": 6}
    return [
        autogen.as_agent(assistant, agent="autogen", **terms),
        autogen.as_agent(assistant(), agent="autogen_object", **six),
    ]
