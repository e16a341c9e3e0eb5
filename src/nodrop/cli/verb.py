"""What every verb has: the options of a connection, `--json`, and problems with their exit codes.

A verb is an async function that takes a `Session` first. `verb` gives it the common options and
turns it into what typer registers; the verb itself parses, calls and prints.
"""

import asyncio
import inspect
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Generator, Sequence
from contextlib import contextmanager, suppress
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, Concatenate, Final, ParamSpec

import typer

from nodrop.cli import screen
from nodrop.cli.session import Session, Where
from nodrop.model.errors import NodropError
from nodrop.protocol.errors import TABLE

P = ParamSpec("P")

EXIT_TERMINATED: Final = 128 + signal.SIGTERM
EXIT_UNREAD: Final = 128 + 13
"""As of a program that SIGPIPE ended: `nodrop log | head -1`."""
_PANEL: Final = "Every verb"


def text(said: str) -> str:
    """Return what an option says. An empty one is a variable that was not set, and no default."""
    if not said.strip():
        raise typer.BadParameter("it is empty: say something, or leave the option out")
    return said


def path(said: str) -> Path:
    """Return the path that an option says; an empty one is not the current directory."""
    return Path(text(said))


Json = Annotated[
    bool, typer.Option("--json", help="Print the answer as JSON.", rich_help_panel=_PANEL)
]
Home = Annotated[
    Path | None,
    typer.Option(
        "--home",
        parser=path,
        help="Directory of database and credentials.",
        rich_help_panel=_PANEL,
    ),
]
_OPTIONS: Final[dict[str, Any]] = {
    "as_json": Json,
    "agent": Annotated[
        str | None,
        typer.Option("--agent", parser=text, help="Act as this agent.", rich_help_panel=_PANEL),
    ],
    "url": Annotated[
        str | None,
        typer.Option("--url", parser=text, help="Address of the relay.", rich_help_panel=_PANEL),
    ],
    "team": Annotated[
        str | None,
        typer.Option("--team", parser=text, help="The agent's team.", rich_help_panel=_PANEL),
    ],
    "token": Annotated[
        str | None,
        typer.Option("--token", parser=text, help="The agent's token.", rich_help_panel=_PANEL),
    ],
    "home": Home,
    "ca": Annotated[
        Path | None,
        typer.Option(
            "--ca",
            parser=path,
            metavar="FILE",
            help="Trust certificates of this CA (PEM) instead of the system's.",
            rich_help_panel=_PANEL,
        ),
    ],
}
CONNECTION: Final = tuple(_OPTIONS)
AT_HOME: Final = ("as_json", "home")
"""For a verb that is a relay itself."""
AS_NAMED: Final = tuple(name for name in _OPTIONS if name != "agent")
"""For a verb whose argument is the agent."""
WITHOUT_TOKEN: Final = tuple(name for name in _OPTIONS if name != "token")
"""For a verb that means somebody else's token by that."""
ALONE: Final = ("as_json",)
"""For a verb that brings everything with it."""

# What several verbs take.
Ref = Annotated[str, typer.Argument(metavar="REF", help="Id, unique prefix of it, or sender/key.")]
Attempt = Annotated[
    int | None,
    typer.Option("--attempt", min=1, help="The delivery meant; the last one you got by default."),
]


def verb(
    function: Callable[Concatenate[Session, P], Coroutine[Any, Any, None]],
    *,
    options: Sequence[str] = CONNECTION,
    runner: Callable[[Coroutine[Any, Any, None]], None] = asyncio.run,
) -> Callable[..., None]:
    """Return `function` as typer takes it: with the common options, run to its end.

    Args:
        function: the verb.
        options: which of the common ones it takes.
        runner: what runs it.
    """

    @wraps(function)
    def run(**arguments: Any) -> None:
        where = {name: arguments.pop(name) for name in options}
        as_json = where.pop("as_json")
        with _quiet_without_a_reader():
            try:
                runner(_with_session(Session(Where(**where), as_json=as_json), arguments))
            except NodropError as error:
                screen.problem(error, as_json=as_json)
                raise typer.Exit(TABLE[type(error)].exit) from error
            except asyncio.CancelledError:
                raise typer.Exit(EXIT_TERMINATED) from None  # asked to end, and it cleaned up

    async def _with_session(session: Session, arguments: dict[str, Any]) -> None:
        _wake_at_signals()
        async with session:
            # The wrapper's own parameters are `function`'s, as the signature below says.
            await function(session, **arguments)  # pyright: ignore[reportCallIssue]  # by name

    own = list(inspect.signature(function, eval_str=True).parameters.values())[1:]
    added = [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            annotation=annotation,
            default=False if name == "as_json" else None,
        )
        for name, annotation in ((name, _OPTIONS[name]) for name in options)
    ]
    named = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in own]
    parameters = [*named, *(p for p in added if p.name not in {o.name for o in own})]
    run.__signature__ = inspect.Signature(parameters)  # pyright: ignore[reportAttributeAccessIssue]  # read by inspect
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


@contextmanager
def _quiet_without_a_reader() -> Generator[None]:
    """End quietly once nobody reads what is printed."""
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        # The interpreter flushes stdout when it ends, and would complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(EXIT_UNREAD) from None


def _wake_at_signals() -> None:
    """Have every signal wake the event loop.

    One that comes just before the loop goes to sleep is heard of when it wakes up, and Ctrl-C would
    wait for the next answer of the relay. A loop that listens for any signal is woken by all.
    """
    # Elsewhere than in the main thread, or on Windows (which has no such signal), signals are
    # somebody else's.
    with suppress(AttributeError, NotImplementedError, RuntimeError, ValueError):
        asyncio.get_running_loop().add_signal_handler(signal.SIGCONT, lambda: None)
