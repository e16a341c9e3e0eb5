"""Requests made from the OpenAPI document of a relay, and its answers held against it.

schemathesis makes them: valid ones and wrong ones, one by one and in sequences along the links of
the document, with all of its checks. Its rounds go on, each with the next seed, until there were as
many requests as asked for.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, Final, cast

import msgspec
import schemathesis
from schemathesis.engine import events, from_schema

from nodrop_proof.fuzz.cases import Rules

SECONDS_MAX: Final = 60.0
"""An answer that takes longer is a failure."""
ROUNDS_MAX: Final = 1_000
_THOROUGH: Final = 4_000
"""From so many requests on, there is room for every bound of every field in turn."""
_TOLD_MAX: Final = 20
_SHOWN_CHARS_MAX: Final = 2_000
_ANSWER_CHARS_MAX: Final = 500


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What came of it."""

    requests: int
    answers: dict[str, int]
    """How many there were of each class of status: `2xx`, `4xx` …"""
    server_errors: int
    unanswered: int
    operations: int
    checks: int
    """How often something could have been found wrong."""
    failures: int
    told: list[str]
    """The first of them, alike ones once."""
    seed: int
    rounds: int

    @property
    def ok(self) -> bool:
        """Whether there is nothing to complain of, and something was asked."""
        return self.failures == 0 and self.server_errors == 0 and self.requests > 0


def run(
    url: str,
    *,
    token: str,
    agent: str,
    requests: int,
    seed: int,
    only: str | None = None,
    progress: Callable[[int, int], None],
) -> Report:
    """Ask the relay at `url` at least so many requests, as `agent`; `only` for one operation."""
    Rules(agent, year=time.gmtime().tm_year + 1).register()
    tally = _Tally()
    rounds = 0
    while tally.requests < requests and rounds < ROUNDS_MAX:
        before = tally.requests
        for event in _round(url, token, requests=requests, seed=seed + rounds, only=only):
            tally.take(event)
            progress(tally.requests, requests)
        rounds += 1
        if tally.requests == before:
            break
    return tally.report(seed=seed, rounds=rounds)


def _round(
    url: str, token: str, *, requests: int, seed: int, only: str | None
) -> Iterator[events.EngineEvent]:
    thorough = requests >= _THOROUGH
    config = schemathesis.Config.from_dict(  # pyright: ignore[reportUnknownMemberType]  # takes a plain dict
        {
            "seed": seed,
            "headers": {"Authorization": f"Bearer {token}"},
            "base-url": f"{url}/v1",
            "request-timeout": SECONDS_MAX,
            "continue-on-failure": True,
            "suppress-health-check": ["all"],  # how fast this machine is says nothing of the relay
            "checks": {"enabled": True},
            "phases": {"coverage": {"enabled": thorough}},
            "generation": {"max-examples": 10 if thorough else 3, "database": "none"},
            "cache": {"enabled": False},
        }
    )
    document = schemathesis.openapi.from_url(f"{url}/openapi.json", config=config)
    include: Callable[..., Any] = cast("Any", document).include
    chosen = document if only is None else include(operation_id=only)
    return iter(from_schema(chosen).execute())


class _Tally:
    """Counts what the rounds tell."""

    def __init__(self) -> None:
        self.requests = 0
        self._statuses: Counter[int] = Counter()
        self._unanswered = 0
        self._checks = 0
        self._operations: set[str] = set()
        self._failures = 0
        self._told: dict[str, str] = {}

    def take(self, event: events.EngineEvent) -> None:
        match event:
            case events.ScenarioFinished():
                self._take_scenario(event.recorder)
            case events.NonFatalError():
                self._complain(event.label, repr(event.value))
            case events.FatalError():
                self._complain("the whole", repr(event.exception))
            case events.EngineFinished():
                for failure in event.failures:
                    self._complain("the whole", str(failure))
            case _:
                pass

    def _take_scenario(self, recorder: Any) -> None:
        for case, interaction in recorder.interactions.items():
            self.requests += 1
            if case in recorder.cases:
                self._operations.add(recorder.cases[case].value.operation.label)
            if interaction.response is None:
                self._unanswered += 1
            else:
                self._statuses[interaction.response.status_code] += 1
        for case, checks in recorder.checks.items():
            self._checks += len(checks)
            for check in checks:
                if check.status != "success":
                    answer, asked = _told(recorder, case, check)
                    self._complain(f"{recorder.label}: {check.name}: {answer}", asked)

    def _complain(self, what: str, about: str) -> None:
        self._failures += 1
        if len(self._told) < _TOLD_MAX:
            self._told.setdefault(what, f"{what}\n{about[:_SHOWN_CHARS_MAX]}")

    def report(self, *, seed: int, rounds: int) -> Report:
        classes: Counter[str] = Counter()
        for status, count in self._statuses.items():
            classes[f"{status // 100}xx"] += count
        return Report(
            requests=self.requests,
            answers=dict(sorted(classes.items())),
            server_errors=classes["5xx"],
            unanswered=self._unanswered,
            operations=len(self._operations),
            checks=self._checks,
            failures=self._failures,
            told=list(self._told.values()),
            seed=seed,
            rounds=rounds,
        )


def _told(recorder: Any, case: str, check: Any) -> tuple[str, str]:
    """Return the answer that failed a check, and what was asked."""
    interaction = recorder.interactions.get(case)
    answered = interaction.response if interaction else None
    said = f"{answered.status_code} {answered.content[:_ANSWER_CHARS_MAX]!r}" if answered else ""
    failure = check.failure_info
    return said, f"{failure.failure}\n{failure.code_sample}" if failure else ""
