"""OpenAI Agents SDK: agents as agents; tools and native handoff targets that hand off.

A tool that needs approval is a question: `true` approves, anything else is what the model hears in
the tool's place, so a tool that never runs is a way to ask. The run's state is parked with it.
"""

from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any, Unpack, cast

from nodrop.adapters.port.events import Done, Event, NeedHelp, Progress, Resume, Work, text
from nodrop.adapters.port.handing import Handing, HandOff
from nodrop.adapters.port.installed import needs
from nodrop.adapters.port.serving import Terms, agent_of
from nodrop.client.agent import Agent
from nodrop.client.settings import Address, CaFile

with needs("openai-agents", "0.20", extra="openai-agents"):
    import agents
    from openai.types.responses import (
        Response,
        ResponseCompletedEvent,
        ResponseOutputMessage,
        ResponseOutputText,
    )


def as_agent(target: "agents.Agent[Any]", *, agent: str, **terms: Unpack[Terms]) -> Agent:
    """Return an agent that runs `target` on each handoff; the result is its final output."""
    return agent_of(RunDriver(target), agent, "openai-agents", terms)


async def serve(
    target: "agents.Agent[Any]",
    *,
    agent: str,
    address: Address | None = None,
    ca: CaFile | None = None,
    **terms: Unpack[Terms],
) -> None:
    """Work as `agent` until stopped or cancelled; see `as_agent`, and `Agent.serve` for `address` and `ca`."""
    await as_agent(target, agent=agent, **terms).serve(address, ca=ca)


def hand_off_tool(to: str | None = None, **terms: Unpack[Handing]) -> "agents.FunctionTool":
    """Return a tool that hands a task over and brings the result."""
    hand_off = HandOff(to, terms)
    return agents.function_tool(hand_off.function(), name_override=hand_off.name)


def remote_agent(to: str, **terms: Unpack[Handing]) -> "agents.Agent[Any]":
    """Return an agent who is somewhere else, for `handoffs=[...]` and `as_tool`."""
    hand_off = HandOff(to, terms)
    return agents.Agent(
        name=hand_off.participant,
        handoff_description=hand_off.description,
        model=RemoteModel(hand_off),
    )


class RunDriver:
    """Runs an agent of the SDK."""

    def __init__(self, target: "agents.Agent[Any]") -> None:
        self._target = target

    async def drive(self, work: Work, resume: Resume | None) -> AsyncGenerator[Event, Any]:
        """See `Driver`."""
        given: Any = work.prompt if resume is None else await self._state(resume)
        about = agents.RunConfig(group_id=work.correlation_id)
        run = agents.Runner.run_streamed(self._target, given, run_config=about)
        try:
            async for event in run.stream_events():
                if event.type == "agent_updated_stream_event":
                    yield Progress(status=f"agent {event.new_agent.name}")
                elif event.type == "run_item_stream_event":
                    yield Progress(status=event.name)
        finally:
            if not run.is_complete:
                run.cancel()
        if run.interruptions:
            asked = [{"tool": i.name, "arguments": i.arguments} for i in run.interruptions]
            yield NeedHelp(question=text(asked), state=run.to_state().to_json())
            return
        yield Done(output=run.final_output)

    async def _state(self, resume: Resume) -> "agents.RunState[Any, Any]":
        """Return the run as it was parked, with the answer in it."""
        state = await agents.RunState.from_json(self._target, resume.state)
        for pause in state.get_interruptions():
            if resume.approved:
                state.approve(pause)
            else:
                state.reject(pause, rejection_message=resume.text)
        return state


class RemoteModel(agents.Model):
    """A model that thinks at the other end of a handoff."""

    def __init__(self, hand_off: HandOff) -> None:
        self._hand_off = hand_off

    async def get_response(
        self,
        system_instructions: str | None,  # noqa: ARG002  # the SDK's signature
        input: Any,  # noqa: A002  # the SDK's name for it
        *_: Any,
        **__: Any,
    ) -> "agents.ModelResponse":
        """Hand over what the user said last, and say what came back."""
        answer = await self._hand_off(_said(input))
        words = ResponseOutputText(text=answer.text, type="output_text", annotations=[])
        message = ResponseOutputMessage(
            id=answer.handoff or "refused",
            type="message",
            role="assistant",
            status="completed",
            content=[words],
        )
        return agents.ModelResponse(output=[message], usage=agents.Usage(), response_id=None)

    async def stream_response(self, *given: Any, **more: Any) -> AsyncIterator[Any]:
        """Say it all at once."""
        said = await self.get_response(*given, **more)
        response = Response(
            id="remote",
            created_at=0,
            model="remote",
            object="response",
            output=said.output,
            tool_choice="none",
            tools=[],
            parallel_tool_calls=False,
        )
        yield ResponseCompletedEvent(
            type="response.completed", sequence_number=0, response=response
        )


def _said(given: Any) -> str:
    """Return the user's last words."""
    if isinstance(given, str):
        return given
    items = cast("list[dict[str, Any]]", [item for item in given if isinstance(item, dict)])
    words = [item.get("content") for item in items if item.get("role") == "user"]
    return text(words[-1]) if words else ""
