"""`nodrop prove bench`: Nodrop and its peers do the same durable cycle, side by side."""

import asyncio
import shutil
import signal
import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from nodrop.cli import screen
from nodrop.cli.screen import line, styled
from nodrop.cli.session import Session
from nodrop.protocol.errors import EXIT_FAILED

if TYPE_CHECKING:
    from nodrop_proof.bench.figures import Spread
    from nodrop_proof.bench.finding import Finding
    from nodrop_proof.bench.growth import Growth
    from nodrop_proof.bench.idle import Idle
    from nodrop_proof.bench.report import Report
    from nodrop_proof.bench.system import Progress as Told

_PEERS: Final = ".venv-bench"
"""The environment of the peers, beside the one this runs in."""
_STORES: Final = ("sqlite", "postgres")
_WHAT: Final = {
    "peers": "Nodrop and its peers, in turn",
    "growth": "stores with a past",
    "idle": "memory, idle processor time and delivery",
    "finding": "a team of ten thousand",
}


def _known(what: str) -> str:
    if what not in _WHAT:
        raise typer.BadParameter(f"expected one of {', '.join(_WHAT)}")
    return what


def _store(name: str) -> str:
    if name not in _STORES:
        raise typer.BadParameter(f"expected one of {', '.join(_STORES)}")
    return name


def _counts(text: str | None) -> str | None:
    if text is not None and not all(part.strip().isdecimal() for part in text.split(",")):
        raise typer.BadParameter("expected whole numbers, separated by commas")
    return text


async def bench(
    session: Session,
    what: Annotated[
        str,
        typer.Argument(
            metavar="WHAT",
            callback=_known,
            help="; ".join(f"{name}: {said}" for name, said in _WHAT.items()) + ".",
        ),
    ] = "peers",
    *,
    rounds: Annotated[int, typer.Option(min=1, help="How often each gets its turn.")] = 3,
    seconds: Annotated[
        float, typer.Option(min=0.1, help="How long a measurement takes, after a warm-up.")
    ] = 3.0,
    only: Annotated[
        str | None,
        typer.Option(help="Systems, separated by commas; all by default. A module of yours, too."),
    ] = None,
    callers: Annotated[
        str | None,
        typer.Option(
            callback=_counts,
            help="Numbers of callers; by default those that each system is meant for.",
        ),
    ] = None,
    past: Annotated[
        str, typer.Option(callback=_counts, help="For growth: numbers of past handoffs.")
    ] = "0,100000,1000000",
    store: Annotated[
        str, typer.Option(callback=_store, help="For growth: sqlite, or postgres.")
    ] = "sqlite",
    python: Annotated[
        Path | None,
        typer.Option(help=f"The interpreter of the peers' environment; {_PEERS} by default."),
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option(help="Where the databases go. Growth leaves its stores there, for next time."),
    ] = None,
    write: Annotated[
        Path | None, typer.Option(help="Renew benchmarks.md, .json and .svg in this directory.")
    ] = None,
) -> None:
    """Measure the durable cycle in interleaved rounds; exit 1 if one was lost."""
    with _working_in(folder, keep=what == "growth") as place:
        match what:
            case "growth":
                came = await _growth(session, place, _numbers(past), rounds, seconds, store=store)
            case "idle":
                came = await _idle(session, place)
            case "finding":
                came = await _finding(place)
            case _:
                came = await _peers(
                    place,
                    systems=_systems(only),
                    callers=None if callers is None else _numbers(callers),
                    rounds=rounds,
                    seconds=seconds,
                    python=python,
                )
    if write is not None:
        from nodrop_proof.bench import results  # noqa: PLC0415  # for this verb only

        results.write(write, came)
    if session.as_json:
        screen.document(came.document())
    else:
        _show(came)
    if not came.ok:
        raise typer.Exit(EXIT_FAILED)


# --- what is measured ---------------------------------------------------------------------------
# Imported late: the measurements load relay and network, and other verbs need neither.


