"""Google ADK: agents and apps as agents; tools and sub-agents that hand off.

A long-running tool call is a question, and so are ADK's own requests for input or confirmation. The
session's events are parked with it.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, Unpack

from nodrop.adapters.port.events import Done, Event, Failed, NeedHelp, Progress, Resume, Work, text
from nodrop.adapters.port.handing import Handing, HandOff
from nodrop.adapters.port.installed import needs
from nodrop.adapters.port.serving import Terms, agent_of
from nodrop.client.agent import Agent
from nodrop.client.settings import Address, CaFile
from nodrop.client.values import given

with needs("google-adk", "2.13", extra="google-adk"):
    from google.adk.agents import BaseAgent, InvocationContext
    from google.adk.apps import App
    from google.adk.events import Event as AdkEvent
    from google.adk.runners import Runner
    from google.adk.sessions import InMemorySessionService
    from google.adk.tools import FunctionTool
    from google.genai import types

CONFIRMATION = "adk_request_confirmation"
"""The call by which ADK asks whether a tool may run."""


def as_agent(target: BaseAgent | App, *, agent: str, **terms: Unpack[Terms]) -> Agent:
    """Return an agent that has `target` answer each handoff, in a session of its own."""
    return agent_of(SessionDriver(target), agent, "google-adk", terms)


async def serve(
    target: BaseAgent | App,
    *,
    agent: str,
    address: Address | None = None,
    ca: CaFile | None = None,
    **terms: Unpack[Terms],
) -> None:
    """Work as `agent` until stopped or cancelled; see `as_agent`, and `Agent.serve` for `address` and `ca`."""
    await as_agent(target, agent=agent, **terms).serve(address, ca=ca)


def hand_off_tool(to: str | None = None, **terms: Unpack[Handing]) -> FunctionTool:
    """Return a tool that hands a task over and brings the result."""
    return FunctionTool(HandOff(to, terms).function())


def remote_agent(to: str, **terms: Unpack[Handing]) -> BaseAgent:
    """Return a sub-agent who is somewhere else, for `sub_agents=[...]` and workflows."""
    hand_off = HandOff(to, terms)

    class RemoteAgent(BaseAgent):
        async def _run_async_impl(self, ctx: InvocationContext) -> AsyncGenerator[AdkEvent, None]:
            parts = ctx.user_content.parts if ctx.user_content else None
            answer = await hand_off("".join(part.text or "" for part in parts or ()))
            said = types.Content(role="model", parts=[types.Part(text=answer.text)])
            yield AdkEvent(
                author=self.name, invocation_id=ctx.invocation_id, branch=ctx.branch, content=said
            )

    return RemoteAgent(name=hand_off.participant, description=hand_off.description)


class SessionDriver:
    """Runs an agent or an app, one session per handoff."""

    def __init__(self, target: BaseAgent | App) -> None:
        self._app = target if isinstance(target, App) else App(name="nodrop", root_agent=target)

    async def drive(self, work: Work, resume: Resume | None) -> AsyncGenerator[Event, Any]:
        """See `Driver`."""
        sessions = InMemorySessionService()
        runner = Runner(app=self._app, session_service=sessions)
        app, user = self._app.name, work.sender
        session = await sessions.create_session(app_name=app, user_id=user, session_id=work.id)
        if resume is None:
            parts = [types.Part(text=work.prompt)]
        else:
            for event in resume.state["events"]:
                await sessions.append_event(session, AdkEvent.model_validate(event))
            parts = _answers(resume)
        waiting: dict[str, dict[str, Any]] = {}
        output: Any = None
        stop = asyncio.Event()
        message = types.Content(role="user", parts=parts)
        run = runner.run_async(
            user_id=user, session_id=work.id, new_message=message, abort_signal=stop
        )
        try:
            async with aclosing(run) as events:
                async for event in events:
                    if event.error_code:
                        reason = f"{event.error_code}: {event.error_message}"
                        yield Failed(reason=reason, code="model_error", retryable=True)
                        return
                    waiting |= _pauses(event)
                    output = _said(event, output)
                    yield Progress(status=event.author)
        finally:
            stop.set()
        if not waiting:
            yield Done(output=output)
            return
        ended = await sessions.get_session(app_name=app, user_id=user, session_id=work.id)
        assert ended is not None, "it was made above"
        kept = [event.model_dump(mode="json", exclude_none=True) for event in ended.events]
        calls = list(waiting.values())
        asked = text([_asked(call) for call in calls])
        yield NeedHelp(question=asked, state={"waiting": calls, "events": kept})


def _pauses(event: AdkEvent) -> dict[str, dict[str, Any]]:
    """Return the calls of an event that somebody outside must answer, by their ids."""
    long_running = event.long_running_tool_ids or ()
    return {
        call.id: call.model_dump(mode="json", include={"id", "name", "args"})
        for call in event.get_function_calls()
        if call.id is not None and call.id in long_running
    }


def _asked(call: dict[str, Any]) -> dict[str, Any]:
    """Return a call as whoever is asked reads it: of a confirmation, what is to be confirmed."""
    if call["name"] != CONFIRMATION:
        return {"tool": call["name"], "arguments": call["args"]}
    wanted, asks = call["args"]["originalFunctionCall"], call["args"]["toolConfirmation"]
    return given(tool=wanted["name"], arguments=wanted["args"], hint=asks.get("hint"))


def _said(event: AdkEvent, before: Any) -> Any:
    if event.output is not None:
        return event.output
    if event.is_final_response() and event.content and event.content.parts:
        words = [part.text for part in event.content.parts if part.text]
        return "".join(words) if words else before
    return before


def _answers(resume: Resume) -> list[types.Part]:
    def response(name: str) -> dict[str, Any]:
        if name == CONFIRMATION:
            return {"confirmed": resume.approved}
        return resume.answer if isinstance(resume.answer, dict) else {"result": resume.answer}

    return [
        types.Part(
            function_response=types.FunctionResponse(
                id=call["id"], name=call["name"], response=response(call["name"])
            )
        )
        for call in resume.state["waiting"]
    ]
