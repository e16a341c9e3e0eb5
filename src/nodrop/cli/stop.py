"""`nodrop stop`: end the relay of this home, and wait until it is gone."""

import asyncio
import sys
from typing import TYPE_CHECKING, Annotated, Final

import typer

from nodrop.cli import screen, values
from nodrop.cli.screen import line
from nodrop.cli.session import Session
from nodrop.cli.verb import text
from nodrop.model.errors import ForbiddenError, InvalidRequestError, UnavailableError
from nodrop.model.limits import SECOND

if TYPE_CHECKING:
    from nodrop.app.process import RelayProcess

_LOOK_SECONDS: Final = 0.05


async def stop(
    session: Session,
    timeout: Annotated[  # noqa: ASYNC109  # an option's name
        str, typer.Option(parser=text, metavar="DURATION", help="How long to wait for it to end.")
    ] = "30s",
) -> None:
    """Stop the relay of this home: it answers what it has begun, closes its database, and ends."""
    from nodrop.app.process import found  # noqa: PLC0415  # the relay itself: other verbs need not load it

    within_ms = values.duration_ms(timeout, path="--timeout")
    if sys.platform == "win32":
        raise InvalidRequestError(
            "Windows has no signal that stops a relay gracefully",
            next_step="Press Ctrl-C where it runs.",
        )
    home = session.settings.home
    processes = found(home)
    for process in processes:
        _terminate(process)
    for process in processes:
        await _gone(process, within_ms)
    answer = {"stopped": [{"url": process.url, "pid": process.pid} for process in processes]}
    session.show(answer, lambda: _show(processes, str(home)))


def _terminate(process: "RelayProcess") -> None:
    named = f"{_named(process)}, process {process.pid}"
    if process.elsewhere:
        raise ForbiddenError(
            f"{named}, runs on another machine or in another container",
            next_step="Stop it there.",
        )
    try:
        process.terminate()
    except PermissionError as error:
        raise ForbiddenError(
            f"{named}, belongs to another user", next_step="Stop it as that user."
        ) from error


async def _gone(process: "RelayProcess", within_ms: int) -> None:
    try:
        async with asyncio.timeout(within_ms / SECOND):
            while not process.ended():  # noqa: ASYNC110  # another process: nothing tells of its end
                await asyncio.sleep(_LOOK_SECONDS)
    except TimeoutError:
        raise UnavailableError(
            f"{_named(process)}, process {process.pid}, has been told to stop and still runs",
            next_step=f"Wait longer (nodrop stop --timeout 5m), or end it: kill -9 {process.pid}",
        ) from None


def _named(process: "RelayProcess") -> str:
    return f"the relay at {process.url}" if process.url else "the relay that is starting"


def _show(stopped: "list[RelayProcess]", home: str) -> None:
    if not stopped:
        screen.console().print(
            line(f"No relay runs on {home}: there is nothing to stop."), soft_wrap=True
        )
    for process in stopped:
        screen.success(f"stopped {_named(process)} (process {process.pid})")
