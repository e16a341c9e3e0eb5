"""One handoff on its way to an agent elsewhere: sent once, followed to its end, told back.

What was sent is recorded with the handoff before it is sent, and the task that came of it after: a
later attempt, or the next run of the relay, goes on with that task instead of sending again. Where
nobody knows whether something arrived, it is sent again under the same message id.
"""

import asyncio
import logging
from collections.abc import Mapping
from typing import Any, Final

import msgspec
from a2a.types import Message, Part, Task, TaskState
from google.protobuf.json_format import MessageToDict
from google.protobuf.struct_pb2 import Struct

from nodrop.model.errors import (
    AlreadyFinishedError,
    ForbiddenError,
    NodropError,
    NotFoundError,
    StaleAttemptError,
)
from nodrop.protocol import canonical
from nodrop.relay.ports import Clock
from nodrop.servers.a2a import extension, parts, tasks
from nodrop.servers.a2a.calling.remote import AwayError, RefusedError, Remote
from nodrop.servers.a2a.calling.visit import View, Way

log = logging.getLogger("nodrop.a2a")

FIRST_LOOK_MS: Final = 500
LOOK_MS_MAX: Final = 15_000
"""How rarely an agent is asked that tells nothing by itself: some count requests per minute."""
LISTEN_SECONDS_MAX: Final = 60.0
_TERMS: Final = {
    "capability": "capability",
    "title": "title",
    "trigger": "trigger",
    "expected_outcome": "expectedOutcome",
    "priority": "priority",
}
"""What another relay is told of a handoff, in A2A's spelling."""
_REASON_CHARS_MAX: Final = 2_000
_GONE: Final = (StaleAttemptError, AlreadyFinishedError, NotFoundError, ForbiddenError)
"""It has another attempt, an end, or another recipient."""
_ASKS: Final = frozenset({TaskState.TASK_STATE_INPUT_REQUIRED, TaskState.TASK_STATE_AUTH_REQUIRED})
_UNDER_WAY: Final = frozenset({TaskState.TASK_STATE_SUBMITTED, TaskState.TASK_STATE_WORKING})


class Delivery(msgspec.Struct, frozen=True, kw_only=True):
    """What an errand begins with."""

    handoff: View
    attempt: int
    steps: Mapping[str, Any]
    answers: Mapping[str, Any]

    @property
    def key(self) -> tuple[str, int]:
        """What it is known by."""
        return self.handoff["id"], self.attempt


