"""Scores: findings held to labels, family by family."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from nodrop.analysis.findings import RANK, Finding, Severity
from nodrop.testing.clock import T0
from nodrop_proof.emergence.script import Label

FAMILIES: Final[Mapping[str, tuple[str, ...]]] = {
    "coordination": ("coordination",),
    "language": ("language",),
    "loops": ("ping-pong", "loop"),
    "livelock": ("livelock",),
    "orphans": ("orphan",),
    "storms": ("retry-storm", "escalation-storm"),
    "cliques": ("clique",),
}
_SLACK_MS: Final = 60 * 60_000
"""A storm's retries go on for a while after it."""


class Score(msgspec.Struct):
    """How many labels of a family were found, and how many findings were none."""

    found: int = 0
    missed: int = 0
    false: int = 0
    misses: list[str] = []
    falses: list[str] = []

    @property
    def precision(self) -> float:
        """The share of findings that are true."""
        return self.found / (self.found + self.false) if self.found + self.false else 1.0

    @property
    def recall(self) -> float:
        """The share of labels that were found."""
        return self.found / (self.found + self.missed) if self.found + self.missed else 1.0

    def add(self, other: "Score") -> None:
        """Count another log in."""
        self.found += other.found
        self.missed += other.missed
        self.false += other.false
        self.misses += other.misses
        self.falses += other.falses


def scores(findings: Sequence[Finding], labels: Sequence[Label]) -> dict[str, Score]:
    """Return the score of each family; only findings of medium and high severity count.

    Args:
        findings: what the analysis found.
        labels: what was put in.
    """
    serious = [f for f in findings if RANK[f.severity] >= RANK[Severity.MEDIUM]]
    made: dict[str, Score] = {}
    for family, detectors in FAMILIES.items():
        subjects: defaultdict[str, list[Finding]] = defaultdict(list)
        for finding in serious:
            if finding.detector in detectors:
                subjects[_subject(finding)].append(finding)
        wanted = [label for label in labels if label.family == family]
        score = made[family] = Score()
        used: set[str] = set()
        for label in wanted:
            hits = {
                subject
                for subject, several in subjects.items()
                if any(_matches(finding, label) for finding in several)
            }
            used |= hits
            if hits:
                score.found += 1
            else:
                score.missed += 1
                score.misses.append(f"{label.kind}: {label.subject}")
        for subject in sorted(subjects.keys() - used):
            score.false += 1
            score.falses.append(f"{subjects[subject][0].detector}: {subjects[subject][0].says}")
    return made


def _subject(finding: Finding) -> str:
    """Return what is counted once: a chain that is both a ping-pong and a loop is one."""
    return (
        f"{finding.detector} {finding.subject}" if "storm" in finding.detector else finding.subject
    )


def _matches(finding: Finding, label: Label) -> bool:
    match label.family:
        case "storms":
            since, until = T0 + label.since, T0 + label.until + _SLACK_MS
            same = finding.detector == f"{label.kind}-storm"
            named = finding.subject.startswith(f"{label.subject} from")
            return same and named and finding.since < until and finding.until > since
        case "coordination":
            return set(finding.agents) <= set(label.subject.split(", "))
        case "cliques":
            return ", ".join(sorted(finding.agents)) == label.subject
        case _:
            return finding.subject == label.subject
