"""An AutoGen assistant that hands the facts to an agent which is not made with AutoGen."""

import asyncio

from autogen_agentchat.agents import AssistantAgent
from autogen_core import FunctionCall
from autogen_core.models import CreateResult, ModelInfo, RequestUsage
from autogen_ext.models.replay import ReplayChatCompletionClient

import nodrop
from nodrop.adapters import autogen

librarian = nodrop.Agent("librarian")


@librarian.handler
def look_up(task: nodrop.BlockingTask) -> str:
    return f"two sources on {task.payload['task']}"


async def main() -> None:
    call = FunctionCall(id="1", name="hand_off_to_librarian", arguments='{"task": "tides"}')
    script = [CreateResult(finish_reason="function_calls", content=[call], cached=False,
                           usage=RequestUsage(0, 0)), "A post about tides, with two sources."]  # fmt: skip
    info = ModelInfo(vision=False, function_calling=True, json_output=False, family="unknown",
                     structured_output=False)  # fmt: skip
    model = ReplayChatCompletionClient(script, model_info=info)  # in your program, a real model
    async with nodrop.connect("team.db", agent="editor") as me:
        working = asyncio.create_task(librarian.serve("team.db"))
        tool = autogen.hand_off_tool(to="librarian", client=me)
        writer = AssistantAgent("writer", model, tools=[tool], reflect_on_tool_use=True)
        print((await writer.run(task="Write about tides")).messages[-1].to_text())
        librarian.stop()
        await working


asyncio.run(main())
