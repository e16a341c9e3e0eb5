"""`nodrop prove emergence`: the analysis held to labelled logs, and to public data."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from nodrop.protocol.errors import EXIT_FAILED

# What the analysis is made of is an extra, and takes a second to load: for these verbs only.

Data = Annotated[Path | None, typer.Option(exists=True, dir_okay=False)]


def evaluate(
    *,
    sizes: Annotated[
        list[int] | None, typer.Option("--agents", help="How many agents; repeatable.")
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Seeds per size.")] = 10,
    first_seed: Annotated[
        int, typer.Option(min=0, help="The first; 1 to 15 were used for tuning.")
    ] = 20_261_401,
    jobs: Annotated[int, typer.Option(min=1, help="Logs at the same time.")] = 2,
) -> None:
    """Make logs, analyse them, print precision and recall; exit 1 if a target is missed."""
    from nodrop_proof.emergence import evaluate as evaluation  # noqa: PLC0415  # see above

    done = evaluation.evaluate(
        sizes or evaluation.SIZES, first_seed=first_seed, seeds=seeds, jobs=jobs
    )
    print(evaluation.table(done))
    failures = done.failures()
    for failure in failures:
        print(f"NOT REACHED: {failure}")
    if failures:
        raise typer.Exit(EXIT_FAILED)


def same(
    *,
    scenario: Annotated[
        list[str] | None,
        typer.Option(help="market, pipeline, storm, talk or clean; repeatable, all by default."),
    ] = None,
    sizes: Annotated[
        list[int] | None, typer.Option("--agents", help="How many agents; repeatable.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0)] = 20_261_451,
    jobs: Annotated[int, typer.Option(min=1, help="Logs at the same time.")] = 2,
) -> None:
    """Play scenarios to a relay; exit 1 unless its log gives the findings of the written one."""
    from nodrop_proof.emergence import same as both  # noqa: PLC0415  # see above

    names = scenario or both.SCENARIOS
    _require_known(names, both.SCENARIOS)
    pairs = both.compare_all(names, sizes or both.SIZES, seed=seed, jobs=jobs)
    print(both.table(pairs))
    if not all(pair.same for pair in pairs):
        raise typer.Exit(EXIT_FAILED)


def real(*, bpi: Data = None, gas_town: Data = None, tsuchiura: Data = None) -> None:
    """Analyse public data, named by path; exit 1 if a count differs from an independent one.

    `--bpi`: BPI Challenge 2013, incidents (XES). `--gas-town`: events.jsonl of Gas Town.
    `--tsuchiura`: the auctions as CSV. Each plain or .gz.
    """
    from nodrop_proof.emergence import real as evaluation  # noqa: PLC0415  # see above

    held: list[bool] = []
    for title, path, check in (
        ("BPI Challenge 2013", bpi, evaluation.bpi),
        ("Gas Town", gas_town, evaluation.gas_town),
        ("Tsuchiura", tsuchiura, evaluation.tsuchiura),
    ):
        if path is None:
            continue
        try:
            checks = check(path)
        except ModuleNotFoundError as error:
            missing = f"{error.name} is not installed: pip install 'nodrop-proof[oracle]'"
            raise typer.BadParameter(missing) from error
        print(evaluation.table(title, checks))
        held += [each.holds for each in checks]
    if not held:
        raise typer.BadParameter("name a file: --bpi, --gas-town or --tsuchiura")
    if not all(held):
        raise typer.Exit(EXIT_FAILED)


def write(
    scenario: Annotated[str, typer.Argument(help="all, market, pipeline, storm, talk or clean.")],
    *,
    agents: Annotated[int, typer.Option(min=20, max=2_000)] = 60,
    seed: Annotated[int, typer.Option(min=0)] = 1,
    corpus: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, help="Lines that agents say.")
    ] = None,
) -> None:
    """Write the log of a scenario to stdout, one entry per line, in the log's own format."""
    from nodrop_proof.emergence import scenarios  # noqa: PLC0415  # see above
    from nodrop_proof.emergence.writer import Writer  # noqa: PLC0415  # same

    _require_known([scenario], scenarios.NAMES)
    lines = corpus.read_text(encoding="utf-8").splitlines() if corpus else ()
    script = scenarios.make(scenario, agents=agents, seed=seed, corpus=lines)
    sys.stdout.buffer.writelines(Writer(seed).lines(script))


def speed(*, events: Annotated[int, typer.Option(min=10_000)] = 1_000_000) -> None:
    """Time a large log: reading, verifying and structural analysis apart; exit 1 if too slow.

    Structural analysis must take less than 10 s, and all of it less than 1 GiB of memory.
    """
    from nodrop_proof.emergence import speed as measure  # noqa: PLC0415  # see above

    report = measure.measure(events)
    print(measure.table(report))
    if not report.ok:
        raise typer.Exit(EXIT_FAILED)


def _require_known(names: Sequence[str], known: Sequence[str]) -> None:
    if set(names) - set(known):
        raise typer.BadParameter(f"choose one of {', '.join(known)}")
