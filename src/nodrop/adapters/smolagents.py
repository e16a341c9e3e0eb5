"""smolagents: agents as agents; tools that hand off, and one that asks.

Its agents block, remember and cannot be saved: each object works on one handoff at a time in a
thread, a question holds the run, and a run that is cancelled ends at its next step. A factory makes
an agent for each handoff.
"""

import threading
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any, Final, Unpack
from weakref import WeakKeyDictionary

from nodrop.adapters.port import threaded
from nodrop.adapters.port.current import working
from nodrop.adapters.port.events import Done, Event, Progress, Resume, Work, text
from nodrop.adapters.port.handing import Handing, HandOff, parsed
from nodrop.adapters.port.installed import needs
from nodrop.adapters.port.serving import Terms, agent_of
from nodrop.adapters.port.threaded import Returned, Stage
from nodrop.client.agent import Agent
from nodrop.client.settings import Address, CaFile

with needs("smolagents", "1.26", extra="smolagents"):
    from smolagents import (
        ActionStep,
        FinalAnswerStep,
        LocalPythonExecutor,
        MultiStepAgent,
        PlanningStep,
        Tool,
    )
    from smolagents.agent_types import AgentText

Target = MultiStepAgent | Callable[[], MultiStepAgent]

LOOK_SECONDS: Final = 0.5
"""How often a thread that waits for its turn looks whether it is still wanted."""
_LOCKS: Final[WeakKeyDictionary[MultiStepAgent, threading.Lock]] = WeakKeyDictionary()
"""Held by the thread and not by the handoff: one that was cancelled may still be running."""


def as_agent(target: Target, *, agent: str, **terms: Unpack[Terms]) -> Agent:
    """Return an agent that runs `target` on each handoff; the result is its final answer."""
    if isinstance(target, MultiStepAgent):
        terms.setdefault("concurrency", 1)
    return agent_of(StepDriver(target), agent, "smolagents", terms)


async def serve(
    target: Target,
    *,
    agent: str,
    address: Address | None = None,
    ca: CaFile | None = None,
    **terms: Unpack[Terms],
) -> None:
    """Work as `agent` until stopped or cancelled; see `as_agent`, and `Agent.serve` for `address` and `ca`."""
    await as_agent(target, agent=agent, **terms).serve(address, ca=ca)


def hand_off_tool(to: str | None = None, **terms: Unpack[Handing]) -> Tool:
    """Return a tool that hands a task over and brings the result."""
    hand_off = HandOff(to, terms)

    class HandOffTool(Tool):
        name = hand_off.name
        description = hand_off.description
        inputs = {  # noqa: RUF012  # the framework reads it from the class
            "task": {"type": "string", "description": "What the other agent shall do."},
            "context_json": {
                "type": "string",
                "description": "Further fields, as a JSON object.",
                "nullable": True,
            },
        }
        output_type = "string"

        def forward(self, task: str, context_json: str | None = None) -> str:
            return hand_off.call_sync(task, parsed(context_json)).text

    return HandOffTool()


def ask_tool(to: str | None = None, *, name: str = "ask_for_help") -> Tool:
    """Return a tool that asks whoever handed the work over, and waits for the answer."""
    called = name

    class AskTool(Tool):
        name = called
        description = "Ask whoever gave you the task, and wait for the answer."
        inputs = {  # noqa: RUF012  # same
            "question": {"type": "string", "description": "What you need to know."}
        }
        output_type = "string"

        def forward(self, question: str) -> str:
            return text(working().ask_sync(question, to))

    return AskTool()


class StepDriver:
    """Runs an agent in a thread, step by step."""

    def __init__(self, target: Target) -> None:
        self._target = target

    async def drive(self, work: Work, resume: Resume | None) -> AsyncGenerator[Event, Any]:
        """See `Driver`."""
        assert resume is None, "nothing was parked"
        shared = isinstance(self._target, MultiStepAgent)
        agent = self._target if isinstance(self._target, MultiStepAgent) else self._target()
        turn = _LOCKS.setdefault(agent, threading.Lock()) if shared else threading.Lock()

        def run(stage: Stage) -> Any:
            while not turn.acquire(timeout=LOOK_SECONDS):
                if stage.stopped:
                    return None
            try:
                _stop_its_clock(agent)
                steps: Any = agent.run(work.prompt, stream=True, reset=True)
                for step in steps:
                    if isinstance(step, FinalAnswerStep):
                        made = step.output
                        return str(made) if isinstance(made, AgentText) else made
                    if stage.stopped:
                        return None
                    if isinstance(step, ActionStep | PlanningStep):
                        stage.say(type(step).__name__)
            finally:
                turn.release()

        async with aclosing(threaded.steps(run, name=f"smolagents {work.id}")) as said:
            async for step in said:
                if isinstance(step, Returned):
                    yield Done(output=step.value)
                else:
                    yield Progress(status=str(step))


def _stop_its_clock(agent: MultiStepAgent) -> None:
    """Have code that a model writes run in the thread of its handoff.

    smolagents times it in another one, which knows of no handoff and is not stopped when time is up:
    what it waited for is waited for all the same, and then lost. The handoff has clocks of its own.
    """
    executor = getattr(agent, "python_executor", None)
    if isinstance(executor, LocalPythonExecutor):
        executor.timeout_seconds = None
    for managed in agent.managed_agents.values():
        _stop_its_clock(managed)
