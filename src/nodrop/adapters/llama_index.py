"""LlamaIndex workflows: workflows as agents; a function to await in a step that hands off.

An `InputRequiredEvent` is a question, answered with a `HumanResponseEvent`. The context is parked
with it. The agents of llama-index-core are workflows too.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, Unpack

from nodrop.adapters.port.events import MISFIT, Done, Event, NeedHelp, Progress, Resume, Work, text
from nodrop.adapters.port.handing import Handing, HandOff
from nodrop.adapters.port.installed import needs
from nodrop.adapters.port.serving import Terms, agent_of
from nodrop.client.agent import Agent
from nodrop.client.endings import Fail
from nodrop.client.settings import Address, CaFile

with needs("llama-index-workflows", "2.26", extra="llama-index"):
    from pydantic import ValidationError
    from workflows import Context, Workflow
    from workflows.events import HumanResponseEvent, InputRequiredEvent, StartEvent, StopEvent
    from workflows.handler import WorkflowHandler

_ASKING = ("prefix", "prompt")
"""Where an event has its question; everything else in it is echoed, for steps that wait for it."""


def as_agent(
    workflow: Workflow, *, agent: str, start: str = "task", **terms: Unpack[Terms]
) -> Agent:
    """Return an agent that runs `workflow` on each handoff.

    The payload's fields are those of the start event; the text of a model's task goes into its
    field `start` (`user_msg` for the agents of llama-index-core).
    """
    return agent_of(WorkflowDriver(workflow, start), agent, "llama-index", terms)


async def serve(
    workflow: Workflow,
    *,
    agent: str,
    address: Address | None = None,
    ca: CaFile | None = None,
    start: str = "task",
    **terms: Unpack[Terms],
) -> None:
    """Work as `agent` until stopped or cancelled; see `as_agent`, and `Agent.serve` for `address` and `ca`."""
    await as_agent(workflow, agent=agent, start=start, **terms).serve(address, ca=ca)


def hand_off_tool(
    to: str | None = None, **terms: Unpack[Handing]
) -> Callable[[str, str], Awaitable[str]]:
    """Return a function that hands a task over: await it in a step, or give it to an agent."""
    return HandOff(to, terms).function()


class WorkflowDriver:
    """Runs a workflow, one context per handoff."""

    def __init__(self, workflow: Workflow, start: str) -> None:
        self._workflow = workflow
        self._start = start

    async def drive(self, work: Work, resume: Resume | None) -> AsyncGenerator[Event, Any]:
        """See `Driver`."""
        run = self._begun(work) if resume is None else await self._resumed(resume)
        asked: InputRequiredEvent | None = None
        state: dict[str, Any] = {}
        try:
            async for event in run.stream_events():
                if isinstance(event, InputRequiredEvent):
                    asked, state = event, run.ctx.to_dict()
                    break
                if not isinstance(event, StopEvent):
                    yield Progress(status=type(event).__name__)
        finally:
            # Parked or no longer wanted: its own timeout would go on counting.
            if not run.is_done():
                await run.cancel_run()
        if asked is None:
            yield Done(output=await run)
            return
        fields = dict(asked.items())
        question = next((fields[name] for name in _ASKING if fields.get(name)), fields)
        echoed = {name: value for name, value in fields.items() if name not in _ASKING}
        yield NeedHelp(question=text(question), state={"context": state, "echoed": echoed})

    def _begun(self, work: Work) -> WorkflowHandler:
        fields = dict(work.fields)
        begins = self._workflow.start_event_class
        if begins is not StartEvent:
            fields = {name: value for name, value in fields.items() if name in begins.model_fields}
        fields[self._start] = fields.get(self._start, work.prompt)
        try:
            # Not by `run(**fields)`: a payload may have fields that are called as its parameters.
            event = begins(**fields)
        except (ValidationError, TypeError) as error:
            raise Fail(f"the payload is no {begins.__name__}: {error}", code=MISFIT) from error
        return self._workflow.run(start_event=event)

    async def _resumed(self, resume: Resume) -> WorkflowHandler:
        context = Context.from_dict(self._workflow, resume.state["context"])
        run = self._workflow.run(ctx=context)
        answer: dict[str, Any] = {**resume.state["echoed"], "response": resume.answer}
        await run.send_event(HumanResponseEvent(**answer))
        return run
