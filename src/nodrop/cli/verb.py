"""What every verb has: the options of a connection, `--json`, and problems with their exit codes.

A verb is an async function that takes a `Session` first. `verb` gives it the common options and
turns it into what typer registers; the verb itself parses, calls and prints.
"""

import asyncio
import inspect
from collections.abc import Callable, Coroutine
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, Concatenate, Final, ParamSpec

import typer

from nodrop.cli import screen
from nodrop.cli.session import Session, Where
from nodrop.core.errors import NodropError
from nodrop.wire.errors import TABLE

P = ParamSpec("P")

_PANEL: Final = "Every verb"

Json = Annotated[
    bool, typer.Option("--json", help="Print the answer as JSON.", rich_help_panel=_PANEL)
]
Home = Annotated[
    Path | None,
    typer.Option("--home", help="Directory of database and credentials.", rich_help_panel=_PANEL),
]
_COMMON: Final[dict[str, Any]] = {"as_json": Json, "home": Home}
_CONNECTION: Final[dict[str, Any]] = {
    "as_json": Json,
    "agent": Annotated[
        str | None,
        typer.Option("--agent", help="Act as this agent.", rich_help_panel=_PANEL),
    ],
    "url": Annotated[
        str | None,
        typer.Option("--url", help="Address of the relay.", rich_help_panel=_PANEL),
    ],
    "team": Annotated[
        str | None, typer.Option("--team", help="The agent's team.", rich_help_panel=_PANEL)
    ],
    "token": Annotated[
        str | None, typer.Option("--token", help="The agent's token.", rich_help_panel=_PANEL)
    ],
    "home": Home,
}

# What several verbs take.
Ref = Annotated[str, typer.Argument(metavar="REF", help="Id, unique prefix of it, or sender/key.")]
Attempt = Annotated[
    int | None,
    typer.Option("--attempt", min=1, help="The delivery meant; the last one you got by default."),
]
Length = Annotated[str | None, typer.Option(metavar="DURATION")]


def verb(
    function: Callable[Concatenate[Session, P], Coroutine[Any, Any, None]],
    *,
    connects: bool = True,
) -> Callable[..., None]:
    """Return `function` as typer takes it: with the common options, run to its end."""
    common = _CONNECTION if connects else _COMMON

    @wraps(function)
    def run(**arguments: Any) -> None:
        where = {name: arguments.pop(name) for name in common}
        as_json = where.pop("as_json")
        try:
            asyncio.run(_with_session(Session(Where(**where), as_json=as_json), arguments))
        except NodropError as error:
            screen.problem(error, as_json=as_json)
            raise typer.Exit(TABLE[type(error)].exit) from error

    async def _with_session(session: Session, arguments: dict[str, Any]) -> None:
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
        for name, annotation in common.items()
    ]
    named = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in own]
    parameters = [*named, *(p for p in added if p.name not in {o.name for o in own})]
    run.__signature__ = inspect.Signature(parameters)  # pyright: ignore[reportAttributeAccessIssue]  # read by inspect
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run
