"""`nodrop prove tampering`: random changes to a log, each of which `verify` must find and name."""

import asyncio
from typing import Annotated

import typer

from nodrop.protocol.errors import EXIT_FAILED


def tampering(
    *,
    count: Annotated[int, typer.Option(min=1, help="How many changes.")] = 10_000,
    seed: Annotated[int, typer.Option(min=0, help="Decides what is changed.")] = 7,
) -> None:
    """Change a log at random; exit 1 if a change was missed, or named at the wrong place."""
    from nodrop_proof.tampering import evidence, trial  # noqa: PLC0415  # the relay: for this verb only

    report = trial(asyncio.run(evidence()), count, seed)
    print(f"{sum(report.tried.values())} changes, {dict(report.tried)}")
    print(f"missed {len(report.missed)}, misnamed {len(report.misnamed)}")
    if not report.ok:
        raise typer.Exit(EXIT_FAILED)
