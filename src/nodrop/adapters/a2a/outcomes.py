"""What a task at the relay came to, as values: a result, a refusal, how it ended, a question."""

from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import msgspec

from nodrop.adapters.a2a import messages, tasks
from nodrop.adapters.a2a.incoming import ASKS
from nodrop.adapters.a2a.messages import EXTENSION
from nodrop.adapters.port.events import text
from nodrop.adapters.port.handing import Answer
from nodrop.adapters.port.installed import needs
from nodrop.model.errors import (
    BY_CODE,
    ConflictError,
    InvalidRequestError,
    NodropError,
    Problem,
    UnavailableError,
    UnreachableError,
)
from nodrop.protocol.errors import from_json

with needs("a2a-sdk", "1.3", extra="a2a"):
    import httpx
    from a2a.client import A2AClientError
    from a2a.helpers import new_data_part, new_text_part
    from a2a.server.tasks import TaskUpdater
    from a2a.types import Task
    from a2a.utils.errors import A2AError
    from google.protobuf.json_format import MessageToDict


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """It does not go on without an answer.

    Require input with a message that says `text` and has `metadata`, as `tell` does. Once that is answered,
    hand the same on again: the answer is passed on, and what comes back is what became of it then.
    """

    text: str
    handoff: str
    metadata: dict[str, Any]


def asked(task: Task) -> tuple[str, int]:
    """Return the question that a task has, by its number."""
    return task.id, round(_ours(task)["question"]["seq"])


def is_ours(task: Task) -> bool:
    """Whether what a task waits for, if it does, is an answer of its requester."""
    ours = _ours(task)
    return ours.get("question", {}).get("asked") in {None, ours["from"]}


def elapsed(task: Task) -> Answer:
    """Return how a task stands that goes on by itself, when nobody waits any longer."""
    ours = _ours(task)
    return Answer(state=ours["state"], handoff=ours["ref"], code="wait_elapsed")


def value(task: Task) -> Answer | Question:
    """Return what a task came to that does not go on by itself."""
    ours = _ours(task)
    if task.status.state in tasks.ASKING:
        task_id, seq = asked(task)
        words = text(messages.said(task.status.message.parts))
        return Question(
            text=f"{ours['to']} asks: {words}",
            handoff=ours["ref"],
            metadata={EXTENSION: {ASKS: {"task": task_id, "seq": seq}}},
        )
    parts = [part for artifact in task.artifacts for part in artifact.parts]
    outcome = ours.get("outcome", {})
    return Answer(
        state=ours["state"],
        handoff=ours["ref"],
        result=messages.said(parts) if parts else None,
        code=outcome.get("code"),
        reason=outcome.get("reason"),
    )


async def tell(answer: Answer | Question, update: TaskUpdater) -> None:
    """Let the executor's own task come to the same: a result, an end without one, a question."""
    if isinstance(answer, Question):
        words = [new_text_part(answer.text)]
        await update.requires_input(update.new_agent_message(words, answer.metadata))
    elif answer.done:
        plain = isinstance(answer.result, str)
        part = new_text_part(answer.result) if plain else new_data_part(answer.result)
        await update.add_artifact([part])
        await update.complete()
    else:
        await update.failed(update.new_agent_message([new_text_part(answer.text)]))


def refusal(error: A2AError) -> NodropError:
    """Return what the relay refused with, by the error of A2A that this became on the way."""
    said: dict[str, Any] = error.data or {}
    if "code" in said:
        later = UnavailableError if said.get("retryable") == "true" else ConflictError
        found = BY_CODE.get(said["code"], later)(error.message)
        problems = said.get("errors", ())
        found.errors = tuple(Problem(path=p["field"], message=p["message"]) for p in problems)
        return found
    if isinstance(error.__cause__, httpx.HTTPStatusError):
        # At the door, before it is a matter of A2A. Something in between may answer anything.
        with suppress(ValueError, msgspec.MsgspecError):
            return from_json(error.__cause__.response.json())
    away = isinstance(error, A2AClientError)
    return UnreachableError(error.message) if away else InvalidRequestError(error.message)


def _ours(task: Task) -> dict[str, Any]:
    shown = MessageToDict(task.metadata)
    if EXTENSION not in shown:
        raise UnreachableError("what answers there speaks A2A, and is no relay")
    return shown[EXTENSION]
