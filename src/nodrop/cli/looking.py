"""Verbs that look: track a handoff, read and annotate the log."""

from collections.abc import Mapping
from typing import Annotated, Any, Final

import typer

from nodrop.cli import picture, screen
from nodrop.cli.entries import Lines
from nodrop.cli.session import Session
from nodrop.cli.team import refusals
from nodrop.cli.values import given, text_of
from nodrop.cli.verb import Ref
from nodrop.client.cursor import Cursor, fields_of
from nodrop.model.errors import CursorUnknownError, NotFoundError

FOLLOW_SECONDS: Final = 30
"""How long one request of `log --follow` waits for the next entry."""


async def track(session: Session, ref: Ref) -> None:
    """Show a handoff: its contract, its receipts, who owes what by when."""
    answer = await session.call("get_handoff", handoff=ref)
    session.show(answer, lambda: picture.track(answer["handoff"], now=session.now()))


async def log(
    session: Session,
    *,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on as entries come.")] = False,
    after: Annotated[int, typer.Option(min=0, help="Only entries after this number.")] = 0,
    handoff: Annotated[str | None, typer.Option(metavar="REF", help="Only of this one.")] = None,
    kind: Annotated[
        str | None,
        typer.Option(
            "--type", metavar="TYPE", help="A type such as handoff.failed.v1, or handoff.*"
        ),
    ] = None,
    by: Annotated[str | None, typer.Option(metavar="AGENT", help="Only by this agent.")] = None,
    chain: Annotated[
        str | None,
        typer.Option(
            metavar="REF", help="Only of this chain: a correlation id, or one of its handoffs."
        ),
    ] = None,
    since: Annotated[
        str | None, typer.Option(metavar="DURATION|TIME", help="Only from then on, such as 6h.")
    ] = None,
    until: Annotated[
        str | None, typer.Option(metavar="DURATION|TIME", help="Only up to then.")
    ] = None,
    text: Annotated[str | None, typer.Option(help="Only what holds these words.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="At most this many.")] = None,
    security: Annotated[
        bool, typer.Option("--security", help="Who was refused what instead; for operators.")
    ] = False,
) -> None:
    """Read the team's log, oldest first. With --json, one entry per line."""
    if security:
        await refusals.show(session, limit)
        return
    about = None if handoff is None else (await session.handoff(handoff))["id"]
    fields = given(
        handoff_id=about,
        type=kind,
        actor=by,
        correlation_id=None if chain is None else await _correlation_of(session, chain),
        since=since,
        until=until,
        text=text,
    )
    lines, left, place = Lines(), limit, Cursor(after)
    while left is None or left > 0:
        asked = {**fields, **fields_of(place), "wait": FOLLOW_SECONDS if follow else 0}
        try:
            answer = await session.call("log", asked | given(limit=left and min(left, 500)))
        except CursorUnknownError as error:
            if not follow:
                raise
            screen.warning(f"{error.detail}. The log from its beginning:")
            place = Cursor()
            continue
        for entry in answer["entries"]:
            _show(entry, session, lines)
        left = None if left is None else left - len(answer["entries"])
        # The cursor passes over what the filters left out, so it tells when the end is reached.
        if answer["after"] <= place and not follow:
            return
        place = Cursor.of(answer)


async def _correlation_of(session: Session, reference: str) -> str:
    """Return the correlation id of a handoff; what is none is taken for one itself."""
    try:
        return str((await session.handoff(reference))["correlation_id"])
    except NotFoundError:
        return reference


def _show(entry: Mapping[str, Any], session: Session, lines: Lines) -> None:
    if session.as_json:
        screen.document(entry)
    else:
        screen.console().print(lines.of(entry), soft_wrap=True)


async def note(
    session: Session,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="@file and - work too.")],
    handoff: Annotated[str | None, typer.Option(metavar="REF", help="What it is about.")] = None,
) -> None:
    """Write a remark into the log, for everybody who reads it."""
    fields = {"text": text_of(text)}
    if handoff is None:
        noted = await session.call("note_team", fields)
        session.show(noted, lambda: screen.success(f"noted in the log at {noted['seq']}"))
        return
    answer = await session.call("note", fields, handoff=handoff)
    session.show(answer, lambda: screen.success("noted about ", (answer["handoff"]["ref"], "bold")))
