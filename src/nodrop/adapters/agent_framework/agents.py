"""Agents of the Microsoft Agent Framework at work, and one that works elsewhere."""

from collections.abc import AsyncGenerator, AsyncIterable
from contextlib import suppress
from typing import Any

from nodrop.adapters.port.events import Done, Event, NeedHelp, Progress, Resume, Work, text
from nodrop.adapters.port.handing import HandOff
from nodrop.adapters.port.installed import needs

with needs("agent-framework-core", "1.23", extra="agent-framework"):
    from agent_framework import (
        AgentResponse,
        AgentResponseUpdate,
        AgentSession,
        BaseAgent,
        Content,
        Message,
        ResponseStream,
        SupportsAgentRun,
    )


class AgentDriver:
    """Runs an agent, one session per handoff."""

    def __init__(self, target: SupportsAgentRun) -> None:
        self._target = target

    async def drive(self, work: Work, resume: Resume | None) -> AsyncGenerator[Event, Any]:
        """See `Driver`."""
        if resume is None:
            session = self._target.create_session(session_id=work.id)
            messages = [Message(role="user", contents=[work.prompt])]
        else:
            session = AgentSession.from_dict(resume.state["session"])
            messages = _answers(resume)
        stream = self._target.run(messages, stream=True, session=session)
        async for update in stream:
            yield Progress(status=update.text or "/".join(c.type for c in update.contents))
        response = await stream.get_final_response()
        if response.user_input_requests:
            requests = [request.to_dict() for request in response.user_input_requests]
            asked = [_asked(request) for request in response.user_input_requests]
            state = {"session": session.to_dict(), "requests": requests}
            yield NeedHelp(question=text(asked), state=state)
            return
        value = None
        with suppress(ValueError):  # an answer that does not fit is still an answer
            value = response.value
        yield Done(output=response.text if value is None else value)


class RemoteAgent(BaseAgent):
    """An agent whose runs happen at the other end of a handoff."""

    def __init__(self, hand_off: HandOff, *, name: str, description: str) -> None:
        super().__init__(name=name, description=description)
        self._hand_off = hand_off

    def run(self, messages: Any = None, *, stream: bool = False, **_: Any) -> Any:
        """Hand over what was said, and say what came back: at once, or as a stream of one."""
        task = _said(messages)

        async def whole() -> "AgentResponse[Any]":
            words = (await self._hand_off(task)).text
            reply = Message(role="assistant", contents=[words], author_name=self.name)
            return AgentResponse(messages=[reply])

        async def updates() -> AsyncIterable[AgentResponseUpdate]:
            words = Content.from_text((await self._hand_off(task)).text)
            yield AgentResponseUpdate(role="assistant", contents=[words], author_name=self.name)

        if stream:
            return ResponseStream(updates(), finalizer=AgentResponse.from_updates)
        return whole()


def _asked(request: Content) -> dict[str, Any]:
    call = request.function_call
    if call is None:
        return request.to_dict()
    return {"tool": call.name, "arguments": call.parse_arguments()}


def _answers(resume: Resume) -> list[Message]:
    """Approve or not; words that come with a refusal are said to the agent."""
    requests = [Content.from_dict(request) for request in resume.state["requests"]]
    decided = [request.to_function_approval_response(resume.approved) for request in requests]
    messages = [Message(role="user", contents=decided)]
    if not resume.approved and isinstance(resume.answer, str):
        messages.append(Message(role="user", contents=[resume.text]))
    return messages


def _said(messages: Any) -> str:
    if messages is None or isinstance(messages, str):
        return messages or ""
    several = messages if isinstance(messages, list) else [messages]
    return "\n".join(one if isinstance(one, str) else one.text for one in several)
