"""AutoGen: chat agents and teams as agents; tools and team members that hand off.

A handoff to somebody who is not in the team, such as `handoffs=["user"]`, is a question. Agents and
teams remember: each object works on one handoff at a time, and a factory makes one for each.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any, Unpack

from nodrop.adapters.port import threaded
from nodrop.adapters.port.events import Done, Event, Failed, NeedHelp, Progress, Resume, Work
from nodrop.adapters.port.handing import Answer, Handing, HandOff
from nodrop.adapters.port.installed import needs
from nodrop.adapters.port.serving import Terms, agent_of
from nodrop.adapters.port.turns import Turns
from nodrop.client.agent import Agent
from nodrop.client.settings import Address, CaFile

with needs("autogen-agentchat", "0.7.5", extra="autogen"):
    from autogen_agentchat.agents import BaseChatAgent
    from autogen_agentchat.base import ChatAgent, Response, TaskResult, Team
    from autogen_agentchat.messages import (
        BaseChatMessage,
        HandoffMessage,
        ModelClientStreamingChunkEvent,
        TextMessage,
    )
    from autogen_core import CancellationToken
    from autogen_core.tools import FunctionTool

Target = ChatAgent | Team | Callable[[], ChatAgent | Team]


def as_agent(target: Target, *, agent: str, **terms: Unpack[Terms]) -> Agent:
    """Return an agent that has `target` work on each handoff; the result is its last message."""
    if isinstance(target, ChatAgent | Team):
        terms.setdefault("concurrency", 1)
    return agent_of(ChatDriver(target), agent, "autogen", terms)


async def serve(
    target: Target,
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
    hand_off = HandOff(to, terms)
    return FunctionTool(hand_off.function(), description=hand_off.description, name=hand_off.name)


def remote_agent(to: str, **terms: Unpack[Handing]) -> BaseChatAgent:
    """Return a team member who is somewhere else: what it is told is handed over to `to`.

    As the target of a native handoff it gives the turn back with the result.
    """
    hand_off = HandOff(to, terms)
    return RemoteAgent(hand_off, name=hand_off.participant, description=hand_off.description)


class ChatDriver:
    """Runs an agent or a team on a clean slate for every handoff."""

    def __init__(self, target: Target) -> None:
        self._turns = Turns[ChatAgent | Team](target, (ChatAgent, Team))

    async def drive(self, work: Work, resume: Resume | None) -> AsyncGenerator[Event, Any]:
        """See `Driver`."""
        threaded.carry_context()
        async with self._turns.taken() as target:
            await (
                target.reset() if isinstance(target, Team) else target.on_reset(CancellationToken())
            )
            if resume is None:
                task: BaseChatMessage = TextMessage(content=work.prompt, source="user")
            else:
                await target.load_state(resume.state["saved"])
                back = resume.state["asker"]
                task = HandoffMessage(content=resume.text, source="user", target=back)
            result, stop = None, CancellationToken()
            try:
                async for said in target.run_stream(task=task, cancellation_token=stop):
                    match said:
                        case TaskResult():
                            result = said
                        case ModelClientStreamingChunkEvent():
                            yield Progress(status=said.content)
                        case _:
                            yield Progress(status=f"{said.source}: {type(said).__name__}")
            finally:
                stop.cancel()
            if result is None or not result.messages:
                yield Failed(reason="the run ended without a message", code="no_result")
                return
            last = result.messages[-1]
            if isinstance(last, HandoffMessage):
                state = {"saved": await target.save_state(), "asker": last.source}
                yield NeedHelp(question=last.content, state=dict(state))
                return
            yield Done(output=getattr(last, "content", None) or last.to_text())


class RemoteAgent(BaseChatAgent):
    """A participant whose turns are taken at the other end of a handoff."""

    def __init__(self, hand_off: HandOff, *, name: str, description: str) -> None:
        super().__init__(name, description)
        self._hand_off = hand_off

    @property
    def produced_message_types(self) -> Sequence[type[BaseChatMessage]]:
        """What it may say."""
        return (TextMessage, HandoffMessage)

    async def on_messages(
        self, messages: Sequence[BaseChatMessage], cancellation_token: CancellationToken
    ) -> Response:
        """Hand over what was said, and say what came back."""
        said = "\n".join(message.to_model_text() for message in messages)
        handing = asyncio.ensure_future(self._hand_off(said))
        cancellation_token.link_future(handing)
        answer: Answer = await handing
        asker = next((m.source for m in reversed(messages) if isinstance(m, HandoffMessage)), None)
        if asker is None:
            return Response(chat_message=TextMessage(content=answer.text, source=self.name))
        back = HandoffMessage(content=answer.text, source=self.name, target=asker)
        return Response(chat_message=back)

    async def on_reset(self, cancellation_token: CancellationToken) -> None:
        """It remembers nothing."""
