"""A driver at work as an agent: one delivery after the other, each driven to its end.

The SDK's worker takes, acknowledges, keeps the lease and reports; this adds what frameworks have in
common: progress at a bearable rate, promises kept while a model is silent, questions, parked state.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import aclosing, asynccontextmanager, suppress
from typing import Any, Final, TypedDict

from nodrop.adapters.port import current, sealing
from nodrop.adapters.port.current import Current
from nodrop.adapters.port.events import Done, Driver, Failed, NeedHelp, Progress, Resume, Run, Work
from nodrop.adapters.port.sealing import Seal
from nodrop.client.agent import Agent
from nodrop.client.auth.credentials import CredentialsFile
from nodrop.client.durations import Duration, seconds
from nodrop.client.endings import Fail
from nodrop.client.settings import load
from nodrop.client.working.task import Task
from nodrop.model.errors import NodropError, TooLargeError, UnavailableError
from nodrop.model.limits import DEFAULT

PROGRESS_SECONDS_MIN: Final = 1.0
"""Between two updates: whoever waits needs no more, and models stream faster than that."""
UPDATES_PER_PROMISE: Final = 3
"""How often a silent run says that it still runs, within `update_every`."""
CONCURRENCY: Final = 8

_CONTRACT: Final = frozenset({"timeout", "input_schema", "output_schema"})


class Terms(TypedDict, total=False):
    """What may be said about an agent made from a framework's object."""

    capability: str | None
    """What it does. Left out: whatever is handed to it, or, with terms, a capability of its name."""
    description: str | None
    tags: Iterable[str]
    timeout: Duration | None
    """The longest an attempt may take."""
    concurrency: int
    """How many handoffs at once."""
    input_schema: Any
    """What payloads must look like: a JSON Schema or a type."""
    output_schema: Any
    """What results look like: a JSON Schema or a type."""
    seal: Seal | None
    """What parked state is sealed with; a file of the agent's where left out."""


def agent_of(driver: Driver, name: str, framework: str, terms: Terms) -> Agent:
    """Return the agent that does its work with `driver`."""
    serving = Serving(driver, framework=framework, agent=name, seal=terms.get("seal"))
    description = terms.get("description") or f"An agent made with {framework}"
    tags, concurrency = terms.get("tags", ()), terms.get("concurrency", CONCURRENCY)
    agent = Agent(name, description=description, tags=tags, concurrency=concurrency)
    capability = terms.get("capability")
    if capability is None and not _CONTRACT & terms.keys():
        agent.handler(serving.handle)
        return agent
    agent.capability(
        capability or name,  # terms are those of a capability
        description=description,
        timeout=terms.get("timeout"),
        input_schema=terms.get("input_schema"),
        output_schema=terms.get("output_schema"),
    )(serving.handle)
    return agent


class Serving:
    """One driver, and what it is doing."""

    def __init__(
        self,
        driver: Driver,
        *,
        framework: str,
        agent: str,
        seal: Seal | None = None,
        progress_seconds_min: float = PROGRESS_SECONDS_MIN,
    ) -> None:
        self._driver = driver
        self._framework = framework
        self._agent = agent
        self._seal = seal
        self._progress_seconds_min = progress_seconds_min

    async def handle(self, task: Task) -> Any:
        """Drive one delivery: the handler of the agent."""
        resume = self._resume(task)
        with current.entered(task) as here:
            async with _promise_kept(task), aclosing(self._drive(task, resume)) as run:
                return await self._follow(run, here)

    def _drive(self, task: Task, resume: Resume | None) -> Run:
        work = Work(
            id=task.id,
            correlation_id=task.correlation_id,
            sender=task.sender,
            payload=task.payload,
            title=task.title,
            expected_outcome=task.view.get("expected_outcome"),
        )
        return self._driver.drive(work, resume)

    async def _follow(self, run: Run, here: Current) -> Any:
        tell = self._teller(here.task)
        answer: Any = None
        while True:
            try:
                event = await run.asend(answer)
            except StopAsyncIteration:
                raise Fail("the run ended without a result", code="no_result") from None
            answer = None
            match event:
                case Progress(status=status):
                    await tell(status)
                case NeedHelp(state=None):
                    answer = await here.ask(_bounded(event.question), event.to)
                case NeedHelp():
                    await self._park(here.task, event)
                case Done(output=output):
                    return output
                case Failed():
                    raise Fail(event.reason, code=event.code, retryable=event.retryable)

    # --- parked ---------------------------------------------------------------------------------

    async def _park(self, task: Task, help_needed: NeedHelp) -> None:
        """Let go until there is an answer."""
        name = f"help-{len(task.answers) + 1}"
        state = {"question": name, "state": help_needed.state}
        sealed = self._sealer().close(state, framework=self._framework, handoff=task)
        question = _bounded(help_needed.question)
        try:
            await task.park(question, checkpoint=sealed, to=help_needed.to, name=name)
        except TooLargeError as error:
            raise Fail(f"the state to park: {error}", code=error.code) from error

    def _resume(self, task: Task) -> Resume | None:
        """Return what an earlier attempt parked, once it is answered."""
        if not sealing.is_sealed(task.last_checkpoint):
            return None
        opened = self._sealer().open(task.last_checkpoint, framework=self._framework, handoff=task)
        question = opened["question"]
        if question not in task.answers:
            return None
        return Resume(answer=task.answers[question], state=opened["state"])

    def _sealer(self) -> Seal:
        if self._seal is None:
            settings = load(agent=self._agent)
            team = settings.team or CredentialsFile(settings.home).read().team
            self._seal = Seal.from_file(settings.home / "keys" / team / f"{self._agent}.seal")
        return self._seal

    # --- while it runs --------------------------------------------------------------------------

    def _teller(self, task: Task) -> Callable[[str], Awaitable[None]]:
        loop = asyncio.get_running_loop()
        told_at = -self._progress_seconds_min + loop.time()

        async def tell(status: str) -> None:
            nonlocal told_at
            if loop.time() - told_at >= self._progress_seconds_min:
                told_at = loop.time()
                await _say(task, status)

        return tell


@asynccontextmanager
async def _promise_kept(task: Task) -> AsyncGenerator[None]:
    """Have the relay hear of a run that says nothing for long."""
    every = seconds(task.view["update_every"]) / UPDATES_PER_PROMISE

    async def keep() -> None:
        with suppress(NodropError):  # it went on without us: the handler hears of that as well
            while True:
                await asyncio.sleep(every)
                await _say(task, "still running")

    keeping = asyncio.create_task(keep())
    try:
        yield
    finally:
        keeping.cancel()


async def _say(task: Task, status: str) -> None:
    # A relay that cannot be told now is told next time; the work goes on.
    with suppress(UnavailableError):
        await task.update(_bounded(status))


def _bounded(text: str) -> str:
    longest = DEFAULT.text_chars_max
    return text if len(text) <= longest else f"{text[: longest - 1]}…"
