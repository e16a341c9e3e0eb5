"""`nodrop prove soak`: does a relay that many agents use for hours lose anything, or grow?"""

import asyncio
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from nodrop.cli import screen
from nodrop.protocol.errors import EXIT_FAILED

if TYPE_CHECKING:
    from nodrop_proof.soak import Line

_COLUMNS = "{:>8} {:>7} {:>8} {:>8} {:>8} {:>6} {:>8} {:>5} {:>5} {:>5}"


def soak(
    *,
    hours: Annotated[float, typer.Option(min=0.001, help="For how long.")] = 2.0,
    agents: Annotated[int, typer.Option(min=8, help="How many, each with its own token.")] = 200,
    rate: Annotated[float, typer.Option(min=0.1, help="Handoffs per second, in all.")] = 20.0,
    every: Annotated[float, typer.Option(min=0.1, help="Seconds between two lines.")] = 60.0,
    seed: Annotated[int, typer.Option(min=0, help="Decides what is random.")] = 1,
    control: Annotated[
        bool, typer.Option("--control", help="Leak connections: the run must fail.")
    ] = False,
) -> None:
    """Use a relay steadily; exit 1 if anything is lost, doubled or run again, or if it grows."""
    from nodrop_proof import soak as proof  # noqa: PLC0415  # the relay: for this verb only

    print(
        _COLUMNS.format(
            *("second", "rate/s", "p50 ms", "p99 ms", "RSS MB", "fds", "db MB"),
            *("open", "lost", "dup"),
        ),
        flush=True,
    )
    with tempfile.TemporaryDirectory(prefix="nodrop-soak-") as folder:
        plan = proof.Plan(
            folder=Path(folder),
            seconds=hours * 3_600,
            agents=agents,
            rate=rate,
            every=every,
            seed=seed,
            leak=control,
        )
        result = asyncio.run(proof.run(plan, _print))
    screen.document({"ok": result.ok, **msgspec.to_builtins(result)})
    if not result.ok:
        raise typer.Exit(EXIT_FAILED)


def _print(line: "Line") -> None:
    print(_COLUMNS.format(*msgspec.structs.astuple(line)), flush=True)
