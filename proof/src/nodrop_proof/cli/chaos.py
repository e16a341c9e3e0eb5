"""`nodrop prove chaos`: break things under load, and count what was lost, duplicated or run again."""

import asyncio
import os
import random
import shutil
import signal
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from nodrop.cli import screen
from nodrop.cli.screen import line, styled
from nodrop.cli.session import Session
from nodrop.protocol.errors import EXIT_FAILED
from nodrop_proof import chaos as proof
from nodrop_proof.chaos.plan import Plan
from nodrop_proof.chaos.report import Report

_SEED_MAX: Final = 2**32


def _known(fault: str) -> str:
    if fault not in proof.FAULTS:
        raise typer.BadParameter(f"expected one of {', '.join(proof.FAULTS)}")
    return fault


_FAULTS: Final = "; ".join(f"{name}: {what}" for name, what in proof.FAULTS.items())


async def chaos(
    session: Session,
    fault: Annotated[
        str, typer.Argument(metavar="FAULT", callback=_known, help=f"What to do. {_FAULTS}.")
    ],
    *,
    count: Annotated[
        int | None,
        typer.Option(min=1, help="How many faults, 10 by default; of six-hours: chains, 2,000."),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, help="Decides what is random; a new one by default.")
    ] = None,
    seconds: Annotated[
        float | None, typer.Option(min=1, help="For how long, where a fault goes by time.")
    ] = None,
    callers: Annotated[int, typer.Option(min=1, help="Handoffs in flight at once.")] = 64,
    already_open: Annotated[
        int, typer.Option("--open", min=0, help="Handoffs that stay open all the while.")
    ] = 0,
    nodes: Annotated[
        int,
        typer.Option(min=1, max=16, help="Relays on one database, where a fault needs several."),
    ] = 2,
    folder: Annotated[
        Path | None,
        typer.Option(help="An empty directory to work in, and to leave everything in."),
    ] = None,
) -> None:
    """Break real processes under load; exit 1 unless nothing was lost, duplicated or run again."""
    with _working_in(folder) as place:
        plan = Plan(
            fault=fault,
            count=count or proof.COUNTS.get(fault, proof.COUNT),
            seed=random.SystemRandom().randrange(_SEED_MAX) if seed is None else seed,
            folder=place,
            seconds=seconds,
            callers=callers,
            open=already_open,
            nodes=nodes,
        )
        report = await _run(plan)
        if report.ok and folder is None:
            shutil.rmtree(place)
    if session.as_json:
        screen.document(report.document())
    else:
        _show(report)
    if not report.ok:
        screen.console(stderr=True).print(
            line(("! ", "yellow"), f"Databases and records are in {place}"), soft_wrap=True
        )
        raise typer.Exit(EXIT_FAILED)


@contextmanager
def _working_in(folder: Path | None) -> Generator[Path]:
    """Be where no settings of the person who watches can reach what is run here."""
    place = Path(tempfile.mkdtemp(prefix="nodrop-chaos-")) if folder is None else folder.resolve()
    place.mkdir(parents=True, exist_ok=True)
    if any(place.iterdir()):
        raise typer.BadParameter(f"{place} is not empty", param_hint="--folder")
    before = Path.cwd()
    settings = {name: value for name, value in os.environ.items() if name.startswith("NODROP_")}
    for name in settings:
        del os.environ[name]
    os.chdir(place)
    try:
        yield place
    except asyncio.CancelledError:
        if folder is None:
            shutil.rmtree(place, ignore_errors=True)
        raise
    finally:
        os.chdir(before)
        os.environ.update(settings)


async def _run(plan: Plan) -> Report:
    running = asyncio.current_task()
    assert running is not None, "a verb runs in a task"
    # As on Ctrl-C: whatever was started is ended first.
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, running.cancel)
    out = screen.console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeElapsedColumn(), console=out, disable=not out.is_terminal) as bar:
        task = bar.add_task(f"{plan.fault}, seed {plan.seed}", total=None)

        def progress(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total)

        return await proof.load(plan.fault)(plan, progress)


def _show(report: Report) -> None:
    out = screen.console()
    verdict = line(
        ("✓ ", "green") if report.ok else ("✗ ", "red"),
        (f"{report.fault}: ", "bold"),
        f"{report.count} faults in {report.seconds:g} s, seed {report.seed}",
    )
    out.print(verdict)
    figures = Table.grid(padding=(0, 2))
    for name, must_be_zero in (
        ("acknowledged", False),
        ("lost", True),
        ("duplicated", True),
        ("steps_rerun", True),
        ("wrong", True),
    ):
        value: int = getattr(report, name)
        style = ("red" if value else "green") if must_be_zero else ""
        figures.add_row(styled(name, "bright_black"), styled(value, style))
    for name, value in report.document()["extras"].items():
        figures.add_row(styled(name, "bright_black"), styled(value))
    if report.restarts_ms is not None:
        took = report.restarts_ms
        told = f"{took.count}, p50 {took.p50:g} ms, p99 {took.p99:g} ms, max {took.max:g} ms"
        figures.add_row(styled("restarts", "bright_black"), styled(told))
    if report.bound_95 is not None:
        bound = f"at most {report.bound_95:.2g} of acknowledged ones are lost, 95 % confidence"
        figures.add_row(styled("bound", "bright_black"), styled(bound))
    out.print(figures)
    for finding in report.findings:
        out.print(line(("✗ ", "red"), finding), soft_wrap=True)
