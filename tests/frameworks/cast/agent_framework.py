"""The Microsoft Agent Framework on stage: an agent whose model is `brain`, and a workflow."""

from collections.abc import AsyncIterable
from typing import Any

import agent_framework as framework

from cast import brain
from nodrop import Agent
from nodrop.adapters import agent_framework


class Model(framework.FunctionInvocationLayer, framework.BaseChatClient):
    def __init__(self, decide: brain.Decide | None = None) -> None:
        super().__init__()
        self.decide = decide
        self.calls = 0

    def _inner_get_response(self, *, messages: Any, stream: bool, options: Any, **_: Any) -> Any:
        task = next(message.text for message in messages if message.role == "user")
        contents = [content for message in messages for content in message.contents]
        heard = [str(c.result) for c in contents if c.type == "function_result"]
        said = [message.text for message in messages if message.role == "user" and message.text]
        heard += said[1:]

        async def updates() -> AsyncIterable[framework.ChatResponseUpdate]:
            match (self.decide or brain.decide)(task, heard):
                case brain.Say(text):
                    content = framework.Content.from_text(text)
                case brain.Ask(question):
                    content = self._call("ask_for_help", {"question": question})
                case brain.Call(name, arguments):
                    content = self._call(name, arguments)
            yield framework.ChatResponseUpdate(role="assistant", contents=[content])

        async def whole() -> framework.ChatResponse[Any]:
            return framework.ChatResponse.from_updates([update async for update in updates()])

        if not stream:
            return whole()
        return framework.ResponseStream(updates(), finalizer=framework.ChatResponse.from_updates)

    def _call(self, name: str, arguments: dict[str, Any]) -> framework.Content:
        self.calls += 1
        return framework.Content.from_function_call(
            call_id=f"c{self.calls}", name=name, arguments=brain.dumped(arguments)
        )


@framework.tool(approval_mode="always_require")
def ask_for_help(question: str) -> str:
    """Ask whoever gave the task."""
    return question


class Act(framework.Executor):
    """A workflow's only step: it does what `brain` decides, without a model."""

    @framework.handler
    async def begin(self, task: str, ctx: framework.WorkflowContext[Any, str]) -> None:
        match brain.decide(task, []):
            case brain.Ask(question):
                await ctx.request_info(request_data=question, response_type=str)
            case brain.Call("report"):
                await self._end(task, brain.report(), ctx)
            case brain.Call("hold"):
                await self._end(task, await brain.hold_async(), ctx)
            case brain.Say(text):
                await ctx.yield_output(text)
            case _:
                raise AssertionError("the workflow of the cast hands nothing on")

    @framework.response_handler
    async def answered(
        self, question: str, answer: str, ctx: framework.WorkflowContext[Any, str]
    ) -> None:
        await self._end("ask", answer, ctx)

    async def _end(self, task: str, heard: str, ctx: framework.WorkflowContext[Any, str]) -> None:
        match brain.decide(task, [heard]):
            case brain.Say(text):
                await ctx.yield_output(text)
            case _:
                raise AssertionError("what was heard is said")


def workflow() -> framework.Workflow:
    return framework.WorkflowBuilder(start_executor=Act(id="act"), name="act").build()


def members(targets: list[str]) -> list[Agent]:
    agent = framework.Agent(
        Model(),
        name="agent",
        tools=[
            brain.report,
            brain.named(brain.hold_async, "hold"),
            ask_for_help,
            *(agent_framework.hand_off_tool(to=to, attempts_max=2) for to in targets),
        ],
    )
    return [
        agent_framework.as_agent(agent, agent="agent_framework", **brain.terms()),
        agent_framework.as_agent(workflow, agent="agent_framework_workflow", **brain.terms()),
    ]
