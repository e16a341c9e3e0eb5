"""Pydantic AI: agents as agents; tools that hand off.

A deferred tool call, or one that requires approval, is a question: the answer is what the call
returns, or whether it is approved. The messages so far are parked with it.
"""

from collections.abc import AsyncGenerator, Callable
from typing import Any, Unpack

from nodrop.adapters.port.events import Done, Event, Failed, NeedHelp, Progress, Resume, Work, text
from nodrop.adapters.port.handing import Handing, HandOff
from nodrop.adapters.port.installed import needs
from nodrop.adapters.port.serving import Terms, agent_of
from nodrop.client.agent import Agent
from nodrop.client.settings import Address, CaFile

with needs("pydantic-ai-slim", "2.60", extra="pydantic-ai"):
    from pydantic_ai import (
        AgentRunResult,
        AgentRunResultEvent,
        DeferredToolRequests,
        DeferredToolResults,
        FunctionToolCallEvent,
        ModelMessagesTypeAdapter,
        Tool,
        ToolDenied,
    )
    from pydantic_ai.agent import AbstractAgent

Target = AbstractAgent[Any, Any]


def as_agent(
    target: Target, *, agent: str, deps: Callable[[], Any] | None = None, **terms: Unpack[Terms]
) -> Agent:
    """Return an agent that runs `target` on each handoff; the result is its output.

    `deps` makes the dependencies of a run, which cannot be parked.
    """
    return agent_of(RunDriver(target, deps), agent, "pydantic-ai", terms)


async def serve(
    target: Target,
    *,
    agent: str,
    address: Address | None = None,
    ca: CaFile | None = None,
    deps: Callable[[], Any] | None = None,
    **terms: Unpack[Terms],
) -> None:
    """Work as `agent` until stopped or cancelled; see `as_agent`, and `Agent.serve` for `address` and `ca`."""
    await as_agent(target, agent=agent, deps=deps, **terms).serve(address, ca=ca)


def hand_off_tool(to: str | None = None, **terms: Unpack[Handing]) -> Tool[Any]:
    """Return a tool that hands a task over and brings the result."""
    hand_off = HandOff(to, terms)
    return Tool(hand_off.function(), name=hand_off.name, takes_ctx=False)


class RunDriver:
    """Runs an agent of Pydantic AI."""

    def __init__(self, target: Target, deps: Callable[[], Any] | None) -> None:
        self._target = target
        self._deps = deps

    async def drive(self, work: Work, resume: Resume | None) -> AsyncGenerator[Event, Any]:
        """See `Driver`."""
        prompt: str | None = work.prompt
        result: AgentRunResult[Any] | None = None
        # Given per run, so that agents need not be made for it.
        more: dict[str, Any] = {"output_type": [self._target.output_type, DeferredToolRequests]}
        if self._deps is not None:
            more["deps"] = self._deps()
        if resume is not None:
            prompt = None
            more |= {
                "message_history": ModelMessagesTypeAdapter.validate_python(
                    resume.state["history"]
                ),
                "deferred_tool_results": _answers(resume),
            }
        async with self._target.run_stream_events(prompt, **more) as events:
            async for event in events:
                if isinstance(event, AgentRunResultEvent):
                    result = event.result
                elif isinstance(event, FunctionToolCallEvent):
                    yield Progress(status=f"tool {event.part.tool_name}")
        if result is None:
            yield Failed(reason="the run ended without a result", code="no_result")
        elif isinstance(result.output, DeferredToolRequests):
            yield _question(result, result.output)
        else:
            yield Done(output=result.output)


def _question(result: AgentRunResult[Any], wanted: DeferredToolRequests) -> NeedHelp:
    kinds = (("call", wanted.calls), ("approval", wanted.approvals))
    asked = [
        {"tool": call.tool_name, "arguments": call.args_as_dict(), "kind": kind}
        for kind, calls in kinds
        for call in calls
    ]
    state = {
        "history": ModelMessagesTypeAdapter.dump_python(result.all_messages(), mode="json"),
        "calls": [call.tool_call_id for call in wanted.calls],
        "approvals": [call.tool_call_id for call in wanted.approvals],
    }
    return NeedHelp(question=text(asked), state=state)


def _answers(resume: Resume) -> DeferredToolResults:
    approval = True if resume.approved else ToolDenied(resume.text)
    return DeferredToolResults(
        calls=dict.fromkeys(resume.state["calls"], resume.answer),
        approvals=dict.fromkeys(resume.state["approvals"], approval),
    )
