"""`nodrop dlq`: what ended without success and waits for a decision. Each gets one."""

from typing import Annotated, Any

import typer
from rich.table import Table

from nodrop.cli import picture, screen
from nodrop.cli.screen import line, styled
from nodrop.cli.session import Session
from nodrop.cli.values import given
from nodrop.cli.verb import Ref


async def dlq_list(
    session: Session,
    limit: Annotated[int | None, typer.Option(min=1, help="Show at most this many.")] = None,
) -> None:
    """List the dead letters, newest first."""
    answer = await session.call("dead_letters", given(limit=limit))
    session.show(answer, lambda: _show(answer["handoffs"], session))


def _show(handoffs: list[dict[str, Any]], session: Session) -> None:
    out = screen.console()
    if not handoffs:
        out.print(line(("No dead letters: nothing waits for a decision.", "green")))
        return
    table = Table(box=None, pad_edge=False, header_style="bright_black")
    for column in ("handoff", "state", "from → to", "why", "when", ""):
        table.add_column(column, no_wrap=column != "why")
    for handoff in handoffs:
        ended = handoff["outcome"]
        why = " ".join(str(said) for said in (ended.get("code"), ended.get("reason")) if said)
        table.add_row(
            styled(handoff["ref"], "bold cyan"),
            screen.state(handoff["state"]),
            line(handoff["from"], (" → ", "bright_black"), handoff["to"]),
            styled(picture.brief(why)),
            styled(screen.ago(ended["at"], session.now()), "bright_black"),
            styled("late result" if handoff["late_result"] else "", "yellow"),
        )
    out.print(table)
    screen.hint("nodrop dlq redrive|discard|accept REF")


async def dlq_show(session: Session, ref: Ref) -> None:
    """Show one dead letter."""
    answer = await session.call("get_handoff", handoff=ref)
    session.show(answer, lambda: picture.track(answer["handoff"], now=session.now()))


async def dlq_redrive(
    session: Session,
    ref: Ref,
    *,
    to: Annotated[str | None, typer.Option(help="Somebody else shall try.")] = None,
    capability: Annotated[str | None, typer.Option(help="What the recipient must offer.")] = None,
    deadline: Annotated[
        str | None, typer.Option(metavar="DURATION|TIME", help="When it expires this time.")
    ] = None,
    reason: Annotated[str | None, typer.Option(help="Why.")] = None,
) -> None:
    """Try it again, with what was learnt so far."""
    fields = given(to=to, capability=capability, deadline=deadline, reason=reason)
    await _decide(session, "redrive", ref, fields, "redriven")


async def dlq_discard(
    session: Session,
    ref: Ref,
    reason: Annotated[str | None, typer.Option(help="Why.")] = None,
) -> None:
    """Let it rest."""
    await _decide(session, "discard", ref, given(reason=reason), "discarded")


async def dlq_accept(session: Session, ref: Ref) -> None:
    """Take the result that came too late."""
    await _decide(session, "accept", ref, {}, "accepted late:")


async def _decide(
    session: Session, operation: str, ref: str, fields: dict[str, Any], did: str
) -> None:
    answer = await session.call(operation, fields, handoff=ref)

    def show() -> None:
        picture.moved(answer["handoff"], did, now=session.now())
        if answer["handoff"]["successor"] is not None:
            screen.hint(f"nodrop track {answer['handoff']['successor']}")

    session.show(answer, show)
