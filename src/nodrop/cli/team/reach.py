"""Verbs about agents and the world outside: those that live elsewhere, those anybody may call."""

from contextlib import suppress
from typing import Annotated, Any, Final

import typer

from nodrop.cli import screen
from nodrop.cli.session import Session
from nodrop.cli.values import given
from nodrop.model.errors import ConflictError, ForbiddenError

Name = Annotated[str, typer.Argument(metavar="NAME", help="The agent.")]
_NOWHERE: Final = {"a2a": "", "token": "", "private": False}


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
    session.act_as("me")
    known = await session.call("get_reach", name=name)
    if known["a2a"] is None:
        raise ConflictError(
            f"{name} lives in this team: there is no address elsewhere to drop",
            next_step=f"To take it off the list: nodrop agents remove {name}",
        )
    answer = await session.call("set_reach", _NOWHERE, name=name)
    told = f" is no longer delivered to at {known['a2a']}; its mail is kept here"
    session.show(answer, lambda: screen.success("", (name, "bold"), told))


async def agents_remove(session: Session, name: Name) -> None:
    """Take an agent off the list. Its mail, its tokens and its keys are kept."""
    session.act_as("me")
    with suppress(ForbiddenError):  # for an operator; an agent may remove itself
        if (await session.call("get_reach", name=name))["a2a"] is not None:
            await session.call("set_reach", _NOWHERE, name=name)
    answer = await session.call("remove_agent", name=name)
    told = " is off the list; what waits for it is kept, and registering brings it back"
    session.show(answer, lambda: screen.success("", (name, "bold"), told))


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
