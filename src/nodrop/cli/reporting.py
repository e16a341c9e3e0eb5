"""`nodrop export` and `nodrop debrief`: the log for other tools, and for people who were away."""

from collections.abc import AsyncGenerator
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
import typer

from nodrop.audit import debrief_page, parquet
from nodrop.audit.debrief import Debrief
from nodrop.audit.debrief import debrief as report_on
from nodrop.audit.rows import Rows
from nodrop.cli import screen
from nodrop.cli.session import Session
from nodrop.model.errors import InvalidRequestError, Problem
from nodrop.protocol import visible
from nodrop.protocol.text import nouns
from nodrop.protocol.times import EXPECTED_MOMENT, format_time, parse_duration, parse_time

_PAGE: Final = 500
_HANDOFFS_MAX: Final = 20_000


class Format(StrEnum):
    """How rows are written."""

    JSONL = "jsonl"
    PARQUET = "parquet"


class Show(StrEnum):
    """How a report is shown."""

    TEXT = "text"
    HTML = "html"


async def export(
    session: Session,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Where to; stdout by default, which takes jsonl only."),
    ] = None,
    form: Annotated[Format, typer.Option("--format", help="jsonl or parquet.")] = Format.JSONL,
    since: Annotated[
        str | None, typer.Option(metavar="DURATION|TIME", help="Only from then on.")
    ] = None,
    text: Annotated[bool, typer.Option(help="With the words of agents.")] = True,
) -> None:
    """Write the log as rows, one per event, for tools that read tables."""
    session.act_as("me")
    if form is Format.PARQUET and out is None:
        problem = Problem(path="--out", message="a Parquet file needs a place")
        raise InvalidRequestError("where to?", errors=(problem,))
    checkpoint = await session.call("checkpoints")
    entries = [entry async for entry in _entries(session, checkpoint["size"], since)]
    rows = Rows(checkpoint["team"], text=text).of(entries)
    if form is Format.PARQUET and out is not None:
        count = parquet.write(out, rows)
    else:
        count = _write_lines(rows, out)
    said = f"{count} {nouns(count, 'events')} up to entry {checkpoint['size']}, head {checkpoint['head']}"
    if out is not None:
        screen.success(said)


def _write_lines(rows: Any, out: Path | None) -> int:
    lines = [visible.escaped(msgspec.json.encode(row).decode()) for row in rows]
    if out is None:
        for line in lines:
            print(line)
    else:
        out.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return len(lines)


async def debrief(
    session: Session,
    since: Annotated[
        str, typer.Option(metavar="DURATION|TIME", help="Where it begins, such as 6h.")
    ] = "6h",
    form: Annotated[Show, typer.Option("--format", help="text or html.")] = Show.TEXT,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Write it here.")] = None,
) -> None:
    """Tell what happened, what is owed, what broke, and what was done about it."""
    session.act_as("me")
    now = session.now()
    began = _began(since, now)
    size = (await session.call("checkpoints"))["size"]
    entries = [entry async for entry in _entries(session, size, began)]
    handoffs = [handoff async for handoff in _standing(session)]
    report = report_on(entries, handoffs, since=began, until=format_time(now))
    if session.as_json:
        screen.document(msgspec.to_builtins(report))
        return
    _show(report, form, out)


def _began(since: str, now: int) -> str:
    """Return the point in time that `--since` means."""
    try:
        at = parse_time(since) if "-" in since else now - parse_duration(since)
    except (ValueError, OverflowError):
        problem = Problem(path="--since", message=EXPECTED_MOMENT)
        raise InvalidRequestError(f"--since: {EXPECTED_MOMENT}", errors=(problem,)) from None
    return format_time(at)


def _show(report: Debrief, form: Show, out: Path | None) -> None:
    made = debrief_page.html(report) if form is Show.HTML else debrief_page.text(report)
    if out is None:
        print(screen.clean(made) if form is Show.TEXT else made)
    else:
        out.write_text(made, encoding="utf-8")
        screen.success(f"written to {out}")


async def _entries(
    session: Session, size: int, since: str | None
) -> AsyncGenerator[dict[str, Any]]:
    """Yield the log up to `size`, from the time on that is asked for."""
    after = 0
    while after < size:
        fields: dict[str, Any] = {"after": after, "limit": min(_PAGE, size - after)}
        if since is not None and after == 0:
            fields["since"] = since
        page = await session.call("log", fields)
        if not page["entries"]:
            return
        for entry in page["entries"]:
            if entry["seq"] <= size:
                yield entry
        after = page["after"]


async def _standing(session: Session) -> AsyncGenerator[dict[str, Any]]:
    """Yield every handoff that somebody still owes something for, or must decide about."""
    before: str | None = None
    for _ in range(_HANDOFFS_MAX // _PAGE):
        fields = {"limit": _PAGE} | ({"before": before} if before else {})
        page = (await session.call("list_handoffs", fields))["handoffs"]
        for handoff in page:
            dead = handoff["state"] in {"failed", "rejected", "expired"}
            if handoff["holder"] is not None or (dead and handoff["decision"] is None):
                yield handoff
        if not page:
            return
        before = page[-1]["id"]
