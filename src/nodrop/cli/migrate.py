"""`nodrop migrate`: from one file to PostgreSQL, with the log as it is."""

from typing import Annotated

import typer

from nodrop.cli import screen
from nodrop.cli.screen import line
from nodrop.cli.session import Session
from nodrop.model.errors import InvalidRequestError, Problem
from nodrop.protocol.text import nouns


async def migrate(
    session: Session,
    address: Annotated[
        str, typer.Argument(metavar="ADDRESS", help="An empty database: postgresql://user@host/db.")
    ],
) -> None:
    """Copy this relay to PostgreSQL, every entry checked on the way; stop the relay first."""
    from nodrop import app  # noqa: PLC0415  # the relay itself: other verbs need not load it

    if not app.is_address(address):
        problem = Problem(path="ADDRESS", message="expected postgresql://user@host/database")
        raise InvalidRequestError("no such store", errors=(problem,))
    counts = await app.migrate(session.settings.home, address)
    database = app.without_password(address)
    session.show({"database": database, "rows": counts}, lambda: _show(database, counts))


def _show(database: str, counts: dict[str, int]) -> None:
    out = screen.console()
    entries = f"{counts['entry']} log {nouns(counts['entry'], 'entries')}"
    handoffs = f"{counts['handoff']} {nouns(counts['handoff'], 'handoffs')}"
    told = f"{entries} and {handoffs} are in {database}"
    out.print(line(("✓ ", "green"), told), soft_wrap=True)
    for step in (
        f"nodrop up --store {database}    # serve it",
        "nodrop verify                  # hold its log to itself",
    ):
        out.print(line(("  ", ""), (step, "cyan")), soft_wrap=True)
    out.print(line(("→ ", "cyan"), "The file is as it was. Keep it until you have verified."))
