"""`nodrop token`: a token for whoever cannot find the credentials by itself, such as curl."""

from typing import Annotated

import typer

from nodrop.cli import screen
from nodrop.cli.session import Session


async def token(
    session: Session,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The agent it is for.")],
    role: Annotated[str, typer.Option(help="agent, observer or operator.")] = "agent",
    label: Annotated[str | None, typer.Option(help="To tell it from others later.")] = None,
) -> None:
    """Make a token for an agent and print it, alone: `$(nodrop token code_agent)`."""
    session.act_as("me")  # only an operator may, whoever this directory works as
    fields = {"agent": name, "role": role, "label": label or "nodrop token"}
    answer = await session.call("create_token", fields)
    session.show(answer, lambda: print(screen.clean(answer["token"])))
