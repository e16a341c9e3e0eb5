"""Verbs about agents and the world outside: those that live elsewhere, those anybody may call."""

from typing import Annotated, Any

import typer

from nodrop.cli import screen
from nodrop.cli.session import Session
from nodrop.cli.values import given

Name = Annotated[str, typer.Argument(metavar="NAME", help="The agent.")]


async def agents_add(
    session: Session,
    name: Name,
    a2a: Annotated[str, typer.Option(metavar="URL", help="Where its agent card is.")],
    token: Annotated[str | None, typer.Option(help="What it wants as a bearer.")] = None,
    *,
    private: Annotated[
        bool, typer.Option("--private", help="Allow an address that is not a public one.")
    ] = False,
) -> None:
    """Add an agent that lives elsewhere: the relay delivers to it over A2A."""
    await _set(session, name, {"a2a": a2a, "private": private, **given(token=token)})


async def agents_drop(session: Session, name: Name) -> None:
    """Deliver no more to an agent elsewhere; its mail is kept."""
    await _set(session, name, {"a2a": "", "token": "", "private": False})


async def agents_open(session: Session, name: Name) -> None:
    """Let callers without a token hand an agent work over A2A."""
    await _set(session, name, {"public": True})


async def agents_close(session: Session, name: Name) -> None:
    """Let an agent be handed work by members of the team only."""
    await _set(session, name, {"public": False})


async def _set(session: Session, name: str, fields: dict[str, Any]) -> None:
    session.act_as("me")  # only an operator may, whoever this directory works as
    answer = await session.call("set_reach", fields, name=name)
    session.show(answer, lambda: _show(answer))


def _show(reach: dict[str, Any]) -> None:
    where = f"at {reach['a2a']}" if reach["a2a"] else "in this team"
    who = "anybody may call it" if reach["public"] else "members of the team may call it"
    screen.success("", (reach["agent"], "bold"), f" lives {where}; {who}")
