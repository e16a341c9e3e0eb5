"""`nodrop prove simulate`: the real engine among random agents and faults, hours of it in seconds."""

import random
import time
from collections import Counter
from collections.abc import Coroutine, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
import typer
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from nodrop.cli import screen
from nodrop.cli.screen import line, styled
from nodrop.cli.session import Session
from nodrop.protocol.errors import EXIT_FAILED

if TYPE_CHECKING:
    from nodrop_proof.emergence.script import Script
    from nodrop_proof.simulate.report import Report

_SEED_MAX: Final = 2**32
_AGENTS: Final = 12
_SCENARIO_AGENTS: Final = 60


async def simulate(
    session: Session,
    *,
    seed: Annotated[
        int | None, typer.Option(min=0, help="Decides everything; a new one by default.")
    ] = None,
    hours: Annotated[
        float,
        typer.Option(
            min=0.1, max=10_000, help="Virtual hours of work; then days with nobody there."
        ),
    ] = 24.0,
    agents: Annotated[
        int | None,
        typer.Option(min=2, max=2_000, help="How many agents; 12, or 60 in a scenario."),
    ] = None,
    six_hours: Annotated[
        bool,
        typer.Option(
            "--six-hours", help="Six hours without a person: 30 agents, 2,000 handoffs in chains."
        ),
    ] = False,
    runs: Annotated[
        int, typer.Option(min=1, help="How many simulations, each with the next seed.")
    ] = 1,
    scenario: Annotated[
        str | None,
        typer.Option(
            help="Write the labelled log of market, pipeline, storm, talk or clean instead."
        ),
    ] = None,
    corpus: Annotated[
        Path | None,
        typer.Option(exists=True, dir_okay=False, help="Lines that agents of a scenario say."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="A folder for log.jsonl and labels.json of a scenario."),
    ] = None,
) -> None:
    """Simulate the relay with faults of all kinds; exit 1 if a promise was not kept.

    With `--scenario`, agents without faults play it to the relay, for `nodrop analyze` to judge.
    """
    first = random.SystemRandom().randrange(_SEED_MAX) if seed is None else seed
    if scenario is not None:
        from nodrop_proof.emergence.player import played  # noqa: PLC0415  # the relay: for this verb only

        many = _SCENARIO_AGENTS if agents is None else agents
        script = _script(scenario, many, first, corpus)
        folder = out or Path(f"{scenario}-{many}-{first}")
        _write(session, folder, script, await played(script, first))
        return
    from nodrop.log.memory import MemoryStore  # noqa: PLC0415  # same
    from nodrop_proof.simulate import plan as plans  # noqa: PLC0415  # same
    from nodrop_proof.simulate.simulation import simulate  # noqa: PLC0415  # same

    began = time.perf_counter()
    reports: list[Report] = []
    with _bar(total=runs * hours) as bar:
        for number in range(runs):
            plan = plans.Plan(seed=first + number, hours=hours, agents=agents or _AGENTS)
            if six_hours:
                plan = plans.six_hours(first + number)
            bar.describe(f"seed {plan.seed}")
            passed = number * hours
            reports.append(
                await simulate(
                    plan, store=MemoryStore(), progress=lambda h, p=passed: bar.reach(p + h)
                )
            )
    seconds = round(time.perf_counter() - began, 1)
    if session.as_json:
        screen.document(_document(reports, seconds))
    else:
        _show(reports, seconds)
    if not all(report.ok for report in reports):
        raise typer.Exit(EXIT_FAILED)


def _script(name: str, agents: int, seed: int, corpus: Path | None) -> "Script":
    """Return the script of a scenario, or refuse."""
    from nodrop_proof.emergence import scenarios  # noqa: PLC0415  # for this verb only

    if name not in scenarios.NAMES:
        raise typer.BadParameter(f"choose one of {', '.join(scenarios.NAMES)}")
    if agents < scenarios.AGENTS_MIN:
        raise typer.BadParameter(f"a scenario needs {scenarios.AGENTS_MIN} agents at least")
    text = corpus.read_text(encoding="utf-8").splitlines() if corpus else ()
    return scenarios.make(name, agents=agents, seed=seed, corpus=text)


