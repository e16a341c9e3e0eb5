"""The analysis of a record: every detector, one after the other, and the tables beside them."""

import time
from collections.abc import Callable
from typing import Final, TypedDict

import msgspec

from nodrop.analysis.detectors import (
    cliques,
    conformance,
    language,
    load,
    orphans,
    paths,
    pricing,
    quality,
    reliability,
    rework,
)
from nodrop.analysis.detectors.cliques import Handover
from nodrop.analysis.detectors.conformance import Conformance
from nodrop.analysis.detectors.quality import Quality
from nodrop.analysis.detectors.reliability import Observed
from nodrop.analysis.findings import RANK, Finding, Found, Severity, TooLittle, Value
from nodrop.analysis.record import Record

STRUCTURE: Final[dict[str, Callable[[Record], Found]]] = {
    "paths": paths.detect,
    "load": load.detect,
    "orphans": orphans.detect,
    "cliques": cliques.detect,
    "rework": rework.detect,
    "reliability": reliability.detect,
    "conformance": conformance.detect,
    "handoff quality": quality.detect,
}
DETECTORS: Final[dict[str, Callable[[Record], Found]]] = {
    **STRUCTURE,
    "coordination": pricing.detect,
    "language": language.detect,
}
HANDOVERS_MAX: Final = 500


class Coverage(Value, frozen=True, kw_only=True):
    """What there was to look at."""

    events: int
    handoffs: int
    chains: int
    agents: int
    capabilities: int
    messages: int
    channels: int
    quotes: int
    since: int
    until: int
    tested: dict[str, int]
    """How many subjects each detector looked at."""


class Analysis(Value, frozen=True, kw_only=True):
    """What an analysis comes to."""

    findings: tuple[Finding, ...]
    """The worst first."""
    too_little: tuple[TooLittle, ...]
    coverage: Coverage
    handovers: tuple[Handover, ...]
    central: tuple[tuple[str, float], ...]
    reliability: tuple[Observed, ...]
    quality: tuple[Quality, ...]
    conformance: tuple[Conformance, ...]
    seconds: dict[str, float]
    """How long each part took."""

    def worst(self) -> Severity | None:
        """Return the highest severity there is."""
        return max((f.severity for f in self.findings), key=RANK.__getitem__, default=None)


class _Tables(TypedDict):
    handovers: tuple[Handover, ...]
    central: tuple[tuple[str, float], ...]
    reliability: tuple[Observed, ...]
    quality: tuple[Quality, ...]
    conformance: tuple[Conformance, ...]


def analyze(record: Record, *, structure_only: bool = False) -> Analysis:
    """Return everything that the detectors have to say about a record."""
    findings: list[Finding] = []
    too_little: list[TooLittle] = []
    tested: dict[str, int] = {}
    seconds: dict[str, float] = {}
    for name, detect in (STRUCTURE if structure_only else DETECTORS).items():
        began = time.perf_counter()
        found = detect(record)
        findings += found.findings
        too_little += found.too_little
        tested[name] = found.tested
        seconds[name] = round(time.perf_counter() - began, 3)
    began = time.perf_counter()
    handovers = cliques.network(record)
    tables = _Tables(
        handovers=tuple(handovers[:HANDOVERS_MAX]),
        central=tuple(cliques.central(handovers)),
        reliability=tuple(reliability.observed(record)),
        quality=tuple(quality.qualities(record)),
        conformance=tuple(conformance.conformances(record)),
    )
    seconds["tables"] = round(time.perf_counter() - began, 3)
    findings.sort(key=lambda f: (-RANK[f.severity], f.detector, -f.entries, f.subject))
    return Analysis(
        findings=tuple(findings),
        too_little=tuple(too_little),
        coverage=_coverage(record, tested),
        seconds=seconds,
        **tables,
    )


def to_json(analysis: Analysis) -> bytes:
    """Return the analysis as a JSON document, with the id of each finding."""
    document = msgspec.to_builtins(analysis)
    for written, finding in zip(document["findings"], analysis.findings, strict=True):
        written["id"] = finding.id
    return msgspec.json.format(msgspec.json.encode(document), indent=1) + b"\n"


def _coverage(record: Record, tested: dict[str, int]) -> Coverage:
    return Coverage(
        events=record.events,
        handoffs=len(record.handoffs),
        chains=len(record.chains),
        agents=len(record.agents),
        capabilities=sum(bool(name) for name in record.capabilities.of),
        messages=sum(len(said) for said in record.said.values()),
        channels=len(record.said),
        quotes=sum(len(quotes) for quotes in record.quotes.values()),
        since=record.first_at or 0,
        until=record.last_at,
        tested=tested,
    )