def _systems(only: str | None) -> tuple[str, ...]:
    from nodrop_proof.bench import system  # noqa: PLC0415  # see above

    known = system.names()
    chosen = known if only is None else tuple(name.strip() for name in only.split(","))
    if strange := sorted({name for name in chosen if "." not in name} - set(known)):
        told = f"{', '.join(strange)}: expected some of {', '.join(known)}"
        raise typer.BadParameter(told, param_hint="--only")
    return chosen


def _numbers(text: str) -> list[int]:
    return sorted({int(part) for part in text.split(",")})


async def _peers(
    place: Path,
    *,
    systems: tuple[str, ...],
    callers: list[int] | None,
    rounds: int,
    seconds: float,
    python: Path | None,
) -> "Report":
    from nodrop_proof.bench import rounds as measuring  # noqa: PLC0415  # see above
    from nodrop_proof.bench.driving import Window  # noqa: PLC0415  # see above
    from nodrop_proof.bench.plan import Plan  # noqa: PLC0415  # see above
    from nodrop_proof.bench.stage import Environment  # noqa: PLC0415  # see above
    from nodrop_proof.bench.system import Load  # noqa: PLC0415  # see above

    peers = python or Path(sys.prefix).parent / _PEERS / "bin" / "python"
    plan = Plan(
        systems=systems,
        folder=place,
        loads=None if callers is None else tuple(Load(callers=number) for number in callers),
        rounds=rounds,
        window=Window(warm_up_seconds=min(1.0, seconds), seconds=seconds),
        peers=Environment(python=str(peers)) if peers.exists() else None,
    )
    with _bar() as progress:
        return await measuring.run(plan, progress)


async def _growth(
    session: Session, place: Path, counts: list[int], rounds: int, seconds: float, *, store: str
) -> "Growth":
    from nodrop_proof.bench import growth  # noqa: PLC0415  # see above
    from nodrop_proof.bench.driving import Window  # noqa: PLC0415  # see above

    plan = growth.GrowthPlan(
        past=tuple(counts),
        store=store,
        folder=place,
        now_ms=session.now(),
        rounds=rounds,
        window=Window(warm_up_seconds=min(1.0, seconds), seconds=seconds),
    )
    with _bar() as progress:
        return await growth.run(plan, progress)


async def _idle(session: Session, place: Path) -> "Idle":
    from nodrop_proof.bench import idle  # noqa: PLC0415  # see above

    with _bar() as progress:
        return await idle.run(idle.IdlePlan(folder=place, now_ms=session.now()), progress)


async def _finding(place: Path) -> "Finding":
    from nodrop_proof.bench import finding  # noqa: PLC0415  # see above

    with _bar() as progress:
        return await finding.run(finding.FindingPlan(folder=place), progress)


@contextmanager
def _working_in(folder: Path | None, *, keep: bool) -> Generator[Path]:
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    if keep and folder is not None:
        yield folder.resolve()
        return
    place = Path(tempfile.mkdtemp(prefix="nodrop-bench-", dir=folder))
    place.chmod(0o755)  # a database server may run as somebody else
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)


@contextmanager
def _bar() -> "Generator[Told]":
    running = asyncio.current_task()
    assert running is not None, "a verb runs in a task"
    # As on Ctrl-C: whatever was started is ended first.
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, running.cancel)
    out = screen.console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeElapsedColumn(), console=out, disable=not out.is_terminal) as bar:
        task = bar.add_task("", total=None)

        def progress(what: str, done: int, total: int) -> None:
            bar.update(task, description=what, completed=done, total=total)

        yield progress


# --- what is told -------------------------------------------------------------------------------


def _show(came: "Report | Growth | Idle | Finding") -> None:
    from nodrop_proof.bench.finding import Finding  # noqa: PLC0415  # see above
    from nodrop_proof.bench.growth import Growth  # noqa: PLC0415  # see above
    from nodrop_proof.bench.report import Report  # noqa: PLC0415  # see above

    if came.machine.busy:
        told = f"The machine was busy: load {came.machine.load_average:.1f} on its cores"
        screen.console(stderr=True).print(line(("! ", "yellow"), told), soft_wrap=True)
    match came:
        case Report():
            _show_peers(came)
        case Growth():
            _show_growth(came)
        case Finding():
            _show_finding(came)
        case _:
            _show_idle(came)


