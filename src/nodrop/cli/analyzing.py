"""`nodrop analyze`: what emerges among many agents, from the relay's log or from a file."""

import time
from collections.abc import AsyncGenerator, Callable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
import typer

from nodrop.audit.verify.chain import Checkpoint
from nodrop.audit.verify.finding import Verdict
from nodrop.audit.verify.verifier import Verifier
from nodrop.cli import screen
from nodrop.cli.session import Session
from nodrop.model.errors import InvalidRequestError, Problem
from nodrop.protocol import extras
from nodrop.protocol.errors import EXIT_FAILED
from nodrop.protocol.times import parse_time

if TYPE_CHECKING:
    from nodrop.analysis.analyze import Analysis
    from nodrop.analysis.record import Record

_PAGE: Final = 500


class Form(StrEnum):
    """What wrote the log."""

    NODROP = "nodrop"
    BEADS = "beads"
    XES = "xes"
    OTEL = "otel"
    JSONL = "jsonl"


class FailOn(StrEnum):
    """The severity from which on the exit code says so."""

    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"


async def analyze(
    session: Session,
    log: Annotated[
        str | None,
        typer.Argument(
            metavar="LOG|URL", help="A saved log, or the address of a relay; this one by default."
        ),
    ] = None,
    *,
    form: Annotated[Form, typer.Option("--from", help="What wrote the log.")] = Form.NODROP,
    baseline: Annotated[
        str | None,
        typer.Option(
            metavar="TIME|LOG",
            help="Up to when, or in which earlier log, all was as usual; the beginning by default.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="A folder for findings.json and report.html."),
    ] = None,
    fail_on: Annotated[
        FailOn | None, typer.Option(help="Exit with 1 if a finding is as severe as this.")
    ] = None,
    structure_only: Annotated[
        bool, typer.Option("--structure-only", help="Leave out prices and language.")
    ] = False,
) -> None:
    """Find loops, storms, cliques, coordinated numbers and private language in a log.

    Verifies the log first. A finding names agents and entries; it is a reason to look.
    """
    run, record = _loaded()
    began = time.perf_counter()
    if log is None or "://" in log:
        verdict = await _from_relay(session, log, record, baseline)
    else:
        verdict = _from_files(session, Path(log), form, record, baseline)
    if not record.events:
        problem = Problem(path=log or "log", message="it holds no events")
        raise InvalidRequestError("there is nothing to analyze", errors=(problem,))
    read = time.perf_counter() - began
    analysis = run(record, structure_only=structure_only)
    spent = time.perf_counter() - began - read
    said = _said(verdict, read, spent)
    _show(session, analysis, record, said=said, source=log or "The relay's log", out=out)
    if fail_on is not None and _severe(analysis, fail_on):
        raise typer.Exit(EXIT_FAILED)
    if verdict is not None and not verdict.holds:
        raise typer.Exit(EXIT_FAILED)


def _loaded() -> "tuple[Callable[..., Analysis], Record]":
    try:
        from nodrop.analysis.analyze import analyze as run  # noqa: PLC0415  # an extra
        from nodrop.analysis.record import Record  # noqa: PLC0415  # same
    except ImportError as error:
        raise extras.missing_here(f"a part of the analysis ({error})", "analyze") from error
    return run, Record()


# --- reading ------------------------------------------------------------------------------------


def _from_files(
    session: Session, path: Path, form: Form, record: "Record", baseline: str | None
) -> Verdict | None:
    if baseline is not None and Path(baseline).exists():
        _file(session, Path(baseline), form, record)
        record.baseline_until = record.last_at
    verdict = _file(session, path, form, record)
    if baseline is not None and record.baseline_until is None:
        record.baseline_until = _time(baseline)
    return verdict


def _file(session: Session, path: Path, form: Form, record: "Record") -> Verdict | None:
    from nodrop.analysis.sources import beads, otel, rows, xes  # noqa: PLC0415  # an extra

    match form:
        case Form.NODROP:
            return _own(session, path, record)
        case Form.BEADS:
            beads.read(path, record)
        case Form.XES:
            xes.read(path, record)
        case Form.OTEL:
            otel.read(path, record)
        case Form.JSONL:
            rows.read(path, record)
    return None


def _own(session: Session, path: Path, record: "Record") -> Verdict:
    """Read a saved log twice: what verifying remembers is gone before the record grows."""
    from nodrop.analysis.sources import log  # noqa: PLC0415  # an extra
    from nodrop.analysis.sources.files import not_a_log, open_log  # noqa: PLC0415  # same

    verifier = Verifier(session.settings.team or "default")
    decode = msgspec.json.Decoder(dict[str, Any]).decode
    with open_log(path) as file:
        for number, line in enumerate(file, 1):
            try:
                verifier.read(decode(line))
            except msgspec.MsgspecError as error:
                raise not_a_log(path, number, Form.NODROP, error) from error
    verdict = verifier.verdict()
    del verifier
    read = log.reader(record)
    with open_log(path) as file:
        for number, line in enumerate(file, 1):
            try:
                read(line)
            except (msgspec.MsgspecError, ValueError) as error:
                raise not_a_log(path, number, Form.NODROP, error) from error
    return verdict


async def _from_relay(
    session: Session, url: str | None, record: "Record", baseline: str | None
) -> Verdict:
    from nodrop.analysis.sources import log  # noqa: PLC0415  # an extra

    if url is not None:
        session.visit(url)
    session.act_as("me")
    now = msgspec.convert(await session.call("checkpoints"), Checkpoint)
    verifier = Verifier(now.team, relay_key=now.public_key)
    verifier.expect(now)
    source = log.Source(record)
    async for entry in _entries(session, now.size):
        verifier.read(entry)
        source.read(log.line(entry))
    if baseline is not None:
        record.baseline_until = _time(baseline)
    return verifier.verdict()


async def _entries(session: Session, size: int) -> AsyncGenerator[dict[str, Any]]:
    after = 0
    while after < size:
        page = await session.call("log", {"after": after, "limit": min(_PAGE, size - after)})
        if not page["entries"]:
            return
        for entry in page["entries"]:
            yield entry
        after = page["after"]


def _time(written: str) -> int:
    try:
        return parse_time(written)
    except ValueError as error:
        problem = Problem(path="--baseline", message=f"no file, and no time: {error}")
        raise InvalidRequestError("it cannot be read", errors=(problem,)) from None


# --- telling ------------------------------------------------------------------------------------


def _said(verdict: Verdict | None, read: float, spent: float) -> str:
    took = f"Read in {read:.1f} s, analysed in {spent:.1f} s."
    if verdict is None:
        return f"A log of another system has no chain of hashes to verify. {took}"
    if verdict.finding is not None:
        found = verdict.finding
        return (
            f"THE LOG DOES NOT HOLD at entry {found.seq} ({found.why}): nothing below is evidence. "
            f"{took}"
        )
    return f"The log holds: {verdict.entries:,} entries, head {verdict.head[:16]}. {took}"


def _show(
    session: Session,
    analysis: "Analysis",
    record: "Record",
    *,
    said: str,
    source: str,
    out: Path | None,
) -> None:
    from nodrop.analysis import report  # noqa: PLC0415  # an extra
    from nodrop.analysis.analyze import to_json  # noqa: PLC0415  # same

    if session.as_json:
        screen.document(msgspec.json.decode(to_json(analysis)))
    else:
        print(screen.clean(report.text(analysis, verified=said)))
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        (out / "findings.json").write_bytes(to_json(analysis))
        page = report.html(
            analysis, record, verified=said, source=source if "://" in source else Path(source).name
        )
        (out / "report.html").write_text(page, encoding="utf-8")
        screen.success(f"written to {out / 'report.html'} and findings.json")


def _severe(analysis: "Analysis", fail_on: FailOn) -> bool:
    from nodrop.analysis.findings import RANK, Severity  # noqa: PLC0415  # an extra

    worst = analysis.worst()
    return worst is not None and RANK[worst] >= RANK[Severity(fail_on)]