class Errand:
    """One delivery, carried to an agent elsewhere."""

    def __init__(self, delivery: Delivery, way: Way, remote: Remote, clock: Clock) -> None:
        self._handoff = delivery.handoff
        self._attempt = delivery.attempt
        self._steps = dict(delivery.steps)
        self._answers = delivery.answers
        self._way = way
        self._remote = remote
        self._clock = clock
        self._said = ""
        self.task_id: str | None = None
        """The task there, once there is one."""

    async def run(self) -> None:
        """Carry it out.

        Raises:
            AwayError: the agent is not there; it is to be given back.
        """
        try:
            if self._handoff["state"] != "accepted":
                await self._tell("ack")
            await self._carry()
        except _GONE as error:
            log.info("%s went on without us: %s", self._handoff["id"], error)
            await self.withdraw()

    async def withdraw(self) -> None:
        """Tell the agent that nobody wants its result any more, if it listens."""
        if self.task_id is not None:
            try:
                await self._remote.cancel(self.task_id)
            except (AwayError, RefusedError) as error:
                log.info("%s could not be stopped: %s", self.task_id, error)

    async def _carry(self) -> None:
        number = self._under_way()
        try:
            found = await self._sent(number)
            while (found := await self._followed(found)) is not None:
                pass
        except RefusedError as error:
            await self._record(f"a2a.over.{number}", str(error)[:_REASON_CHARS_MAX])
            code = "remote_forgot" if error.forgotten else "remote_refused"
            await self._tell("fail", code=code, reason=str(error), retryable=error.retryable)

    def _under_way(self) -> int:
        """Return the attempt whose message counts: an earlier one's, unless that is over."""
        sent = [
            int(name.rpartition(".")[2]) for name in self._steps if name.startswith("a2a.sent.")
        ]
        last = max(sent, default=None)
        return self._attempt if last is None or f"a2a.over.{last}" in self._steps else last

    async def _sent(self, number: int) -> Task | Message:
        """Return what became of the handoff there; send it, if it was not sent."""
        known = self._steps.get(f"a2a.task.{number}")
        if known is None:
            message_id = f"{self._handoff['id']}-{number}"
            await self._record(f"a2a.sent.{number}", message_id)
            answer = await self._say(self._message(message_id))
            if isinstance(answer, Task):
                self.task_id = answer.id
                await self._record(f"a2a.task.{number}", answer.id)
        else:
            answer = await self._remote.task(known)
        if isinstance(answer, Task):
            self.task_id = answer.id
            if answer.status.state in _ASKS and (question := self._answered()) is not None:
                return await self._reply(answer, *question)
        return answer

    async def _say(self, message: Message) -> Task | Message:
        return await self._remote.send(message, traceparent=self._handoff["traceparent"])

    def _answered(self) -> tuple[str, Any] | None:
        """Return the answer that has not been passed on yet, and its question's name."""
        for name, answer in self._answers.items():
            if name.startswith("a2a-") and f"a2a.answered.{name}" not in self._steps:
                return name, answer
        return None

    async def _reply(self, task: Task, name: str, answer: Any) -> Task | Message:
        message = Message(
            message_id=f"{self._handoff['id']}-{self._attempt}",
            task_id=task.id,
            context_id=task.context_id,
            role="ROLE_USER",
            parts=parts.of_value(answer),
        )
        said = await self._say(message)
        await self._record(f"a2a.answered.{name}", value=True)
        return said

    async def _followed(self, found: Task | Message) -> Task | None:
        """Tell the relay how it stands there; return it as it is later, None once that is all."""
        if isinstance(found, Message):
            await self._tell("complete", result=value(found.parts))
            return None
        state, words = found.status.state, text(found.status.message)
        if state in _UNDER_WAY:
            if words and words != self._said:
                self._said = words
                await self._tell("update", status=words)
            return await self._later(found)
        match state:
            case TaskState.TASK_STATE_COMPLETED:
                await self._tell("complete", result=result(found))
            case TaskState.TASK_STATE_REJECTED:
                await self._tell("reject", reason=words or "the agent elsewhere rejected it")
            case _ if state in _ASKS:
                await self._ask(words, login=state == TaskState.TASK_STATE_AUTH_REQUIRED)
            case _:
                await self._record(f"a2a.over.{self._under_way()}", TaskState.Name(state))
                cancelled = state == TaskState.TASK_STATE_CANCELED
                code = "remote_cancelled" if cancelled else "remote_failed"
                await self._tell("fail", code=code, reason=words or TaskState.Name(state))
        return None

    async def _later(self, task: Task) -> Task:
        """Return a task as it is once something happened to it."""
        wait_ms = FIRST_LOOK_MS
        while True:
            if not await self._told(task):
                await self._clock.sleep_until(self._clock.now() + wait_ms)
                wait_ms = min(wait_ms * 2, LOOK_MS_MAX)
            now = await self._remote.task(task.id)
            words = text(now.status.message)
            if now.status.state not in _UNDER_WAY or (words and words != self._said):
                return now

    async def _told(self, task: Task) -> bool:
        """Listen for a change, where the agent tells of them; a hint: what counts is asked for."""
        if not self._remote.streams:
            return False
        try:
            async with asyncio.timeout(LISTEN_SECONDS_MAX):
                return await self._heard(task)
        except (TimeoutError, AwayError, RefusedError):
            return False

    async def _heard(self, task: Task) -> bool:
        changes = self._remote.changes(task.id)
        try:
            async for change in changes:
                told = change.status_update.status if change.HasField("status_update") else None
                if told is not None and told.state not in _UNDER_WAY:
                    return True
                if told is not None and (words := text(told.message)) not in {"", self._said}:
                    self._said = words
                    await self._tell("update", status=words)
            return False
        finally:
            await changes.aclose()

    # --- what the relay is told ---

    async def _ask(self, words: str, *, login: bool) -> None:
        """Ask the requester, and leave: the answer comes with another attempt."""
        what = "It wants to be logged in" if login else "It wants to know more"
        await self._tell("block", question=words or what, name=f"a2a-{self._attempt}", park=True)

    async def give_back(self, error: AwayError) -> None:
        """Put the handoff back into its inbox: there is nobody to carry it to."""
        try:
            await self._tell("release", reason=f"the agent elsewhere is away: {error}")
        except NodropError as refused:
            log.info("%s could not be given back: %s", self._handoff["id"], refused)

    async def _tell(self, operation: str, **fields: Any) -> None:
        for name in ("reason", "question", "status"):
            if name in fields:
                fields[name] = fields[name][:_REASON_CHARS_MAX]
        sent = {**fields, "attempt": self._attempt, "brief": True}
        try:
            await self._way.call(operation, sent, handoff=self._handoff["id"])
        except _GONE:
            raise
        except NodropError as error:
            if operation != "complete" or error.retryable:
                raise
            # A result that the relay does not take will not get better by asking again.
            await self._tell("fail", code=error.code, reason=error.detail)

    async def _record(self, name: str, value: Any) -> None:
        fields = {"attempt": self._attempt, "value": value}
        answer = await self._way.call("step", fields, handoff=self._handoff["id"], name=name)
        self._steps[name] = answer["value"]

    def _message(self, message_id: str) -> Message:
        message = Message(
            message_id=message_id,
            context_id=self._handoff["correlation_id"],
            role="ROLE_USER",
            parts=said_to(self._handoff, ours=self._remote.speaks_ours),
        )
        about = Struct()
        # What it needs to hand on work of its own as part of this.
        about.update(
            {
                "handoff_id": self._handoff["id"],
                "correlation_id": self._handoff["correlation_id"],
                "deadline": self._handoff["deadline"],
            }
        )
        if self._remote.speaks_ours:
            terms = {"idempotencyKey": message_id, "deadline": self._handoff["deadline"]}
            for name, spelled in _TERMS.items():
                if self._handoff.get(name):
                    terms[spelled] = self._handoff[name]
            about.update({extension.URI: terms})
            message.extensions.append(extension.URI)
        message.metadata.CopyFrom(about)
        return message