def _show_peers(report: "Report") -> None:
    from nodrop_proof.bench.report import OURS  # noqa: PLC0415  # see above

    out = screen.console()
    table = Table(title="The same durable cycle, side by side", title_justify="left")
    table.add_column("system")
    for name in ("callers", "cycles/s", "p50 ms", "p99 ms", "CPU ms/cycle"):
        table.add_column(name, justify="right")
    for way in OURS:
        table.add_column(f"{way.removeprefix('nodrop-')} / it", justify="right")
    before = None
    for each in report.lines():
        if before not in {None, each.load}:
            table.add_section()
        before = each.load
        about = report.about[each.system]
        table.add_row(
            styled(about.title, "bold" if about.ours else ""),
            styled(each.load.name),
            _spread(each.rate, 0),
            _median(each.p50_ms, 1),
            _median(each.p99_ms, 1),
            _median(each.cpu_ms, 2),
            *(_spread(each.ours_over_it.get(way), 1) for way in OURS),
        )
    out.print(table)
    for name, missing in report.absent.items():
        out.print(line(("· ", "yellow"), f"{name}: not installed ({', '.join(missing)})"))
    for each in report.lines():
        _show_failures(f"{report.about[each.system].title}, {each.load.name}", each.failures)


def _show_growth(growth: "Growth") -> None:
    table = Table(title="The cycle on stores with a past", title_justify="left")
    for name in ("past", "MB", "callers", "cycles/s", "p50 ms", "p99 ms", "of the emptiest"):
        table.add_column(name, justify="right")
    for each in growth.lines():
        table.add_row(
            f"{each.past:,}",
            f"{growth.megabytes[each.past]:,}",
            each.load.name,
            _spread(each.rate, 0),
            _median(each.p50_ms, 1),
            _median(each.p99_ms, 1),
            _spread(each.over_least, 2),
        )
    screen.console().print(table)
    for each in growth.lines():
        _show_failures(f"{each.past:,} past handoffs, {each.load.name}", each.failures)


def _show_idle(idle: "Idle") -> None:
    table = Table.grid(padding=(0, 2))
    for what, mb, share in (
        ("idle", idle.idle_mb, None),
        (f"{idle.open:,} open handoffs", idle.open_mb, None),
        (f"{idle.waiting:,} waiting callers", idle.waiting_mb, idle.waiting_cpu),
        (f"{idle.agents:,} connected agents", idle.agents_mb, idle.agents_cpu),
    ):
        cpu = "" if share is None else f"{share * 100:.1f} % of a core"
        table.add_row(styled(what, "bright_black"), f"{mb:,.0f} MiB", cpu)
    told = f"p50 {idle.delivery_p50_ms:.2f} ms, p99 {idle.delivery_p99_ms:.2f} ms"
    table.add_row(styled("delivery beyond the commit", "bright_black"), told)
    screen.console().print(table)


def _show_finding(finding: "Finding") -> None:
    table = Table(title="Finding in a large team, medians", title_justify="left")
    for name in ("agents", "offer it", "find ms", "find again ms", "hand off ms", "start ms"):
        table.add_column(name, justify="right")
    for each in finding.timings:
        took = (each.find_ms, each.find_again_ms, each.route_ms, each.start_ms)
        table.add_row(f"{each.agents:,}", f"{each.offering:,}", *(f"{ms:,.1f}" for ms in took))
    screen.console().print(table)


def _show_failures(what: str, failures: tuple[str, ...]) -> None:
    for failure in failures:
        told = line(("✗ ", "red"), f"{what} callers, {failure}")
        screen.console().print(told, soft_wrap=True)


def _spread(spread: "Spread | None", digits: int) -> str:
    if spread is None:
        return ""
    low, high = f"{spread.low:,.{digits}f}", f"{spread.high:,.{digits}f}"
    return f"{spread.median:,.{digits}f} ({low}–{high})"  # noqa: RUF001  # a range


def _median(spread: "Spread | None", digits: int) -> str:
    return "" if spread is None else f"{spread.median:,.{digits}f}"
