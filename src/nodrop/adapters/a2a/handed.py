"""A task at the relay, followed until it does not go on by itself."""

import asyncio
from typing import Final

from nodrop.adapters.a2a import outcomes, tasks
from nodrop.adapters.a2a.incoming import Incoming
from nodrop.adapters.a2a.outcomes import Question
from nodrop.adapters.port.handing import Answer, refused
from nodrop.adapters.port.installed import needs
from nodrop.client.durations import Duration, seconds
from nodrop.model.errors import ConflictError, UnreachableError

with needs("a2a-sdk", "1.3", extra="a2a"):
    from a2a.client import Client
    from a2a.types import (
        GetTaskRequest,
        Message,
        Role,
        SendMessageConfiguration,
        SendMessageRequest,
        Task,
    )
    from a2a.utils.errors import A2AError

TRIES_MAX: Final = 5
"""How often a relay is called that has not answered yet: for about two seconds."""


class Handed:
    """One task that was handed on, or will be.

    The relay answers a message when there is an outcome or a question, or after a while. A message
    with the same key is the same task, so the message itself is what asks again.
    """

    def __init__(self, client: Client, came: Incoming, offer: Message) -> None:
        self._client = client
        self._came = came
        self._offer = offer
        self._task: Task | None = None
        """As the relay last showed it; None: it may not even be stored."""

    async def rested(self, wait: Duration) -> Answer | Question:
        """Return what it came to within `wait`, or how it stands then.

        Raises:
            UnavailableError: it could not be stored, such as `unreachable`: no relay answered.
        """
        try:
            async with asyncio.timeout(seconds(wait)):
                return await self._followed()
        except TimeoutError:
            if self._task is None:
                raise UnreachableError from None
            return outcomes.elapsed(self._task)
        except asyncio.CancelledError:
            # Where there is a handoff above, the relay withdraws what is below it, and only then:
            # its next attempt may find this task again.
            if self._task is not None and self._came.parent_id is None:
                await tasks.cancelled(self._client, self._task.id)
            raise

    async def _followed(self) -> Answer | Question:
        pause, tries = tasks.POLL_SECONDS_MIN, 0
        while True:
            known = self._task is not None
            try:
                # First what makes it known; from then on, the relay answers when there is something.
                task = await self._send(self._offer, wait=known)
                if task.status.state in tasks.ASKING and self._came.answers == outcomes.asked(task):
                    task = await self._answered(task)
                if task.status.state in tasks.RESTING and outcomes.is_ours(task):
                    return outcomes.value(task)
            except A2AError as error:
                refusal = outcomes.refusal(error)
                if not refusal.retryable:
                    return refused(refusal)
                tries += 1
                if not known and tries == TRIES_MAX:
                    raise refusal from error
            if known or tries:
                await asyncio.sleep(pause)
                pause = min(pause * tasks.POLL_GROWTH, tasks.POLL_SECONDS_MAX)

    async def _answered(self, task: Task) -> Task:
        """Pass on the answer that the executor was called with."""
        reply = Message(
            message_id=f"{self._offer.message_id}-{outcomes.asked(task)[1]}",
            task_id=task.id,
            context_id=task.context_id,
            role=Role.ROLE_USER,
            parts=self._came.parts,
        )
        try:
            return await self._send(reply, wait=True)
        except A2AError as error:
            if not isinstance(outcomes.refusal(error), ConflictError):
                raise
            # Somebody else was faster, or it is over.
            return await self._client.get_task(GetTaskRequest(id=task.id))

    async def _send(self, message: Message, *, wait: bool) -> Task:
        at_once = SendMessageConfiguration(return_immediately=not wait)
        request = SendMessageRequest(message=message, configuration=at_once)
        async for told in self._client.send_message(request):
            if told.HasField("task"):
                self._task = told.task
            elif self._task is not None:  # what an agent that knows A2A may answer instead
                self._task = await self._client.get_task(GetTaskRequest(id=self._task.id))
        assert self._task is not None, "what is not waited for is answered with a task"
        return self._task
