"""What is said to an A2A agent, and what its answers mean."""

from collections.abc import Iterable
from typing import Any, Final

from nodrop.adapters.port.current import working
from nodrop.adapters.port.events import Resume, Work
from nodrop.adapters.port.installed import needs

with needs("a2a-sdk", "1.3", extra="a2a"):
    from a2a.helpers import get_data_parts, get_text_parts, new_data_part, new_text_part
    from a2a.types import Message, Part, Role, Task
    from google.protobuf.json_format import MessageToDict

EXTENSION: Final = "urn:nodrop:a2a:handoff:v1"
"""What the fields of a handoff are under, in metadata of a relay's messages and tasks."""
ADK_KIND: Final = "adk_type"
"""By this, ADK marks calls that it waits for, and wants the answers to them marked."""


def begin(work: Work) -> Message:
    """Return the message that hands the work over.

    In a context of its own, known by the handoff, and said the same way by a later attempt.
    """
    return Message(
        message_id=work.id,
        context_id=work.id,
        role=Role.ROLE_USER,
        parts=[new_text_part(work.prompt)],
        metadata=_about(work),
    )


def go_on(work: Work, resume: Resume) -> Message:
    """Return the message that answers what the task asked."""
    task = resume.state["task"]
    return Message(
        message_id=f"{task}-{len(working().task.answers)}",
        context_id=resume.state["context"],
        task_id=task,
        role=Role.ROLE_USER,
        parts=_replies(resume) or [new_text_part(resume.text)],
        metadata=_about(work),
    )


def kept(task: Task) -> dict[str, Any]:
    """Return what is needed to answer a task later."""
    parts = [MessageToDict(part) for part in task.status.message.parts]
    return {"task": task.id, "context": task.context_id, "parts": parts}


def outcome(task: Task) -> Any:
    """Return the result: artifacts, or what was said where there are none."""
    artifacts = [part for artifact in task.artifacts for part in artifact.parts]
    replies = [p for said in task.history if said.role == Role.ROLE_AGENT for p in said.parts]
    return said(artifacts or replies or task.status.message.parts)


def said(parts: Iterable[Part]) -> Any:
    """Return the text of some parts, or their data where there is no text."""
    several = list(parts)
    words = "".join(get_text_parts(several))
    data = get_data_parts(several)
    return words if words or not data else data[0] if len(data) == 1 else data


def _about(work: Work) -> dict[str, Any]:
    return {
        "correlation_id": work.correlation_id,
        "handoff_id": work.id,
        "deadline": working().deadline,
    }


def _replies(resume: Resume) -> list[Part]:
    """Return the answer as what the calls return that ADK waits for; none where it waits for none."""
    replies: list[Part] = []
    for part in resume.state["parts"]:
        if part.get("metadata", {}).get(ADK_KIND) == "function_call":
            call = part["data"]
            answer = {"id": call["id"], "name": call["name"], "response": {"result": resume.answer}}
            reply = new_data_part(answer)
            reply.metadata.update({ADK_KIND: "function_response"})
            replies.append(reply)
    return replies
