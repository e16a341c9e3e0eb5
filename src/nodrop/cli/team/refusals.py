"""`nodrop log --security`: who was refused what, for reasons of identity or authorization."""

from typing import Any

from rich.table import Table

from nodrop.cli import screen
from nodrop.cli.screen import line, styled
from nodrop.cli.session import Session
from nodrop.cli.values import given


async def show(session: Session, limit: int | None) -> None:
    """Show the security log, latest first."""
    session.act_as("me")  # only an operator may, whoever this directory works as
    answer = await session.call("refusals", given(limit=limit))
    session.show(answer, lambda: _table(answer["refusals"], session.now()))


def _table(refusals: list[dict[str, Any]], now: int) -> None:
    out = screen.console()
    if not refusals:
        out.print(line(("Nobody was refused since the relay started.", "green")))
        return
    table = Table(box=None, pad_edge=False, header_style="bright_black")
    for column in ("times", "last", "who", "from", "asked for", "why"):
        table.add_column(column, no_wrap=column != "why")
    for refusal in refusals:
        table.add_row(
            styled(refusal["count"], "bold"),
            styled(screen.ago(refusal["last_at"], now), "bright_black"),
            styled(refusal["actor"] or "a stranger"),
            styled(refusal["address"] or "", "bright_black"),
            styled(refusal["operation"]),
            line((f"{refusal['reason']} ", "yellow"), refusal["detail"]),
        )
    out.print(table)
