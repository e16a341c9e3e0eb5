"""`nodrop prove adversary`: what does one agent that does everything it may cost the others?"""

import asyncio
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from nodrop.protocol.errors import EXIT_FAILED


def adversary(
    *,
    minutes: Annotated[float, typer.Option(min=0.05, help="How long it goes on.")] = 10.0,
    wave: Annotated[
        list[str] | None, typer.Option("--wave", help="Only this wave; may be repeated.")
    ] = None,
    wave_seconds: Annotated[float, typer.Option(min=1, help="How long each wave takes.")] = 20.0,
    control: Annotated[
        bool, typer.Option("--control", help="Take the relay's bounds away; it must fail.")
    ] = False,
) -> None:
    """Let one agent do everything it may; exit 1 if the others or the memory suffer."""
    from nodrop_proof.adversary import run as proof  # noqa: PLC0415  # for this verb only
    from nodrop_proof.adversary.waves import CONTROLS, WAVES  # noqa: PLC0415  # for this verb only

    unknown = sorted(set(wave or ()) - set(WAVES))
    if unknown:
        raise typer.BadParameter(f"{unknown[0]} is none of {', '.join(WAVES)}")
    chosen = tuple(wave or WAVES)
    plan = proof.Plan(
        seconds=minutes * 60,
        wave_seconds=wave_seconds,
        waves=chosen,
        limits={name: most for each in chosen for name, most in CONTROLS[each].items()}
        if control
        else {},
    )
    with tempfile.TemporaryDirectory() as folder:
        report = asyncio.run(proof.run(plan, Path(folder), lambda line: print(line, flush=True)))
    print(
        f"load {report.load[0]:.1f} to {report.load[1]:.1f}, {report.seconds:.0f} s, "
        f"{report.handoffs} handoffs of others\n"
        f"others   p50 {report.p50_before_ms:.0f} -> {report.p50_ms:.0f} ms, "
        f"p99 {report.p99_before_ms:.0f} -> {report.p99_ms:.0f} ms (at most {proof.P99_MS_MAX:.0f})\n"
        f"memory   {report.before_mb:.0f} MiB before, {report.peak_mb:.0f} at most, "
        f"{report.after_mb:.0f} after {report.after_seconds:.0f} s\n"
        f"busy     {report.busy_ms:.0f} ms at most without a pause (at most {proof.BUSY_MS_MAX:.0f})\n"
        f"restarts {report.restarts}"
    )
    broken = report.broken()
    for said in broken:
        print(f"broken: {said}")
    if broken:
        raise typer.Exit(EXIT_FAILED)
