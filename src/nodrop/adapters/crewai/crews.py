"""Agents and crews of CrewAI at work: a copy in a thread for every handoff."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from nodrop.adapters.port import threaded
from nodrop.adapters.port.current import working
from nodrop.adapters.port.events import Done, Event, Progress, Resume, Work, text
from nodrop.adapters.port.installed import needs
from nodrop.adapters.port.threaded import Returned, Stage

with needs("crewai", "1.15.28", extra="crewai"):
    from crewai import Agent, Crew
    from crewai.core.providers.human_input import SyncHumanInputProvider, set_provider
    from crewai.events.utils.console_formatter import set_suppress_console_output


class CrewDriver:
    """Runs an agent or a crew."""

    def __init__(self, target: Agent | Crew) -> None:
        self._target = target

    async def drive(self, work: Work, resume: Resume | None) -> AsyncGenerator[Event, Any]:
        """See `Driver`."""
        assert resume is None, "nothing was parked"

        def run(stage: Stage) -> Any:
            set_provider(AskRequester())  # for this thread alone, like the next
            set_suppress_console_output(not self._target.verbose)
            if isinstance(self._target, Agent):
                return self._target.copy().kickoff(work.prompt)
            crew = self._target.copy()
            crew.step_callback = lambda step: stage.say(type(step).__name__)
            return crew.kickoff(inputs={"task": work.prompt, **work.fields})

        async with aclosing(threaded.steps(run, name=f"crewai {work.id}")) as steps:
            async for step in steps:
                if isinstance(step, Returned):
                    made = step.value
                    yield Done(output=made.raw if made.pydantic is None else made.pydantic)
                else:
                    yield Progress(status=str(step))


class AskRequester(SyncHumanInputProvider):
    """Asks whoever handed the work over where CrewAI would read from the terminal.

    The hooks have private names: what CrewAI gives for the purpose is the whole loop around them.
    """

    @staticmethod
    def _prompt_input(crew: Crew | None) -> str:  # noqa: ARG004  # CrewAI's signature
        answer = working().ask_sync(
            "Is this right? Say what to change; an empty answer accepts it."
        )
        return "" if answer is None else text(answer)