def _write(session: Session, folder: Path, script: "Script", lines: Sequence[bytes]) -> None:
    """Write the log that a relay made of a scenario, and beside it what was put into it."""
    folder.mkdir(parents=True, exist_ok=True)
    log, labels = folder / "log.jsonl", folder / "labels.json"
    log.write_bytes(b"".join(lines))
    put_in = {"labels": script.labels, "controls": script.controls}
    labels.write_bytes(msgspec.json.format(msgspec.json.encode(put_in), indent=1) + b"\n")
    if session.as_json:
        told = {"log": str(log), "labels": str(labels), "entries": len(lines)}
        screen.document({**told, "put_in": len(script.labels), "controls": len(script.controls)})
        return
    out = screen.console()
    out.print(line(("✓ ", "green"), f"{len(lines):,} entries in {log}"), soft_wrap=True)
    many = f"{len(script.labels)} put in, {len(script.controls)} controls"
    out.print(line(f"  {many}: {labels}"), soft_wrap=True)
    out.print(line(("→ ", "cyan"), f"nodrop analyze {log}"), soft_wrap=True)


def in_virtual_time(main: Coroutine[Any, Any, None]) -> None:
    """Run the verb on a loop that never waits."""
    from nodrop_proof.simulate import loop  # noqa: PLC0415  # for this verb only

    loop.run(main)


# --- what is told -------------------------------------------------------------------------------


class _Bar:
    """How far it is, for a person to see."""

    def __init__(self, bar: Progress, total: float) -> None:
        self._bar = bar
        self._task = bar.add_task("", total=total)

    def describe(self, what: str) -> None:
        self._bar.update(self._task, description=what)

    def reach(self, hours: float) -> None:
        self._bar.update(self._task, completed=hours)


@contextmanager
def _bar(total: float) -> Generator[_Bar]:
    out = screen.console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn())
    with Progress(*columns, TimeElapsedColumn(), console=out, disable=not out.is_terminal) as bar:
        yield _Bar(bar, total)


def _document(reports: "Sequence[Report]", seconds: float) -> dict[str, Any]:
    stored = sum(report.stored for report in reports)
    return {
        "seed": reports[0].seed,
        "runs": len(reports),
        "hours": reports[0].hours,
        "agents": reports[0].agents,
        "steps": sum(report.steps for report in reports),
        "entries": sum(report.entries for report in reports),
        "stored": stored,
        "lost": sum(report.lost for report in reports),
        "duplicated": sum(report.duplicated for report in reports),
        "violations": [
            {"seed": report.seed, "what": report.violation, "again": report.again}
            for report in reports
            if report.violation is not None
        ],
        "bound_95": 3 / stored if stored and all(report.ok for report in reports) else None,
        "heads": [report.head for report in reports],
        "seconds": seconds,
        "figures": dict(sorted(_figures(reports).items())),
    }


def _figures(reports: "Sequence[Report]") -> Counter[str]:
    figures: Counter[str] = Counter()
    for report in reports:
        figures.update(report.figures)
    return figures


def _show(reports: "Sequence[Report]", seconds: float) -> None:
    told = _document(reports, seconds)
    out = screen.console()
    seeds = f"seed {told['seed']}"
    if told["runs"] > 1:
        seeds = f"seeds {told['seed']} to {reports[-1].seed}"
    out.print(
        line(
            ("✓ ", "green") if all(report.ok for report in reports) else ("✗ ", "red"),
            (f"{told['runs'] * told['hours']:g} hours of {told['agents']} agents", "bold"),
            f" in {seconds:g} s, {seeds}",
        )
    )
    table = Table.grid(padding=(0, 2))
    for name in ("steps", "entries", "stored", "lost", "duplicated"):
        zero = name in {"lost", "duplicated"}
        style = ("red" if told[name] else "green") if zero else ""
        table.add_row(styled(name, "bright_black"), styled(told[name], style))
    for name, count in told["figures"].items():
        if name.startswith("faults: "):
            table.add_row(styled(name, "bright_black"), styled(count))
    if told["runs"] == 1:
        table.add_row(styled("head", "bright_black"), styled(told["heads"][0]))
    out.print(table)
    for broken in told["violations"]:
        out.print(line(("✗ ", "red"), broken["what"]), soft_wrap=True)
        out.print(line(("→ ", "cyan"), broken["again"]), soft_wrap=True)
