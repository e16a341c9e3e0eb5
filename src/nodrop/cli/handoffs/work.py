"""`nodrop work NAME --exec 'CMD'`: any command is an agent."""

import asyncio
import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Annotated, Any

import typer

from nodrop.cli import logs, screen
from nodrop.cli.handoffs.execution import Execution
from nodrop.cli.session import Session
from nodrop.cli.values import given, waiting
from nodrop.client.agent import Agent
from nodrop.client.durations import seconds
from nodrop.client.endings import Fail
from nodrop.client.working.task import Task
from nodrop.model.limits import DEFAULT, SECOND
from nodrop.protocol.text import spell_duration


async def work(
    session: Session,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The agent's name.")],
    *,
    command: Annotated[
        str,
        typer.Option(
            "--exec",
            metavar="CMD",
            help="Run through the shell for each handoff: JSON on stdin, result on stdout.",
        ),
    ],
    capability: Annotated[
        str | None,
        typer.Option(help="What it offers; by default it takes whatever is handed to it."),
    ] = None,
    concurrency: Annotated[int, typer.Option(min=1, help="How many at once.")] = 1,
    longest: Annotated[
        str | None, typer.Option("--timeout", metavar="DURATION", help="The longest one may run.")
    ] = None,
    heartbeat: Annotated[
        float,
        typer.Option(
            metavar="SECONDS",
            min=DEFAULT.heartbeat_seconds_min,
            max=DEFAULT.heartbeat_seconds_max,
            help="How often to give a sign of life; missing three is taken for a crash.",
        ),
    ] = DEFAULT.heartbeat_seconds,
    description: Annotated[str | None, typer.Option(help="What others read about it.")] = None,
    log_level: logs.Level = logs.LogLevel.INFO,
    log_format: logs.Format = logs.LogFormat.TEXT,
    log_file: logs.File = None,
) -> None:
    """Work as an agent: run a command for each handoff.

    Exit 0 completes it with stdout as the result (JSON if it parses), 75 tries again later,
    anything else fails it with the end of stderr as the reason.
    """
    if longest is not None:
        waiting(longest, option="--timeout")
    execution = Execution(
        command=command,
        agent=name,
        url=session.settings.address,
        home=str(session.settings.home),
        timeout_seconds=None if longest is None else seconds(longest),
        environment={
            **os.environ,
            **given(
                NODROP_TOKEN=session.settings.token,
                NODROP_TEAM=session.settings.team,
                NODROP_CA=session.settings.ca and str(session.settings.ca.resolve()),
            ),
        },
    )
    reports = _Reports()

    async def handle(task: Task) -> Any:
        return await (reports.around(task, execution) if session.as_json else execution.run(task))

    agent = Agent(name, description=description, concurrency=concurrency)
    if capability is None:
        agent.handler(handle)
    else:
        agent.capability(capability, timeout=longest, concurrency=concurrency)(handle)
    logs.Logs(level=log_level, form=log_format, file=log_file).begin()
    serving = agent.serve(
        session.settings.address,
        token=session.settings.token,
        team=session.settings.team,
        ca=session.settings.ca,
        heartbeat_seconds=heartbeat,
    )
    await _until_signalled(asyncio.ensure_future(serving), agent.stop)


async def _until_signalled(serving: asyncio.Future[None], stop: Callable[[], None]) -> None:
    """Work on; the first signal lets running commands finish, the second ends them."""
    asked: list[int] = []

    def hear(number: int) -> None:
        asked.append(number)
        (stop if len(asked) == 1 else serving.cancel)()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, hear, number)
    with suppress(asyncio.CancelledError):
        await serving


class _Reports:
    """One JSON document for each handoff that begins or ends, for `--json`."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now

    async def around(self, task: Task, execution: Execution) -> Any:
        """Run the command for a delivery, telling how it begins and ends."""
        began = self._now()
        self._tell(task, "started", attempt=task.attempt, title=task.title)
        try:
            result = await execution.run(task)
        except Fail as ending:
            event = "try again" if ending.retryable else "failed"
            self._tell(task, event, took=self._took(began), reason=ending.reason)
            raise
        except BaseException:
            self._tell(task, "stopped", took=self._took(began))
            raise
        self._tell(task, "done", took=self._took(began), result=result)
        return result

    def _took(self, began: float) -> str:
        return spell_duration(round((self._now() - began) * SECOND))

    def _tell(self, task: Task, event: str, **said: Any) -> None:
        screen.document({"event": event, "handoff_id": task.id, "ref": task.ref, **said})
