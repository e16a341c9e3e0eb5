"""Entries of the log as what A2A streams and pushes, and as the history of a task.

One table from entries to states. An entry that changes nothing a client of A2A could see is none.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, TypeAlias

from a2a.types import (
    Message,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
)
from google.protobuf.struct_pb2 import Struct

from nodrop.model import events
from nodrop.protocol.events import NAMES
from nodrop.servers.a2a import extension, parts, tasks
from nodrop.servers.a2a.calling.visit import View

Update: TypeAlias = TaskStatusUpdateEvent | TaskArtifactUpdateEvent

_SUBMITTED: Final = TaskState.TASK_STATE_SUBMITTED
_WORKING: Final = TaskState.TASK_STATE_WORKING
_STATES: Final[Mapping[str, TaskState]] = {
    NAMES[events.Offered]: _SUBMITTED,
    NAMES[events.Delivered]: _SUBMITTED,
    NAMES[events.Reclaimed]: _SUBMITTED,
    NAMES[events.Returned]: _SUBMITTED,
    NAMES[events.Reassigned]: _SUBMITTED,
    NAMES[events.Acknowledged]: _WORKING,
    NAMES[events.Revived]: _WORKING,
    NAMES[events.Updated]: _WORKING,
    NAMES[events.Resumed]: _WORKING,
    NAMES[events.Blocked]: TaskState.TASK_STATE_INPUT_REQUIRED,
    NAMES[events.Completed]: TaskState.TASK_STATE_COMPLETED,
    NAMES[events.Failed]: TaskState.TASK_STATE_FAILED,
    NAMES[events.Expired]: TaskState.TASK_STATE_FAILED,
    NAMES[events.Rejected]: TaskState.TASK_STATE_REJECTED,
    NAMES[events.Cancelled]: TaskState.TASK_STATE_CANCELED,
}
_OFFERED: Final = NAMES[events.Offered]
_ANSWERED: Final = NAMES[events.Answered]
_BLOCKED: Final = NAMES[events.Blocked]
_COMPLETED: Final = NAMES[events.Completed]


def state_after(entry: View) -> TaskState | None:
    """Return the state that an entry tells of; None: a client of A2A would not notice."""
    return _STATES.get(entry["type"])


def updates(entry: View, handoff: View) -> Iterator[Update]:
    """Yield what an entry tells a client of A2A: artifacts first, then the state."""
    state = state_after(entry)
    if state is None:
        return
    if entry["type"] == _COMPLETED:
        yield from _artifacts(entry, handoff)
    said = _said(entry)
    yield TaskStatusUpdateEvent(
        task_id=handoff["id"],
        context_id=handoff["correlation_id"],
        status=TaskStatus(
            state=state,
            message=None if said is None else _message(entry, handoff, said),
            timestamp=tasks.timestamp(entry["at"]),
        ),
        metadata=_metadata(entry),
    )


def history(entries: Iterable[View], handoff: View) -> list[Message]:
    """Return what was said to and by the agent, in order; what is the status now comes last of all."""
    told: list[Message] = []
    for entry in entries:
        if entry["type"] == _OFFERED:
            told.append(tasks.asked(handoff))
        elif entry["type"] == _ANSWERED:
            told.append(_answered(entry, handoff))
        elif (said := _said(entry)) is not None and state_after(entry) not in tasks.TERMINAL:
            told.append(_message(entry, handoff, said))
    return told


def _artifacts(entry: View, handoff: View) -> Iterator[Update]:
    """Yield a result in chunks, a part each, as clients expect artifacts to grow."""
    for artifact in parts.artifacts(_body(entry).get("result"), handoff["id"]):
        held = list(artifact.parts)
        for number, part in enumerate(held):
            chunk = type(artifact)()
            chunk.CopyFrom(artifact)
            del chunk.parts[:]
            chunk.parts.append(part)
            yield TaskArtifactUpdateEvent(
                task_id=handoff["id"],
                context_id=handoff["correlation_id"],
                artifact=chunk,
                append=number > 0,
                last_chunk=number == len(held) - 1,
            )


def _said(entry: View) -> str | None:
    """Return the words of an entry, as far as they are the agent's or the relay's to the client."""
    body = _body(entry)
    match entry["type"]:
        case kind if kind == _BLOCKED:
            proposed = entry["data"].get("proposed")
            if proposed:
                reason = body.get("reason")
                return f"Other terms are proposed{f': {reason}' if reason else ''}."
            return body.get("question") or ""
        case kind if state_after(entry) in tasks.TERMINAL and kind != _COMPLETED:
            ended = kind.split(".")[1]
            return tasks.why_ended(ended, body.get("reason"), entry["data"].get("code"))
        case kind if kind in _STATES:
            return body.get("status")
        case _:
            return None


def _message(entry: View, handoff: View, said: str) -> Message:
    return tasks.spoken(handoff, said, name=str(entry["seq"]))


def _answered(entry: View, handoff: View) -> Message:
    return Message(
        message_id=f"{handoff['id']}-{entry['seq']}",
        task_id=handoff["id"],
        context_id=handoff["correlation_id"],
        role="ROLE_USER",
        parts=parts.of_value(_body(entry).get("answer")),
    )


def _metadata(entry: View) -> Struct:
    made = Struct()
    made.update(
        {
            extension.URI: {
                "event": entry["type"],
                "seq": entry["seq"],
                "version": entry["version"],
                "by": entry["actor"],
            }
        }
    )
    return made


def _body(entry: View) -> dict[str, Any]:
    body = entry["body"]
    return body if parts.is_object(body) else {}
