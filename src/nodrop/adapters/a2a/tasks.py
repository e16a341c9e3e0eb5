"""Tasks of A2A agents, followed to their end: one per handoff, polled gently."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager, suppress
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

_WITHDRAWING: Final[set[asyncio.Task[None]]] = set()
"""Held here until they are over: an event loop does not hold its tasks."""


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
        begun: str | None = None
        try:
            async with (
                self._connected(headers) as client,
                aclosing(_follow(client, message)) as tasks,
            ):
                async for task in tasks:
                    if isinstance(task, Message):
                        yield Done(output=messages.said(task.parts))
                    elif task.status.state in RESTING:
                        begun = None
                        yield _rested(task)
                    else:
                        begun = task.id
                        yield Progress(status=TaskState.Name(task.status.state))
        except (asyncio.CancelledError, GeneratorExit):
            if begun is not None:
                await self._withdrawn(begun, headers)
            raise

    async def _withdrawn(self, task_id: str, headers: dict[str, str]) -> None:
        """Have an agent told that nobody wants a task any more.

        By a task of its own, over a connection of its own: who is cancelled here has lost both, and
        may be cancelled again while it cleans up.
        """

        async def tell() -> None:
            async with self._connected(headers) as client:
                await cancelled(client, task_id)

        telling = asyncio.create_task(tell())
        _WITHDRAWING.add(telling)
        telling.add_done_callback(_WITHDRAWING.discard)
        await asyncio.shield(telling)

    @asynccontextmanager
    async def _connected(self, headers: dict[str, str]) -> AsyncGenerator[Client]:
        async with httpx.AsyncClient(headers=headers, timeout=REQUEST_SECONDS_MAX) as http:
            config = ClientConfig(streaming=False, polling=True, httpx_client=http)
            async with await create_client(self._target, config) as client:
                yield client


async def _follow(client: Client, message: Message) -> AsyncGenerator[Task | Message]:
    """Yield what the agent says of it, until it does not go on by itself."""
    said = await _sent(client, message)
    pause = POLL_SECONDS_MIN
    while not isinstance(said, Message) and said.status.state not in RESTING:
        yield said
        await asyncio.sleep(pause)
        pause = min(pause * POLL_GROWTH, POLL_SECONDS_MAX)
        said = await client.get_task(GetTaskRequest(id=said.id))
    yield said


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
