"""Claimed against observed reliability: what manifests promise, and what came of it."""

from math import ceil
from typing import Final

import polars as pl

from nodrop.analysis.detectors.statistics import wilson
from nodrop.analysis.findings import Finding, Found, Severity, TooLittle, Value, evidence
from nodrop.analysis.record import CANCELLED, COMPLETED, NONE, REJECTED, Record

HIGH_GAP: Final = 0.10
POWER: Final = 15.0
"""Handoffs needed are about this over the squared gap, times the variance: 90 % power."""


class Observed(Value, frozen=True, kw_only=True):
    """An agent's record at one capability."""

    agent: str
    capability: str
    claimed: float | None
    n: int
    completed: int
    rate: float
    lowest: float
    """Of the interval that holds the true rate, with 99.9 % confidence."""
    highest: float


def observed(record: Record) -> list[Observed]:
    """Return how often each agent completed what it took on. Rejections are no promise broken."""
    frame = _ended(record)
    rows: list[Observed] = []
    for row in (
        frame.group_by("recipient", "capability")
        .agg(n=pl.len(), completed=(pl.col("outcome") == COMPLETED).sum())
        .sort("recipient", "capability")
        .iter_rows(named=True)
    ):
        low, high = wilson(row["completed"], row["n"])
        rows.append(
            Observed(
                agent=record.agents[row["recipient"]],
                capability=record.capabilities[row["capability"]],
                claimed=record.claims.get((row["recipient"], row["capability"])),
                n=row["n"],
                completed=row["completed"],
                rate=round(row["completed"] / row["n"], 4),
                lowest=round(low, 4),
                highest=round(high, 4),
            )
        )
    return rows


def detect(record: Record) -> Found:
    """Return the agents that keep less than they claim."""
    found = Found()
    frame = _ended(record)
    for each in observed(record):
        if each.claimed is None:
            continue
        found.tested += 1
        if each.highest < each.claimed:
            found.findings.append(_finding(record, frame, each))
        elif each.rate < each.claimed:
            gap = each.claimed - each.rate
            needed = ceil(POWER * each.claimed * (1 - each.claimed) / gap**2)
            if needed > each.n:
                why = f"{each.rate:.1%} of {each.n}, and {each.claimed:.1%} claimed: about {needed} would tell"
                found.too_little.append(
                    TooLittle(
                        detector="reliability",
                        subject=f"{each.agent} for {each.capability}",
                        why=why,
                    )
                )
    return found


def _ended(record: Record) -> pl.DataFrame:
    frame = record.handoffs.frame("recipient", "capability", "outcome", "last_seq", "ended_at")
    return frame.filter(
        (pl.col("outcome") != NONE)
        & (pl.col("outcome") != CANCELLED)
        & (pl.col("outcome") != REJECTED)
    )


def _finding(record: Record, frame: pl.DataFrame, each: Observed) -> Finding:
    claimed = each.claimed or 0.0
    broken = frame.filter(
        (pl.col("recipient") == record.agents.known(each.agent))
        & (pl.col("capability") == record.capabilities.known(each.capability))
        & (pl.col("outcome") != COMPLETED)
    )
    return Finding(
        detector="reliability",
        severity=Severity.HIGH if claimed - each.rate > HIGH_GAP else Severity.MEDIUM,
        subject=f"{each.agent} for {each.capability}",
        agents=(each.agent,),
        says=f"{each.agent} claims {claimed:.1%} for {each.capability}, and completed "
        f"{each.rate:.1%} of {each.n}",
        effect={"claimed": claimed, "observed": each.rate, "at_most": each.highest},
        tested="the upper end of the 99.9 % interval (Wilson) is below what the manifest claims",
        benign=("a part of the work that was harder than usual", "payloads that nobody could use"),
        evidence=evidence(broken["last_seq"].to_list()),
        entries=len(broken),
        since=int(broken["ended_at"].min() or 0),  # pyright: ignore[reportArgumentType]  # a column of whole numbers
        until=int(broken["ended_at"].max() or 0),  # pyright: ignore[reportArgumentType]  # same
        action=f"nodrop find {each.capability}",
    )
