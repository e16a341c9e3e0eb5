"""The evaluation on real data, whose files are named: none is part of this repository.

BPI Challenge 2013 (incidents), the event log of Gas Town, and the auctions of Tsuchiura. What is
expected is computed here in another way than by the detectors, or by pm4py.
"""

import csv
import gzip
import io
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from importlib import import_module
from itertools import groupby
from pathlib import Path
from typing import Any, Final
from zlib import crc32

import msgspec

from nodrop.analysis.analyze import Analysis, analyze
from nodrop.analysis.detectors import cliques, pricing
from nodrop.analysis.findings import RANK, Severity
from nodrop.analysis.record import Market, Record
from nodrop.analysis.sources import beads, xes

PING_PONG: Final = 5
"""Holders in a row that alternate."""
VISITS: Final = 4
BIDS_MIN: Final = 10
_WEIGHT: Final = 1e-9


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """Something that was compared, or that is only told."""

    what: str
    found: str
    expected: str | None = None

    @property
    def holds(self) -> bool:
        """Whether it is as expected; what is only told always is."""
        return self.expected in {None, self.found}


# --- BPI Challenge 2013 --------------------------------------------------------------------------


def bpi(path: Path) -> list[Check]:
    """Return what the incidents of BPI 2013 give, beside pm4py's own reading of them.

    Raises:
        ImportError: pm4py is not installed.
    """
    record = Record()
    xes.read(path, record)
    analysis = analyze(record, structure_only=True)
    pm4py: Any = import_module("pm4py")  # an oracle without types, under the AGPL
    table: Any = pm4py.read_xes(str(path))
    cases: dict[str, list[str]] = {
        str(case): [str(group) for group in groups]
        for case, groups in table.groupby("case:concept:name", sort=False)["org:group"]
    }
    held = {case: [group for group, _ in groupby(groups)] for case, groups in cases.items()}
    handovers = {(e.sender, e.recipient): e.times for e in cliques.network(record)}
    ours = {pair: n for pair, n in handovers.items() if pair[0] != xes.START}
    serious = [f for f in analysis.findings if RANK[f.severity] >= RANK[Severity.MEDIUM]]
    rest = [f for f in serious if f.detector not in {"ping-pong", "loop"}]
    return [
        Check(what="events", found=str(record.events), expected=str(len(table))),
        Check(what="cases", found=str(len(record.chains)), expected=str(len(cases))),
        Check(
            what="handovers between groups, as pm4py counts them",
            found=_digest(ours),
            expected=_digest(_pm4py_handovers(pm4py, table, cases)),
        ),
        Check(
            what="cases with A-B-A-B-A",
            found=_cases(f.subject for f in serious if f.detector == "ping-pong"),
            expected=_cases(case for case, line in held.items() if _alternates(line)),
        ),
        Check(
            what=f"cases with one group at least {VISITS} times",
            found=_cases(f.subject for f in serious if f.detector == "loop"),
            expected=_cases(
                case for case, line in held.items() if max(Counter(line).values()) >= VISITS
            ),
        ),
        Check(
            what="other findings of medium or high severity, per 100,000 events",
            found=f"{len(rest) / record.events * 100_000:.1f} ({len(rest)}: "
            f"{', '.join(sorted({f.detector for f in rest})) or 'none'})",
        ),
    ]


def _pm4py_handovers(
    pm4py: Any, table: Any, cases: Mapping[str, Sequence[str]]
) -> dict[tuple[str, str], int]:
    network: Any = pm4py.discover_handover_of_work_network(table, resource_key="org:group")
    pairs = sum(len(groups) - 1 for groups in cases.values())
    weights: dict[tuple[str, str], float] = network.connections
    return {
        (str(a), str(b)): round(weight * pairs)
        for (a, b), weight in weights.items()
        if a != b and weight > _WEIGHT
    }


def _alternates(line: Sequence[str]) -> bool:
    return any(
        line[n : n + PING_PONG] == [line[n], line[n + 1]] * 2 + [line[n]]
        for n in range(len(line) - PING_PONG + 1)
    )


def _digest(handovers: Mapping[tuple[str, str], int]) -> str:
    """Return a text that only equal networks share."""
    whole = repr(sorted(handovers.items())).encode()
    total = sum(handovers.values())
    return f"{len(handovers)} edges, {total} handovers, crc {_crc(whole)}"


def _cases(names: Iterable[str]) -> str:
    several = sorted(set(names))
    return f"{len(several)}, crc {_crc(repr(several).encode())}"


def _crc(data: bytes) -> str:
    return f"{crc32(data):08x}"


# --- Gas Town ------------------------------------------------------------------------------------


