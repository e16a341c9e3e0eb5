"""`nodrop prove backup`: does each backup under load hold everything answered before it?"""

import asyncio
import tempfile
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from nodrop.cli import screen
from nodrop.protocol.errors import EXIT_FAILED


def backup(
    *,
    count: Annotated[int, typer.Option(min=1, help="How many backups.")] = 20,
    control: Annotated[
        bool, typer.Option("--control", help="Copy the file instead of making a backup.")
    ] = False,
) -> None:
    """Back up a relay under load, restore each backup; exit 1 if anything answered is missing."""
    from nodrop_proof.backup import rounds  # noqa: PLC0415  # the relay: for this verb only

    with tempfile.TemporaryDirectory() as folder:
        made = asyncio.run(rounds(Path(folder), count=count, copy_file=control))
    bad = sum(not each.holds for each in made)
    screen.document({"backups": len(made), "bad": bad, "rounds": msgspec.to_builtins(made)})
    if bad:
        raise typer.Exit(EXIT_FAILED)
