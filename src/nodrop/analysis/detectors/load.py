"""Load: retry storms, escalation storms, hot spots, bottlenecks, and duplicated effort."""

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from nodrop.analysis.detectors.statistics import discoveries
from nodrop.analysis.findings import Finding, Found, Severity, TooLittle, evidence
from nodrop.analysis.record import COMPLETED, NONE, Numbers, Record
from nodrop.model.tails import binomial_tail, poisson_tail

_MINUTE: Final = 60_000
WINDOWS: Final = 240
"""Windows that a log is cut into, unless that makes them shorter than a minute."""
WINDOW_MAX_MS: Final = 6 * 60 * _MINUTE
ATTEMPTS: Final = 8
"""Attempts at one capability that a window holds on average, at least."""
RETRY_SHARE: Final = 0.10
"""Of all attempts; the retry budget of most clients."""
RETRY_LIFT: Final = 3.0
"""Times the usual share."""
RETRIES_MIN: Final = 8
ESCALATION_LIFT: Final = 4.0
ESCALATIONS_MIN: Final = 8
"""In two windows together."""
EACH_MIN: Final = 2
STORM_WINDOWS: Final = 2
"""Windows in a row that make a storm of escalations."""
FALSE_SHARE: Final = 0.001
TRIMMED: Final = 0.8
"""The quieter windows, which say what is usual."""
HOT_LIFT: Final = 3.0
HOT_P: Final = 1e-6
PEERS_MIN: Final = 3
HANDOFFS_MIN: Final = 50
WAIT_LIFT: Final = 5.0
BUSY: Final = 0.9
TOGETHER_MIN: Final = 2
TOGETHER_MEDIUM: Final = 3
_HIGH_SHARE: Final = 0.3


def detect(record: Record) -> Found:
    """Return what was too much at one time or in one place."""
    found = Found()
    width = window_ms(record)
    _retry_storms(record, width, found)
    _escalation_storms(record, width, found)
    _hot_spots(record, found)
    _bottlenecks(record, found)
    _duplicated(record, found)
    return found


