"""What every scripted model thinks: the same decisions, said in each framework's own words.

The first line of a task says what to do; see `decide`. What the tools of the cast do is here as
well, so that a difference between two frameworks is a difference of their adapters.
"""

import asyncio
import functools
import json
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nodrop.adapters import current
from nodrop.adapters.port.serving import Terms
from nodrop.model.errors import ConflictError

HOLD_SECONDS_MAX = 60.0
NONSENSE = "nonsense"
FOLDER = Path(os.environ.get("CAST_FOLDER", "."))
"""Where notes for the tests are left."""

INPUT = {
    "type": "object",
    "required": ["task"],
    "properties": {"task": {"type": "string"}, "amount": {"type": "integer"}},
}
OUTPUT = {"type": "string", "not": {"const": NONSENSE}}


class ModelDownError(Exception):
    """What a model raises that cannot be reached."""


@dataclass(frozen=True)
class Say:
    text: str


@dataclass(frozen=True)
class Call:
    tool: str
    arguments: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Ask:
    question: str


Move = Say | Call | Ask
Decide = Callable[[str, Sequence[str]], Move]


def turns(*moves: Move) -> Decide:
    """Return a mind that was made up beforehand."""
    left = list(moves)
    return lambda _, __: left.pop(0)


def decide(task: str, results: Sequence[str]) -> Move:
    """Return what a model does about `task`, given what its tools and helpers have said so far."""
    task = task.strip().partition("\n")[0]
    if results:
        return Say(json.dumps({"task": task, "heard": results[-1]}))
    match task.split():
        case ["report", *_]:
            return Call("report")
        case ["hold", *_]:
            return Call("hold")
        case ["ask", *_]:
            return Ask("Which account?")
        case ["fail", *_]:
            raise ModelDownError("the model is down")
        case ["nonsense", *_]:
            return Say(NONSENSE)
        case ["pass", to, *rest]:
            return Call(f"hand_off_to_{to}", {"task": " ".join(rest), "context_json": ""})
        case ["misfit", to, *rest]:
            context = json.dumps({"amount": "many"})
            return Call(f"hand_off_to_{to}", {"task": " ".join(rest), "context_json": context})
        case _:
            return Say(json.dumps({"task": task, "heard": None}))


def note(name: str, text: str) -> None:
    """Leave a note for the test."""
    (FOLDER / name).write_text(text, encoding="utf-8")


def report() -> str:
    """Say what a tool knows of the handoff it is part of, without having been told."""
    here = current()
    assert here is not None, "tools run inside of a handoff"
    traceparent = here.traceparent or "--"
    return json.dumps(
        {
            "correlation_id": here.correlation_id,
            "trace_id": traceparent.split("-")[1],
            "seconds_left": here.seconds_left,
            "payload": here.payload,
            "pid": os.getpid(),
        }
    )


def hold() -> str:
    """Hang in a thread, the way a slow tool does; the second attempt does not."""
    here = current()
    assert here is not None, "tools run inside of a handoff"
    if here.task.attempt > 1:
        return report()
    note(f"held-{here.handoff_id}", str(os.getpid()))
    released = FOLDER / f"release-{here.handoff_id}"
    waited, tick = 0.0, threading.Event()
    while not released.exists() and waited < HOLD_SECONDS_MAX:
        tick.wait(0.05)
        waited += 0.05
    if "quietly" in here.payload["task"]:
        note(f"returned-{here.handoff_id}", "held")
        return "held"
    try:
        here.ask_sync("May I still ask?")
    except (ConflictError, CancelledError) as error:
        # By the relay, if the worker has not heard of the cancel yet; by the worker afterwards.
        note(f"fenced-{here.handoff_id}", type(error).__name__)
        raise
    return "held"


async def hold_async() -> str:
    """Hang on the event loop; the second attempt does not."""
    here = current()
    assert here is not None, "tools run inside of a handoff"
    if here.task.attempt > 1:
        return report()
    await hang(here.handoff_id)
    return "held"


async def hang(handoff_id: str) -> None:
    """Wait for what does not come; note the begin, and the end if somebody made one."""
    note(f"held-{handoff_id}", str(os.getpid()))
    try:
        async with asyncio.timeout(HOLD_SECONDS_MAX):
            await asyncio.Event().wait()
    except asyncio.CancelledError:
        note(f"stopped-{handoff_id}", str(os.getpid()))
        raise


def terms() -> Terms:
    """Return the contract that every agent of the cast has."""
    return {"capability": "work", "input_schema": INPUT, "output_schema": OUTPUT}


def named(function: Callable[[], Any], name: str) -> Callable[[], Any]:
    """Return `function` under the name that models call it by."""

    @functools.wraps(function)
    async def tool() -> Any:
        return await function()

    tool.__name__ = tool.__qualname__ = name
    return tool


def dumped(arguments: dict[str, Any]) -> str:
    return json.dumps(arguments)


def words(content: Any) -> str:
    """Return the text of a message that may be in parts."""
    if isinstance(content, str):
        return content
    return "".join(part.get("text", "") for part in content or ())
