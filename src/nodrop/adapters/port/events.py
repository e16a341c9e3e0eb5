"""The interface of an adapter: what a driver is given, and the four things it may yield.

A driver translates between one framework and these words. It never speaks to the relay: taking,
acknowledging, promises, fencing, correlation and cancelling are `serving`.
"""

import json
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any, Final, Protocol, cast

MISFIT: Final = "payload_invalid"
"""The code of a failure by a payload that the target cannot begin with; trying again does not help."""
TASK: Final = "task"
"""The key of a payload that holds what a model is told to do; `hand_off_tool` fills it."""
APPROVALS: Final = frozenset({"yes", "true", "ok", "approve", "approved"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What was handed over."""

    id: str
    """The handoff. Stays the same over attempts, so it is what a framework's state is kept under."""
    correlation_id: str
    sender: str
    payload: Any
    title: str | None = None
    expected_outcome: str | None = None

    @property
    def fields(self) -> dict[str, Any]:
        """The payload by name; a bare value is the task."""
        if isinstance(self.payload, dict):
            return cast("dict[str, Any]", self.payload)
        return {} if self.payload is None else {TASK: self.payload}

    @property
    def prompt(self) -> str:
        """The payload as one text, for those who read nothing else."""
        rest = dict(self.fields)
        task = rest.pop(TASK, None)
        said = [text(task) if task is not None else self.title or ""]
        if task is None and self.expected_outcome:
            said.append(self.expected_outcome)
        if rest:
            said.append(f"Context:\n{json.dumps(rest, ensure_ascii=False)}")
        return "\n\n".join(part for part in said if part)


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How it goes. Told to whoever waits, not more often than is useful."""

    status: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NeedHelp:
    """It does not go on without an answer.

    With `state` the run is over and parked: whoever has the answer's delivery gets both back as a
    `Resume`, in any process. Without, the run is held, and the answer is what this yield returns.
    """

    question: str
    state: dict[str, Any] | None = None
    to: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """This is the result, in plain JSON or anything the SDK can make plain."""

    output: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """It did not work out. An exception says the same, and that trying again may help."""

    reason: str
    code: str = "failed"
    retryable: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Resume:
    """What a parked run goes on with."""

    answer: Any
    state: dict[str, Any]

    @property
    def approved(self) -> bool:
        """The answer as a decision: true, "yes", "approve", or an object whose `approve` is."""
        said = self.answer
        if isinstance(said, dict):
            said = cast("dict[str, Any]", said).get("approve")
        if isinstance(said, str):
            return said.strip().lower() in APPROVALS
        return said is True

    @property
    def text(self) -> str:
        """The answer in words."""
        if isinstance(self.answer, dict):
            answer = cast("dict[str, Any]", self.answer)
            return text(answer.get("text", answer))
        return text(self.answer)


Event = Progress | NeedHelp | Done | Failed
Run = AsyncGenerator[Event, Any]


class Driver(Protocol):
    """Runs one kind of target of one framework."""

    def drive(self, work: Work, resume: Resume | None) -> Run:
        """Run the target on `work`, or go on from where it was parked.

        Being closed or cancelled stops the framework's run. What a thread does after that
        counts for nothing.
        """
        ...


def text(value: Any) -> str:
    """Return a value as a model reads it."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
