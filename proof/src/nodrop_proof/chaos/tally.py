"""The sums of a run over its databases, as a report. A finding counts once for its database."""

import time
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from nodrop_proof.chaos.memory import Memory
from nodrop_proof.chaos.plan import Plan
from nodrop_proof.chaos.remains import Remains
from nodrop_proof.chaos.report import Report, Restarts

FINDINGS_MAX: Final = 50
"""Findings that are told in words."""


class Books:
    """What was found about one database. The next examination finds it again."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.found: dict[tuple[str, str], None] = {}

    def add(self, remains: Remains) -> None:
        """Take what an examination found."""
        for kind in ("lost", "duplicated", "wrong"):
            self.found.update({(kind, what): None for what in getattr(remains, kind)})

    def wrong(self, what: str) -> None:
        """Take something that no examination would find."""
        self.found["wrong", what] = None


class Tally:
    """The sums."""

    def __init__(self, plan: Plan) -> None:
        self.faults = 0
        self.moments: Counter[str] = Counter()
        """How often a fault came at which moment."""
        self.restarts_ms: list[float] = []
        """How long it took to open a database again and start a relay on it."""
        self._plan = plan
        self._began = time.monotonic()
        self._databases = 0
        self._stored = 0
        self._answers = 0
        self._steps_rerun = 0
        self._refusals: Counter[str] = Counter()
        self._found: Counter[str] = Counter()
        self._findings: list[str] = []

    def add(self, memory: Memory, books: Books) -> None:
        """Add what was answered, and what was found, about one database."""
        self._databases += 1
        self._stored += len(memory.stored)
        self._answers += memory.answers
        self._steps_rerun += memory.steps_rerun
        self._refusals.update(memory.refusals)
        for kind, what in books.found:
            self._found[kind] += 1
            if len(self._findings) < FINDINGS_MAX:
                self._findings.append(f"{books.name}: {kind}: {what}")

    def report(self, extras: Mapping[str, Any] | None = None) -> Report:
        """Return what came of the run."""
        return Report(
            fault=self._plan.fault,
            seed=self._plan.seed,
            count=self.faults,
            seconds=round(time.monotonic() - self._began, 1),
            acknowledged=self._stored,
            lost=self._found["lost"],
            duplicated=self._found["duplicated"],
            steps_rerun=self._steps_rerun,
            wrong=self._found["wrong"],
            restarts_ms=Restarts.of(self.restarts_ms),
            findings=tuple(self._findings),
            extras={
                "answers": self._answers,
                "databases": self._databases,
                "moments": dict(sorted(self.moments.items())),
                "refusals": dict(sorted(self._refusals.items())),
                **(extras or {}),
            },
        )
