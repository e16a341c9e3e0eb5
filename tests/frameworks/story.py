"""What the tests say to the cast, and what they read from the answers."""

import json
from dataclasses import dataclass
from typing import Any

from nodrop.client.client import Client
from nodrop.client.handoff import Handoff
from nodrop.client.shown import HandoffShown

WAIT_SECONDS_MAX = 45.0
DEADLINE_SECONDS = 300
TRACE_ID = "4bf92f3577b34da6a3ce929d0e0e4736"
TRACEPARENT = f"00-{TRACE_ID}-00f067aa0ba902b7-01"
ANSWER = "account 42"


@dataclass(frozen=True)
class Heard:
    """What an agent of the cast answered: the task as its model read it, and what it heard."""

    task: str
    heard: Any


def heard(result: Any) -> Heard:
    said = json.loads(result)
    return Heard(said["task"], said["heard"])


async def tell(me: Client, agent: str, task: str, **terms: Any) -> Handoff:
    return await me.hand_off(
        agent,
        payload={"task": task},
        deadline=DEADLINE_SECONDS,
        traceparent=TRACEPARENT,
        **{"attempts_max": 3, "backoff": {"first": "100ms"}, **terms},
    )


async def blocked(me: Client, handoff: Handoff) -> HandoffShown:
    """Wait until it asks something, or is over."""
    fields = {"wait": 20, "until": "blocked"}
    answer = await me.call("get_handoff", fields, handoff=handoff.id)
    assert not answer.get("wait_elapsed"), answer["handoff"]
    return HandoffShown(answer["handoff"])


async def answered(me: Client, handoff: Handoff, value: Any = ANSWER) -> str:
    """Answer its question, and return what was asked."""
    shown = await blocked(me, handoff)
    question = shown.question
    assert question is not None, f"nothing was asked: {shown.view}"
    await me.call("answer", {"seq": question.seq, "answer": value}, handoff=handoff.id)
    return question.question or ""


async def entries(me: Client, handoff: Handoff) -> list[str]:
    """Return the names of all that happened to it."""
    return [entry.type for entry in await me.log(handoff_id=handoff.id, limit=200)]
