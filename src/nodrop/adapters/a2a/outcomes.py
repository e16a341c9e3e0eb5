"""What a task at the relay came to, as values: a result, a refusal, how it ended, a question."""

from dataclasses import dataclass
from typing import Any

from nodrop.adapters.a2a import messages, tasks
from nodrop.adapters.a2a.incoming import ASKS
from nodrop.adapters.a2a.messages import EXTENSION
from nodrop.adapters.port.events import text
from nodrop.adapters.port.handing import Answer
from nodrop.adapters.port.installed import needs
from nodrop.core.errors import BY_CODE, NodropError, UnreachableError

with needs("a2a-sdk", "1.3", extra="a2a"):
    from a2a.client import A2AClientError
    from a2a.types import Task
    from a2a.utils.errors import A2AError
    from google.protobuf.json_format import MessageToDict


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """It does not go on without an answer.

    Require input with a message that says `text` and has `metadata`. Once that is answered, hand the
    same on again: the answer is passed on, and what comes back is what became of it then.
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


def kind(error: A2AError) -> type[NodropError]:
    """Return the error of the relay that A2A's stands for."""
    return BY_CODE.get((error.data or {}).get("code", ""), NodropError)


def refused(error: A2AError) -> Answer | None:
    """Return the relay's refusal; None where it gave none that a repeat would get again."""
    if isinstance(error, A2AClientError) or kind(error).retryable:
        return None
    said = error.data or {}
    where = "; ".join(
        f"{problem['field']}: {problem['message']}" for problem in said.get("errors", ())
    )
    reason = f"{error.message} ({where})" if where else error.message
    return Answer(state="refused", code=said.get("code", "invalid_request"), reason=reason)


def _ours(task: Task) -> dict[str, Any]:
    shown = MessageToDict(task.metadata)
    if EXTENSION not in shown:
        raise UnreachableError("what answers there speaks A2A, and is no relay")
    return shown[EXTENSION]