def gas_town(path: Path) -> list[Check]:
    """Return what the event log of Gas Town gives, beside a count of its own lines."""
    record = Record()
    beads.read(path, record)
    analysis = analyze(record)
    hooked, closed = _counted(path)
    again = {f.subject: f for f in analysis.findings if f.detector == "handed-off-again"}
    twice = {f.subject: f for f in analysis.findings if f.detector == "closed-again"}
    same = sum(f.effect["agents"] == 1 for f in again.values())
    confirmed = sum(
        any("refinery" in a or "witness" in a for a in f.agents) for f in twice.values()
    )
    return [
        Check(what="handoffs", found=str(len(record.handoffs)), expected=str(sum(hooked.values()))),
        Check(
            what="issues that were handed off",
            found=str(len({record.handoffs["chain"][n] for n in range(len(record.handoffs))})),
            expected=str(len(hooked)),
        ),
        Check(
            what="issues that were handed off at least twice",
            found=_cases(again),
            expected=_cases(issue for issue, times in hooked.items() if times > 1),
        ),
        Check(what="  of these, each time to the same agent", found=str(same)),
        Check(
            what="issues that were closed at least twice",
            found=_cases(twice),
            expected=_cases(issue for issue, times in closed.items() if times > 1),
        ),
        Check(
            what="  of these, with a refinery or witness, whose role it is", found=str(confirmed)
        ),
        *_others(analysis),
    ]


def _counted(path: Path) -> tuple[Counter[str], Counter[str]]:
    hooked: Counter[str] = Counter()
    closed: Counter[str] = Counter()
    for line in _text(path):
        event: dict[str, Any] = msgspec.json.decode(line)
        if event["event_type"] == "closed":
            closed[event["issue_id"]] += 1
        elif '"status":"hooked"' in (event["new_value"] or ""):
            hooked[event["issue_id"]] += 1
    return hooked, closed


def _others(analysis: Analysis) -> list[Check]:
    known = {"handed-off-again", "closed-again"}
    rest = Counter(f.detector for f in analysis.findings if f.detector not in known)
    return [
        Check(
            what="other findings", found=", ".join(f"{n} {d}" for d, n in rest.items()) or "none"
        ),
        *(
            Check(what=f"most handovers: {e.sender} to {e.recipient}", found=str(e.times))
            for e in analysis.handovers[:3]
        ),
    ]


# --- Tsuchiura -----------------------------------------------------------------------------------


def tsuchiura(path: Path) -> list[Check]:
    """Return what the auctions of Tsuchiura give. Their labels are weak: a classification."""
    rows = list(csv.DictReader(_text(path)))
    record = Record()
    cartel: dict[str, bool] = {}
    levels: defaultdict[str, list[float]] = defaultdict(list)
    for seq, row in enumerate(sorted(rows, key=lambda each: each["date"]), 1):
        if not row["bid"] or not row["reserveprice"]:
            continue
        at = round(datetime.strptime(row["date"], "%Y%m%d").replace(tzinfo=UTC).timestamp() * 1000)
        bidder, bid, reserve = row["bidder"], float(row["bid"]), float(row["reserveprice"])
        cartel[bidder] = row["is_cartel"] == "1"
        levels[bidder].append(bid / reserve)
        record.event(at)
        # Bids of different auctions are compared by their share of the reserve price.
        market = Market("works", "tsuchiura", "share of reserve")
        record.quote(market, seq=seq, at=at, agent=bidder, value=bid / reserve, cost=None)
    often = {bidder for bidder, each in levels.items() if len(each) >= pricing.ROUNDS_MIN}
    [market] = record.quotes
    record.quotes[market] = [q for q in record.quotes[market] if record.agents[q.agent] in often]
    found = pricing.detect(record)
    named = {agent for finding in found.findings for agent in finding.agents}
    means = {b: sum(each) / len(each) for b, each in levels.items() if len(each) >= BIDS_MIN}
    return [
        Check(what="bids", found=str(len(rows))),
        Check(what="bidders", found=str(len(cartel))),
        Check(
            what=f"bidders with at least {pricing.ROUNDS_MIN} bids, in cartels by the weak labels",
            found=f"{len(often)}, {sum(cartel[b] for b in often)}",
        ),
        Check(
            what="findings of the detector, agents in them, in cartels by the weak labels",
            found=f"{len(found.findings)}, {len(named)}, {sum(cartel[b] for b in named)}",
        ),
        Check(
            what=f"AUC of the mean share of the reserve price, bidders with {BIDS_MIN} bids",
            found=f"{_auc(means, cartel):.3f} ({len(means)} bidders, weak labels)",
        ),
    ]


def _auc(values: Mapping[str, float], positive: Mapping[str, bool]) -> float:
    yes = [value for name, value in values.items() if positive[name]]
    no = [value for name, value in values.items() if not positive[name]]
    above = sum((a > b) + 0.5 * (a == b) for a in yes for b in no)
    return above / (len(yes) * len(no)) if yes and no else float("nan")


def _text(path: Path) -> io.StringIO:
    data = path.read_bytes()
    plain = gzip.decompress(data) if path.suffix == ".gz" else data
    return io.StringIO(plain.decode())


def table(title: str, checks: Sequence[Check]) -> str:
    """Return checks for people."""
    lines = [title]
    for check in checks:
        sign = " " if check.expected is None else ("✓" if check.holds else "✗")
        beside = "" if check.holds else f", expected {check.expected}"
        lines.append(f"  {sign} {check.what}: {check.found}{beside}")
    return "\n".join(lines)