def window_ms(record: Record) -> int:
    """Return the length of a window."""
    span = record.last_at - (record.first_at or 0)
    return int(min(max(span // WINDOWS, _MINUTE), WINDOW_MAX_MS))


# --- storms -------------------------------------------------------------------------------------


def _retry_storms(record: Record, shortest: int, found: Found) -> None:
    frame = record.deliveries.frame("seq", "at", "agent", "capability", "attempt")
    if frame.is_empty():
        return
    begin = record.first_at or 0
    span = record.last_at - begin
    for key, attempts in frame.group_by("capability", maintain_order=True):
        capability = int(key[0])
        # Few attempts take longer windows, so that one says something.
        width = min(max(shortest, span * ATTEMPTS // len(attempts)), WINDOW_MAX_MS)
        part = (
            attempts.group_by(window=(pl.col("at") - begin) // width)
            .agg(n=pl.len(), retries=(pl.col("attempt") > 1).sum())
            .sort("window")
        )
        windows, n, retries = (part[name].to_numpy() for name in ("window", "n", "retries"))
        usual = max(_usual_share(n, retries), 0.01)
        bar = max(RETRY_SHARE, RETRY_LIFT * usual)
        p_values = [
            binomial_tail(int(r), int(k), max(usual, RETRY_SHARE / 2))
            for k, r in zip(n, retries, strict=True)
        ]
        stands = discoveries(p_values, FALSE_SHARE)
        found.tested += len(p_values)
        over = [
            int(w)
            for w, k, r, stand in zip(windows, n, retries, stands, strict=True)
            if stand and r >= RETRIES_MIN and r > bar * k
        ]
        for first, last in _runs(over):
            since = begin + first * width
            rows = attempts.filter(
                pl.col("at").is_between(since, begin + (last + 1) * width, closed="left")
            )
            again = rows.filter(pl.col("attempt") > 1)
            share = len(again) / len(rows)
            name = record.capabilities[capability] or "(no capability)"
            found.findings.append(
                Finding(
                    detector="retry-storm",
                    severity=Severity.HIGH if share > _HIGH_SHARE else Severity.MEDIUM,
                    subject=f"{name} from {since}",
                    agents=_most(record, again["agent"].to_numpy()),
                    says=f"{share:.0%} of the attempts at {name} were retries; {usual:.0%} is usual",
                    effect={"share": round(share, 4), "usual": round(usual, 4)},
                    tested=f"over {RETRY_SHARE:.0%} and {RETRY_LIFT:g} times the usual share in a "
                    f"window, binomial tail, false discovery rate {FALSE_SHARE}",
                    benign=(
                        "a service downstream was away, and the retries were few enough for it",
                    ),
                    evidence=evidence(again["seq"].to_list()),
                    entries=len(again),
                    since=since,
                    until=begin + (last + 1) * width,
                    action="nodrop log --json | grep handoff.returned",
                )
            )


def _usual_share(n: Numbers, retries: Numbers) -> float:
    """Return the share of retries in the quieter windows."""
    order = np.argsort(retries / n, kind="stable")
    kept = order[: max(int(len(order) * TRIMMED), 1)]
    return float(retries[kept].sum() / n[kept].sum())


def _escalation_storms(record: Record, width: int, found: Found) -> None:
    frame = record.escalations.frame()
    if frame.is_empty():
        return
    begin = record.first_at or 0
    windows = (record.last_at - begin) // width + 1
    for key, part in frame.group_by("capability", maintain_order=True):
        capability = int(key[0])
        places = ((part["at"].to_numpy() - begin) // width).astype(np.int64)
        counts = np.bincount(places, minlength=windows)
        expected = _expected(counts, _work_before(record, capability, width, windows))
        usual = float(np.median(expected))
        # A storm lasts: two windows in a row are one test, and both have some.
        both, usually = counts[:-1] + counts[1:], expected[:-1] + expected[1:]
        p_values = [
            poisson_tail(int(k), float(e)) if k else 1.0 for k, e in zip(both, usually, strict=True)
        ]
        stands = discoveries(p_values, FALSE_SHARE)
        found.tested += len(p_values)
        over = {
            w + more
            for w, k in enumerate(both)
            for more in range(STORM_WINDOWS)
            if stands[w]
            and k >= ESCALATIONS_MIN
            and k >= ESCALATION_LIFT * usually[w]
            and min(counts[w], counts[w + 1]) >= EACH_MIN
        }
        for first, last in _runs(sorted(over)):
            since, until = begin + first * width, begin + (last + 1) * width
            rows = part.filter(pl.col("at").is_between(since, until, closed="left"))
            name = record.capabilities[capability] or "(no capability)"
            rate = len(rows) / (last - first + 1)
            found.findings.append(
                Finding(
                    detector="escalation-storm",
                    severity=Severity.HIGH,
                    subject=f"{name} from {since}",
                    agents=_most(record, rows["agent"].to_numpy()),
                    says=f"{len(rows)} escalations about {name} in a row, "
                    f"{rate / usual:.0f} times what is usual",
                    effect={"per_window": round(rate, 2), "usual": round(usual, 2)},
                    tested=f"at least {ESCALATION_LIFT:g} times the usual count in "
                    f"{STORM_WINDOWS} windows in a row, Poisson tail",
                    benign=("a holiday or a planned pause of the agents that are asked",),
                    evidence=evidence(rows["seq"].to_list()),
                    entries=len(rows),
                    since=since,
                    until=until,
                    action="nodrop agents",
                )
            )


def _work_before(record: Record, capability: int, width: int, windows: int) -> Numbers:
    """Return how much work came in each window or shortly before: what escalates came earlier."""
    hops = record.hops
    at = hops.numbers("at")[hops.numbers("capability") == capability]
    offered = np.bincount((at - (record.first_at or 0)) // width, minlength=windows)[:windows]
    before = max(_MINUTE * 60 // width, 1)
    padded = np.concatenate([np.zeros(before, dtype=np.int64), offered])
    return np.lib.stride_tricks.sliding_window_view(padded, before + 1).max(axis=1)


def _expected(counts: Numbers, work: Numbers) -> NDArray[np.float64]:
    """Return how many escalations each window would have, as many as usual per piece of work."""
    order = np.argsort(counts / np.maximum(work, 1), kind="stable")
    kept = order[: max(int(len(order) * TRIMMED), 1)]
    rate = counts[kept].sum() / max(work[kept].sum(), 1)
    # With none in most windows, one in five of them is taken as usual.
    return np.maximum(rate * work, 0.2)


def _runs(windows: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield first and last of each run; one window between two does not part them."""
    first: int | None = None
    last = 0
    for window in sorted(windows):
        if first is None:
            first = window
        elif window > last + 2:
            yield first, last
            first = window
        last = window
    if first is not None:
        yield first, last


def _most(record: Record, agents: Numbers, limit: int = 5) -> tuple[str, ...]:
    numbers, counts = np.unique(agents, return_counts=True)
    order = np.argsort(-counts, kind="stable")[:limit]
    return tuple(record.agents[int(numbers[i])] for i in order)


# --- places -------------------------------------------------------------------------------------


def _per_agent(record: Record) -> pl.DataFrame:
    frame = record.handoffs.frame(
        "capability", "recipient", "offered_at", "accepted_at", "ended_at", "offered_seq"
    )
    return (
        frame.with_columns(
            wait=pl.when(pl.col("accepted_at") != NONE).then(
                pl.col("accepted_at") - pl.col("offered_at")
            ),
            active=pl.when((pl.col("accepted_at") != NONE) & (pl.col("ended_at") != NONE)).then(
                pl.col("ended_at") - pl.col("accepted_at")
            ),
        )
        .group_by("capability", "recipient")
        .agg(
            n=pl.len(),
            wait=pl.col("wait").median(),
            active=pl.col("active").sum(),
            seqs=pl.col("offered_seq").head(20),
            first=pl.col("offered_at").min(),
            last=pl.max_horizontal("ended_at", "offered_at").max(),
        )
        .sort("capability", "recipient")
    )


def _hot_spots(record: Record, found: Found) -> None:
    for key, part in _per_agent(record).group_by("capability", maintain_order=True):
        name = record.capabilities[int(key[0])]
        total, peers = int(part["n"].sum()), len(part)
        if not name or peers < PEERS_MIN or total < HANDOFFS_MIN:
            continue  # without a capability nobody is a peer of another
        found.tested += peers
        for row in part.iter_rows(named=True):
            share = row["n"] / total
            if share < HOT_LIFT / peers or binomial_tail(row["n"], total, 1 / peers) >= HOT_P:
                continue
            agent = record.agents[row["recipient"]]
            found.findings.append(
                Finding(
                    detector="hot-spot",
                    severity=Severity.MEDIUM,
                    subject=f"{agent} for {name}",
                    agents=(agent,),
                    says=f"{agent} gets {share:.0%} of the work for {name}, "
                    f"{share * peers:.1f} times an equal share of {peers} agents",
                    effect={"share": round(share, 4), "peers": peers},
                    tested=f"at least {HOT_LIFT:g} times an equal share, binomial tail below {HOT_P}",
                    benign=(
                        "it is larger or faster than its peers, and routing knows",
                        "senders name it because only it can do this part",
                    ),
                    evidence=evidence(row["seqs"]),
                    entries=row["n"],
                    since=row["first"],
                    until=row["last"],
                    action=f"nodrop find {name}",
                )
            )


def _bottlenecks(record: Record, found: Found) -> None:
    for key, part in _per_agent(record).group_by("capability", maintain_order=True):
        name = record.capabilities[int(key[0])]
        rows = part.filter(pl.col("wait").is_not_null() & (pl.col("n") >= PEERS_MIN))
        if not name or len(rows) < PEERS_MIN:
            continue
        found.tested += len(rows)
        for row in rows.iter_rows(named=True):
            others = rows.filter(pl.col("recipient") != row["recipient"])["wait"].median()
            usual = max(float(np.asarray(others)), 1.0)
            busy = row["active"] / max(row["last"] - row["first"], 1)
            if row["wait"] < WAIT_LIFT * usual or busy < BUSY:
                continue
            agent = record.agents[row["recipient"]]
            found.findings.append(
                Finding(
                    detector="bottleneck",
                    severity=Severity.MEDIUM,
                    subject=f"{agent} for {name}",
                    agents=(agent,),
                    says=f"work for {name} waits {row['wait'] / 1000:.0f} s for {agent}, "
                    f"{row['wait'] / usual:.0f} times as long as for its peers",
                    effect={"wait_ms": row["wait"], "peers_ms": usual, "busy": round(busy, 2)},
                    tested=f"median wait at least {WAIT_LIFT:g} times the peers', busy over {BUSY:.0%}",
                    benign=("it does the harder part of the work",),
                    evidence=evidence(row["seqs"]),
                    entries=row["n"],
                    since=row["first"],
                    until=row["last"],
                    action=f"nodrop find {name}",
                )
            )


def _duplicated(record: Record, found: Found) -> None:
    """The same payload, done for the same capability by several chains at the same time."""
    frame = record.handoffs.frame(
        *("chain", "recipient", "capability", "digest", "offered_at", "ended_at"),
        *("offered_seq", "outcome", "again"),
    ).filter((pl.col("digest") != NONE) & (pl.col("outcome") == COMPLETED) & (pl.col("again") == 0))
    if frame.is_empty():
        if not len(record.handoffs):
            return
        found.too_little.append(
            TooLittle(detector="duplicated-effort", subject="log", why="no payloads to compare")
        )
        return
    several = frame.group_by("digest", "capability").agg(
        pl.all(), chains=pl.col("chain").n_unique()
    )
    found.tested += len(several)
    for row in several.filter(pl.col("chains") > 1).sort("digest").iter_rows(named=True):
        order = sorted(range(len(row["offered_at"])), key=lambda i: row["offered_at"][i])
        together: list[int] = []
        until = NONE
        for i in order:  # the longest run of overlapping work
            if row["offered_at"][i] < until and row["chain"][i] not in {
                row["chain"][j] for j in together
            }:
                together.append(i)
            elif len(together) < TOGETHER_MIN:
                together = [i]
            until = max(until, row["ended_at"][i])
        if len(together) < TOGETHER_MIN:
            continue
        name = record.capabilities[row["capability"]] or "(no capability)"
        agents = tuple(dict.fromkeys(record.agents[row["recipient"][i]] for i in together))
        seqs = [row["offered_seq"][i] for i in together]
        found.findings.append(
            Finding(
                detector="duplicated-effort",
                severity=Severity.MEDIUM if len(together) >= TOGETHER_MEDIUM else Severity.LOW,
                subject=f"{name} at entry {min(seqs)}",
                agents=agents,
                says=f"{len(together)} chains had the same payload done for {name} at the same time",
                effect={"times": len(together)},
                tested="equal payloads at one capability in several chains, overlapping in time",
                benign=(
                    "a comparison of answers on purpose",
                    "a payload that says nothing special",
                ),
                evidence=evidence(seqs),
                entries=len(seqs),
                since=min(row["offered_at"][i] for i in together),
                until=max(row["ended_at"][i] for i in together),
            )
        )
