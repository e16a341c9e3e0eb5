"""What an executor's request is part of, as far as it says: chain, parent, trace, deadline, run.

`TaskDriver`, and a relay that delivers by itself, say all of it; of any other client the context is the
chain, and the task is the run.
"""

import hashlib
import json
import re
from collections import Counter
from dataclasses import dataclass
from typing import Any, Final, cast

from nodrop.adapters.a2a.messages import EXTENSION
from nodrop.adapters.port.installed import needs
from nodrop.client import tracing

with needs("a2a-sdk", "1.3", extra="a2a"):
    from a2a.helpers import get_message_text
    from a2a.server.agent_execution import RequestContext
    from a2a.types import Message, Part, Role
    from google.protobuf.json_format import MessageToDict

ASKS: Final = "asks"
"""Under our URI in a message that passes a question on: whose it is."""

_SAID: Final = "nodrop.said"
"""Where a request's state counts what was handed on in it."""
_DIGEST_CHARS: Final = 32
_TRACEPARENT: Final = re.compile(r"[0-9a-f]{2}-(?P<trace>[0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Incoming:
    """One request to an executor."""

    correlation_id: str | None
    """None: that of the parent."""
    parent_id: str | None
    """The handoff that the executor works on; None: nobody said that it is one."""
    deadline: str | None
    traceparent: str | None
    run: str
    """The same for whatever is done again: a handoff has several attempts, a task several messages."""
    task: str
    """The words that it began with."""
    answers: tuple[str, int] | None
    """The task, and the question of it by its number, that this message answers."""
    parts: tuple[Part, ...]
    said: Counter[str]

    def key(self, *words: Any) -> str:
        """Return a name for something that the run does, the same when it does it again."""
        spelled = json.dumps([self.run, *words], sort_keys=True)
        digest = hashlib.sha256(spelled.encode()).hexdigest()[:_DIGEST_CHARS]
        self.said[digest] += 1
        return f"a2a-{digest}-{self.said[digest]}"


def incoming(context: RequestContext) -> Incoming:
    """Return what a request is part of."""
    message = context.message or Message()
    history = list(context.current_task.history) if context.current_task else []
    first = history[0] if history else message
    # An answer need not repeat what the task began with.
    about = {**_metadata(first), **context.metadata, **_metadata(message)}
    ours = _ours(about)
    handoff_id = about.get("handoff_id")
    state = context.call_context.state
    return Incoming(
        correlation_id=about.get("correlation_id") or (None if handoff_id else context.context_id),
        parent_id=handoff_id,
        deadline=ours.get("deadline") or about.get("deadline"),
        traceparent=_traceparent(state.get("headers", {}).get("traceparent")),
        run=handoff_id or context.task_id or message.message_id,
        task=get_message_text(first),
        answers=_answers(context),
        parts=tuple(message.parts),
        said=state.setdefault(_SAID, Counter()),
    )


def _answers(context: RequestContext) -> tuple[str, int] | None:
    """Return the question that was passed on last in this task; it may be answered already."""
    task = context.current_task
    spoken = [] if task is None else [task.status.message, *reversed(task.history)]
    for message in spoken:
        mark = _ours(_metadata(message)).get(ASKS)
        if message.role == Role.ROLE_AGENT and mark is not None:
            return mark["task"], round(mark["seq"])
    return None


def _traceparent(came: str | None) -> str | None:
    """Return the span that this code is in, where that is of the trace that came; else what came."""
    here = tracing.current_traceparent()
    found = _TRACEPARENT.fullmatch(came or "")
    if found is None:
        return here  # as W3C has it, what is malformed was not said
    return here if here is not None and here.split("-")[1] == found["trace"] else came


def _metadata(message: Message) -> dict[str, Any]:
    return MessageToDict(message.metadata)


def _ours(about: dict[str, Any]) -> dict[str, Any]:
    """Return what is said under our URI; whoever else writes there may write anything."""
    found: Any = about.get(EXTENSION)
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}
