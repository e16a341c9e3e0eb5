"""Tasks of A2A agents, followed to their end: one per handoff, polled gently."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from typing import Any, Final

from nodrop.adapters.a2a import messages
from nodrop.adapters.port.current import working
from nodrop.adapters.port.events import Done, Event, Failed, NeedHelp, Progress, Resume, Work, text
from nodrop.adapters.port.installed import needs

with needs("a2a-sdk", "1.3", extra="a2a"):
    import httpx
    from a2a.client import A2AClientError, Client, ClientConfig, create_client
    from a2a.types import (
        AgentCard,
        AgentInterface,
        CancelTaskRequest,
        GetTaskRequest,
        Message,
        SendMessageConfiguration,
        SendMessageRequest,
        Task,
        TaskState,
    )
    from a2a.utils.errors import A2AError

POLL_SECONDS_MIN: Final = 0.25
POLL_SECONDS_MAX: Final = 3.0
"""Polls begin often and become rare: OpenClaw takes 30 requests a minute from one peer."""
POLL_GROWTH: Final = 1.5
REQUEST_SECONDS_MAX: Final = 60.0
CANCEL_SECONDS_MAX: Final = 5.0

ASKING: Final = (TaskState.TASK_STATE_INPUT_REQUIRED, TaskState.TASK_STATE_AUTH_REQUIRED)
_FAILED: Final = (
    TaskState.TASK_STATE_FAILED,
    TaskState.TASK_STATE_REJECTED,
    TaskState.TASK_STATE_CANCELED,
)
RESTING: Final = (TaskState.TASK_STATE_COMPLETED, *ASKING, *_FAILED)


def endpoint(url: str) -> AgentCard:
    """Return a card for an A2A 1.0 JSON-RPC address whose card is not needed, such as OpenClaw's."""
    way = AgentInterface(url=url, protocol_binding="JSONRPC", protocol_version="1.0")
    return AgentCard(name="remote", supported_interfaces=[way])


class TaskDriver:
    """Has an A2A agent do the work."""

    def __init__(self, target: str | AgentCard, token: str | None) -> None:
        self._target = target
        self._token = token

    async def drive(self, work: Work, resume: Resume | None) -> AsyncGenerator[Event, Any]:
        """See `Driver`."""
        headers = {"Authorization": f"Bearer {self._token}"} if self._token else {}
        if traceparent := working().traceparent:
            headers["traceparent"] = traceparent
        message = messages.begin(work) if resume is None else messages.go_on(work, resume)
        async with httpx.AsyncClient(headers=headers, timeout=REQUEST_SECONDS_MAX) as http:
            config = ClientConfig(streaming=False, polling=True, httpx_client=http)
            async with (
                await create_client(self._target, config) as client,
                aclosing(_follow(client, message)) as events,
            ):
                async for event in events:
                    yield event


async def _follow(client: Client, message: Message) -> AsyncGenerator[Event, Any]:
    task = await _sent(client, message)
    if isinstance(task, Message):
        yield Done(output=messages.said(task.parts))
        return
    pause = POLL_SECONDS_MIN
    try:
        while task.status.state not in RESTING:
            yield Progress(status=TaskState.Name(task.status.state))
            await asyncio.sleep(pause)
            pause = min(pause * POLL_GROWTH, POLL_SECONDS_MAX)
            task = await client.get_task(GetTaskRequest(id=task.id))
    except (asyncio.CancelledError, GeneratorExit):
        await cancelled(client, task.id)
        raise
    yield _rested(task)


def _rested(task: Task) -> Event:
    """Return what a task came to that does not go on by itself."""
    words = task.status.message.parts
    if task.status.state in ASKING:
        question = text(messages.said(words))
        return NeedHelp(question=question, state=messages.kept(task))
    if task.status.state in _FAILED:
        name = TaskState.Name(task.status.state)
        return Failed(reason=text(messages.said(words)) or name, code=name.lower())
    return Done(output=messages.outcome(task))


async def _sent(client: Client, message: Message) -> Task | Message:
    at_once = SendMessageConfiguration(return_immediately=True)
    request = SendMessageRequest(message=message, configuration=at_once)
    async for answer in client.send_message(request):
        return answer.message if answer.HasField("message") else answer.task
    raise A2AClientError("the agent did not answer")


async def cancelled(client: Client, task_id: str) -> None:
    """Tell an agent that nobody wants a task any more."""
    # At best: it may have ended, OpenClaw refuses to, and the answer counts for nothing any more.
    with suppress(A2AError, httpx.HTTPError, TimeoutError):
        async with asyncio.timeout(CANCEL_SECONDS_MAX):
            await client.cancel_task(CancelTaskRequest(id=task_id))