def said_to(handoff: View, *, ours: bool) -> list[Part]:
    """Return a handoff in parts: as it came over A2A, or in words for whoever reads only those.

    Args:
        handoff: what is handed on.
        ours: whether it goes to somebody who knows our extension.
    """
    payload: Any = handoff["payload"]
    if form := tasks.form(handoff):
        return parts.restored(payload, form)
    if parts.is_object(payload) and set(payload) == {"text"}:
        return [Part(text=str(payload["text"]))]
    names = ("title", "trigger", "expected_outcome")
    words = [f"{name}: {handoff[name]}" for name in names if handoff.get(name)]
    if payload is not None:
        words.append(f"payload: {canonical.dumps(payload).decode()}")
    made = Part(text="\n".join(words) or handoff["id"])
    if payload is None:
        return [made]
    # Another relay is to hand on the payload, not what we said of it.
    made = extension.in_words(made) if ours and parts.is_object(payload) else made
    return [made, *parts.of_value(payload)]


def result(task: Task) -> Any:
    """Return what a task came to: its artifacts, or what was said last."""
    if len(task.artifacts) == 1:
        return value(task.artifacts[0].parts)
    if task.artifacts:
        return {"artifacts": [parts.plain(MessageToDict(a)) for a in task.artifacts]}
    if task.status.message.parts:
        return value(task.status.message.parts)
    spoken = [m for m in task.history if m.role == Message(role="ROLE_AGENT").role]
    return value(spoken[-1].parts) if spoken else None


def value(found: Any) -> Any:
    """Return parts as a JSON value: one text, one piece of data, or all of them."""
    if len(found) == 1 and found[0].HasField("text"):
        return found[0].text
    if len(found) == 1 and found[0].HasField("data"):
        return parts.plain(MessageToDict(found[0].data))
    return {"parts": [parts.plain(MessageToDict(part)) for part in found]}


def text(message: Message) -> str:
    """Return the words of a message."""
    return "\n".join(part.text for part in message.parts if part.HasField("text"))
