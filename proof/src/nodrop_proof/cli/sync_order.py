"""`nodrop prove sync-order`: does any answer leave a traced relay before its commit's sync?"""

import asyncio
import tempfile
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from nodrop.cli import screen
from nodrop.model.errors import NodropError
from nodrop.protocol.errors import EXIT_FAILED, TABLE


def sync_order(
    *,
    commits: Annotated[int, typer.Option(min=1, help="How many, one by one and again at once.")] = (
        1_000
    ),
    control: Annotated[
        bool, typer.Option("--control", help="Trace a relay that does not sync.")
    ] = False,
) -> None:
    """Trace a relay with strace; exit 1 if an answer left before the sync of its commit."""
    from nodrop_proof.chaos.in_process import SYNCHRONOUS_NORMAL  # noqa: PLC0415  # the relay: for this verb only
    from nodrop_proof.sync_order import traced  # noqa: PLC0415  # same

    controls = frozenset({SYNCHRONOUS_NORMAL} if control else ())
    try:
        with tempfile.TemporaryDirectory() as folder:
            order = asyncio.run(traced(Path(folder), commits=commits, controls=controls))
    except NodropError as error:
        screen.problem(error, as_json=False)
        raise typer.Exit(TABLE[type(error)].exit) from error
    screen.document(msgspec.to_builtins(order))
    if order.early or not order.answers:
        raise typer.Exit(EXIT_FAILED)
