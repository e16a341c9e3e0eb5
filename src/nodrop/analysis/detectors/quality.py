"""Handoff quality: what receivers had to ask again, counter, reject, fail or send back, by sender."""

from typing import Final

import polars as pl

from nodrop.analysis.detectors.statistics import discoveries, wilson
from nodrop.analysis.findings import Finding, Found, Severity, TooLittle, Value, evidence
from nodrop.analysis.record import FAILED, REJECTED, Record
from nodrop.model.tails import binomial_tail

OFFERS_MIN: Final = 20
LIFT: Final = 2.0
"""Times the rate of the other senders."""
FALSE_SHARE: Final = 0.01


class Quality(Value, frozen=True, kw_only=True):
    """What became of a sender's handoffs for one capability: counts of handoffs."""

    sender: str
    capability: str
    offers: int
    asked: int
    """The recipient had to ask something."""
    countered: int
    """The recipient wanted other terms."""
    rejected: int
    failed: int
    returned: int
    """The recipient handed the chain back to its sender."""
    troubled: int
    """At least one of these."""


def qualities(record: Record) -> list[Quality]:
    """Return the quality of handoffs by sender and capability."""
    counts = (
        _frame(record)
        .group_by("sender", "capability")
        .agg(
            pl.len().alias("offers"),
            *(pl.col(name).sum() for name in _KINDS),
            pl.col("troubled").sum(),
        )
        .sort("sender", "capability")
    )
    return [
        Quality(
            sender=record.agents[row.pop("sender")],
            capability=record.capabilities[row.pop("capability")],
            **row,
        )
        for row in counts.iter_rows(named=True)
    ]


_KINDS: Final = ("asked", "countered", "rejected", "failed", "returned")


def _frame(record: Record) -> pl.DataFrame:
    """Return one row per handoff, with what went wrong."""
    handoffs = record.handoffs.frame(
        "chain",
        "sender",
        "recipient",
        "capability",
        "offered_seq",
        "outcome",
        "again",
        "offered_at",
    ).with_row_index("handoff")
    questions = record.questions.frame("handoff", "kind")
    asked = set(questions.filter(pl.col("kind") == 0)["handoff"].to_list())
    countered = set(questions.filter(pl.col("kind") == 1)["handoff"].to_list())
    returned = _returned(record)
    numbers = range(len(handoffs))
    return handoffs.with_columns(
        asked=pl.Series([n in asked for n in numbers], dtype=pl.Boolean),
        countered=pl.Series([n in countered for n in numbers], dtype=pl.Boolean),
        returned=pl.Series([n in returned for n in numbers], dtype=pl.Boolean),
        rejected=pl.col("outcome") == REJECTED,
        failed=pl.col("outcome") == FAILED,
    ).with_columns(troubled=pl.any_horizontal(*_KINDS))


def _returned(record: Record) -> set[int]:
    """Return the handoffs whose recipient handed the same chain back to their sender."""
    hops = record.hops
    brought: dict[tuple[int, int, int], int] = {}
    returned: set[int] = set()
    rows = zip(hops["chain"], hops["sender"], hops["recipient"], hops["handoff"], strict=True)
    for chain, sender, recipient, handoff in rows:
        if (first := brought.pop((chain, recipient, sender), None)) is not None:
            returned.add(first)
        elif sender != recipient:
            brought[chain, sender, recipient] = handoff
    return returned


def detect(record: Record) -> Found:
    """Return the senders whose handoffs give more trouble than those of others."""
    frame = _frame(record)
    found = Found()
    every = [q for q in qualities(record) if q.capability]
    tested: list[tuple[Quality, float]] = []
    for capability in sorted({q.capability for q in every}):
        part = [q for q in every if q.capability == capability]
        offers, troubled = sum(q.offers for q in part), sum(q.troubled for q in part)
        for q in part:
            others = offers - q.offers
            if q.offers < OFFERS_MIN or others < OFFERS_MIN:
                continue
            tested.append((q, max((troubled - q.troubled) / others, 1 / others)))
    if every and not tested:
        found.too_little.append(
            TooLittle(
                detector="handoff-quality",
                subject="log",
                why=f"no sender has {OFFERS_MIN} handoffs for a capability that others ask for too",
            )
        )
    found.tested = len(tested)
    p_values = [binomial_tail(q.troubled, q.offers, usual) for q, usual in tested]
    for (q, usual), stands in zip(tested, discoveries(p_values, FALSE_SHARE), strict=True):
        if (
            stands
            and q.troubled >= LIFT * usual * q.offers
            and wilson(q.troubled, q.offers)[0] > usual
        ):
            found.findings.append(_finding(record, frame, q, usual))
    return found


def _finding(record: Record, frame: pl.DataFrame, q: Quality, usual: float) -> Finding:
    rows = frame.filter(
        (pl.col("sender") == record.agents.known(q.sender))
        & (pl.col("capability") == record.capabilities.known(q.capability))
        & pl.col("troubled")
    )
    most = max(_KINDS, key=lambda kind: getattr(q, kind))
    words = {
        "asked": "the recipient had to ask",
        "countered": "the recipient wanted other terms",
        "rejected": "it was rejected",
        "failed": "it failed",
        "returned": "it came back",
    }
    rate = q.troubled / q.offers
    return Finding(
        detector="handoff-quality",
        severity=Severity.MEDIUM,
        subject=f"{q.sender} for {q.capability}",
        agents=(q.sender,),
        says=f"{rate:.0%} of what {q.sender} hands off for {q.capability} gives trouble, and "
        f"{usual:.0%} of others'; mostly {words[most]} ({getattr(q, most)} of {q.offers})",
        effect={"rate": round(rate, 4), "usual": round(usual, 4)},
        tested=f"at least {LIFT:g} times the rate of other senders, binomial tail, false discovery "
        f"rate {FALSE_SHARE}, {OFFERS_MIN} offers",
        benign=("it sends the harder cases", "questions are a part of this work"),
        evidence=evidence(rows["offered_seq"].to_list()),
        entries=len(rows),
        since=int(rows["offered_at"][0]),
        until=int(rows["offered_at"][-1]),
    )
