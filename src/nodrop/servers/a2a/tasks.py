"""A handoff as a task. States are A2A's own closed set; what it cannot say is in our extension."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from a2a.types import Message, Part, Task, TaskState, TaskStatus
from google.protobuf.struct_pb2 import Struct
from google.protobuf.timestamp_pb2 import Timestamp

from nodrop.servers.a2a import extension, parts
from nodrop.servers.a2a.calling.visit import View

STATES: Final[Mapping[str, TaskState]] = {
    "offered": TaskState.TASK_STATE_SUBMITTED,
    "delivered": TaskState.TASK_STATE_SUBMITTED,
    "accepted": TaskState.TASK_STATE_WORKING,
    "blocked": TaskState.TASK_STATE_INPUT_REQUIRED,
    "completed": TaskState.TASK_STATE_COMPLETED,
    "failed": TaskState.TASK_STATE_FAILED,
    "expired": TaskState.TASK_STATE_FAILED,
    "rejected": TaskState.TASK_STATE_REJECTED,
    "cancelled": TaskState.TASK_STATE_CANCELED,
}
"""WORKING begins with the recipient's own acknowledgement; a dead letter is FAILED or REJECTED."""
TERMINAL: Final = frozenset(
    STATES[state] for state in ("completed", "failed", "rejected", "cancelled")
)
INTERRUPTED: Final = frozenset({TaskState.TASK_STATE_INPUT_REQUIRED})

_SHOWN: Final = (
    "ref",
    "state",
    "holder",
    "due_at",
    "deadline",
    "attempt",
    "tries",
    "from",
    "to",
    "capability",
    "title",
    "priority",
    "receipts",
    "correlation_id",
    "parent_id",
    "redrive_of",
    "successor",
    "next_leg",
    "decision",
    "late_result",
    "warnings",
    "settled_at",
    "erased",
)


def task(handoff: View, *, history: Sequence[Message] = ()) -> Task:
    """Return a handoff as the task it is."""
    return Task(
        id=handoff["id"],
        context_id=handoff["correlation_id"],
        status=status(handoff),
        artifacts=parts.artifacts(result(handoff), handoff["id"]),
        history=history,
        metadata=metadata(handoff),
    )


def result(handoff: View) -> Any:
    """Return what came of a handoff; None as long as nothing has."""
    return None if handoff["outcome"] is None else handoff["outcome"].get("result")


def status(handoff: View) -> TaskStatus:
    """Return where a handoff stands, with the words that belong to it."""
    said = _words(handoff)
    return TaskStatus(
        state=STATES[handoff["state"]],
        message=None if said is None else spoken(handoff, said, name=handoff["state"]),
        timestamp=timestamp(changed_at(handoff)),
    )


def spoken(handoff: View, text: str, *, name: str) -> Message:
    """Return something that was said about a handoff by those who work on it."""
    return Message(
        message_id=f"{handoff['id']}-{name}",
        task_id=handoff["id"],
        context_id=handoff["correlation_id"],
        role="ROLE_AGENT",
        parts=[Part(text=text)],
    )


def asked(handoff: View) -> Message:
    """Return the message that a handoff began with."""
    came = _came(handoff)
    return Message(
        message_id=came.get("message_id") or f"{handoff['id']}-offer",
        task_id=handoff["id"],
        context_id=handoff["correlation_id"],
        role="ROLE_USER",
        parts=parts.restored(handoff["payload"], came.get("form")),
        metadata=_struct(came.get("metadata")),
        extensions=came.get("extensions") or (),
        reference_task_ids=came.get("reference_task_ids") or (),
    )


def form(handoff: View) -> str | None:
    """Return the form that a payload had when it came over A2A; None: it did not."""
    return _came(handoff).get("form")


def addressed_to(handoff: View, agent: str) -> bool:
    """Whether a handoff is, or was first, a task of `agent`."""
    return agent in {handoff["to"], _came(handoff).get("agent")}


def metadata(handoff: View) -> Struct | None:
    """Return what A2A has no field for."""
    shown = {name: handoff[name] for name in _SHOWN if handoff[name] not in (None, [], False)}
    if outcome := handoff["outcome"]:
        shown["outcome"] = {n: outcome[n] for n in ("code", "reason", "by", "at") if n in outcome}
    if question := handoff["question"]:
        shown["question"] = question
    return _struct({extension.URI: extension.shown(shown)})


def changed_at(handoff: View) -> str:
    """Return when the state of a handoff last changed, as far as that can be seen."""
    times = [handoff["stored_at"], *(r["at"] for r in handoff["receipts"] if r["rung"] in _MOVES)]
    if handoff["question"]:
        times.append(handoff["question"]["asked_at"])
    if handoff["outcome"]:
        times.append(handoff["outcome"]["at"])
    return max(times)


def timestamp(at: str) -> Timestamp:
    """Return a time as A2A has it."""
    made = Timestamp()
    made.FromJsonString(at)
    return made


_MOVES: Final = frozenset({"stored", "delivered", "acknowledged", "updated", "finished"})


def _words(handoff: View) -> str | None:
    if outcome := handoff["outcome"]:
        return why_ended(handoff["state"], outcome.get("reason"), outcome.get("code"))
    if question := handoff["question"]:
        return question_text(question)
    return handoff["ack"] and handoff["ack"]["status"]


_ENDED: Final = {
    "failed": "It failed.",
    "expired": "The deadline passed before there was a result.",
    "rejected": "Nobody will do it.",
    "cancelled": "It was cancelled.",
}


def why_ended(state: str, reason: str | None, code: str | None) -> str | None:
    """Return why there is no result, in words; None where there is one."""
    if state not in _ENDED:
        return None
    return reason or (f"{_ENDED[state]} ({code})" if code else _ENDED[state])


def question_text(question: View) -> str:
    """Return a question, or other terms that are proposed, in words."""
    if question.get("terms"):
        proposed = ", ".join(f"{name} {value}" for name, value in question["terms"].items())
        why = f" ({question['reason']})" if question.get("reason") else ""
        return f"Other terms are proposed: {proposed}{why}. Agree or decline."
    return question.get("question") or ""


def _came(handoff: View) -> dict[str, Any]:
    came = handoff.get("metadata", {}).get("a2a")
    return came if parts.is_object(came) else {}


def _struct(values: Mapping[str, Any] | None) -> Struct | None:
    return parts.struct(values) if values else None
