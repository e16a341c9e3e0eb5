"""`nodrop notify`: have what comes into an inbox sent to where its owner is."""

import asyncio
from typing import Annotated, Any, Final

import typer
from rich.table import Table

from nodrop.cli import screen
from nodrop.cli.screen import line, styled
from nodrop.cli.session import Session
from nodrop.cli.values import given
from nodrop.model.errors import InvalidRequestError, Problem
from nodrop.protocol.errors import EXIT_FAILED

_NAME: Final = "notify"
_TEST_TRIES_MAX: Final = 100
_TEST_PAUSE_SECONDS: Final = 0.2


async def notify_add(
    session: Session,
    place: Annotated[
        str, typer.Argument(metavar="URL", help="An Apprise address, or with --webhook any other.")
    ],
    *,
    name: Annotated[
        str | None,
        typer.Option(
            help=f"What to call it; {_NAME} by default. Takes the place of one so called."
        ),
    ] = None,
    inbox_of: Annotated[
        str | None, typer.Option("--for", help="Whose inbox; yours by default.")
    ] = None,
    kind: Annotated[
        list[str] | None, typer.Option(help="Only such items: question, outcome, ...; repeatable.")
    ] = None,
    webhook: Annotated[
        bool, typer.Option("--webhook", help="Post signed requests (Standard Webhooks).")
    ] = False,
    allow_private: Annotated[
        bool, typer.Option("--allow-private", help="It may lead to an address that is not public.")
    ] = False,
    test: Annotated[bool, typer.Option("--test", help="Send something at once, and wait.")] = False,
) -> None:
    """Send what waits for you to mail, chat, push or a webhook."""
    session.act_as("me")
    if name is None:
        name = _NAME
        await _require_free(session, name)
    fields: dict[str, Any] = given(inbox=inbox_of, kinds=kind)
    fields |= {"url": place, "kind": "webhook" if webhook else "notify", "test": test}
    fields["allow_private"] = allow_private
    answer = await session.call("put_outlet", fields, name=name)
    if test:
        answer = {**answer, "outlet": await _tested(session, answer["outlet"])}
    session.show(answer, lambda: _show_added(answer, tested=test))
    if test and not answer["outlet"]["sent"]:
        raise typer.Exit(EXIT_FAILED)


async def _require_free(session: Session, name: str) -> None:
    """Refuse to put one in the place of another that nobody named."""
    for outlet in (await session.call("outlets"))["outlets"]:
        if outlet["name"] == name:
            what = f"{name} leads to {outlet['place']} already: say which name, that one or another"
            problem = Problem(path="--name", message=what)
            raise InvalidRequestError(what, errors=(problem,))


async def _tested(session: Session, outlet: dict[str, Any]) -> dict[str, Any]:
    """Return the outlet once the test has arrived, or could not be sent."""
    now = outlet
    for _ in range(_TEST_TRIES_MAX):
        listed = (await session.call("outlets"))["outlets"]
        now = next((each for each in listed if each["name"] == outlet["name"]), now)
        if now["sent"] or now["failing"] or now["given_up"]:
            break
        await asyncio.sleep(_TEST_PAUSE_SECONDS)
    return now


def _show_added(answer: dict[str, Any], *, tested: bool) -> None:
    outlet = answer["outlet"]
    if tested and not outlet["sent"]:
        why = outlet["failing"] or "nothing was sent yet"
        out = screen.console(stderr=True)
        out.print(line(("✗ ", "red"), f"the test did not arrive: {why}"))
        name = outlet["name"]
        out.print(
            line(("→ ", "cyan"), f"It goes on trying; nodrop notify remove {name} ends that.")
        )
        return
    said = "a test arrived at" if tested else "is sent to"
    screen.success(f"what waits for {outlet['agent']}: {said} {outlet['place']}")
    if answer["secret"]:
        print(answer["secret"])


async def notify_list(session: Session) -> None:
    """List where inboxes are sent to, and how that goes."""
    session.act_as("me")
    answer = await session.call("outlets")
    session.show(answer, lambda: _show(answer["outlets"]))


def _show(outlets: list[dict[str, Any]]) -> None:
    out = screen.console()
    if not outlets:
        out.print(line(("Nothing is sent on. ", "bright_black"), "nodrop notify add URL --test"))
        return
    table = Table(box=None, pad_edge=False, header_style="bright_black")
    for column in ("name", "for", "where", "sent", "given up"):
        table.add_column(column, no_wrap=True)
    table.add_column("", overflow="fold")
    for outlet in outlets:
        table.add_row(
            styled(outlet["name"], "bold"),
            styled(outlet["agent"]),
            styled(outlet["place"]),
            styled(outlet["sent"]),
            styled(outlet["given_up"] or ""),
            styled(outlet["failing"] or "", "red"),
        )
    out.print(table)


async def notify_remove(
    session: Session, name: Annotated[str, typer.Argument(metavar="NAME", help="The outlet.")]
) -> None:
    """Send nothing there any more."""
    session.act_as("me")
    answer = await session.call("remove_outlet", name=name)
    session.show(answer, lambda: screen.success(f"{name} is gone"))
