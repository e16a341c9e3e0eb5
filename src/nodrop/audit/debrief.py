"""The debrief: what happened while nobody looked, what is owed, what broke, what was done about it.

Deterministic: the same entries and handoffs make the same report. Nothing is guessed, and nobody's
words are interpreted; what agents report as `usage` in a result is added up and nothing else.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any, Final, cast

import msgspec

View = dict[str, Any]

_ENDINGS: Final = ("completed", "failed", "rejected", "expired", "cancelled")
_DID: Final = {
    "nudged": "reminders sent",
    "escalated": "escalation steps taken",
    "returned": "deliveries taken back",
    "reassigned": "handoffs given to somebody else",
    "redriven": "dead letters tried again",
    "accepted_late": "late results accepted",
    "discarded": "dead letters laid to rest",
    "rearmed": "clocks counted anew after a restart",
}
_ANSWERED: Final = "answered"
"""Why a delivery came back that nobody took back: its question has an answer."""
_RAISED: Final = "finding.raised.v1"
_LISTED_MAX: Final = 100


class Value(msgspec.Struct, frozen=True, kw_only=True):
    """Base of what a report is made of."""


class Owed(Value, frozen=True, kw_only=True):
    """Something that somebody owes."""

    ref: str
    title: str | None
    state: str
    holder: str
    due_at: str | None


class Broken(Value, frozen=True, kw_only=True):
    """Something that ended without success and waits for a decision."""

    ref: str
    title: str | None
    state: str
    agent: str
    code: str | None
    reason: str | None
    at: str
    decide: str
    """The command that tries it again."""


class Done(Value, frozen=True, kw_only=True):
    """Something that the relay, or a person, did about what did not go by itself."""

    seq: int
    at: str
    what: str
    handoff_id: str | None
    by: str


class Found(Value, frozen=True, kw_only=True):
    """A pattern that the relay told the person of."""

    seq: int
    at: str
    detector: str
    says: str
    """What goes on, and the command that stops it."""


class Debrief(Value, frozen=True, kw_only=True):
    """The report."""

    since: str
    until: str
    entries: int
    happened: dict[str, int]
    """How many handoffs were offered and how many ended, by ending."""
    by_agent: dict[str, dict[str, int]]
    chains_completed: int
    owed: tuple[Owed, ...]
    owed_count: int
    """However many are listed."""
    broken: tuple[Broken, ...]
    broken_count: int
    done: dict[str, int]
    """What was done about what did not go by itself, and how often."""
    doings: tuple[Done, ...]
    findings: tuple[Found, ...] = ()
    """Loops, storms, hot spots and orphaned work."""
    said: int
    """Messages, statuses and notes."""
    events: int
    usage: dict[str, dict[str, float]]
    """What agents reported that their results cost, added up by agent and kind."""
    left_out: int
    """Of what is owed, broken or done, what is counted and not listed."""


def debrief(
    entries: Iterable[View], handoffs: Iterable[View], *, since: str, until: str
) -> Debrief:
    """Return what is to be told.

    Args:
        entries: the log from `since` to `until`, oldest first.
        handoffs: every handoff that is open or a dead letter now.
        since: where the report begins.
        until: where it ends.
    """
    happened: Counter[str] = Counter()
    by_agent: defaultdict[str, Counter[str]] = defaultdict(Counter)
    done: Counter[str] = Counter()
    doings: list[Done] = []
    usage: defaultdict[str, dict[str, float]] = defaultdict(dict)
    kinds: Counter[str] = Counter()
    findings: list[Found] = []
    count, chains = 0, 0
    for entry in entries:
        count += 1
        area, _, rest = entry["type"].partition(".")
        name = rest.removesuffix(".v1")
        kinds[area if area in {"message", "status", "event"} else name] += 1
        if name == "offered":
            happened["offered"] += 1
        elif area == "handoff" and name in _ENDINGS:
            happened[name] += 1
            by_agent[entry["actor"]][name] += 1
            _add_usage(usage[entry["actor"]], entry["body"])
        elif name == "settled" and not entry["data"].get("next_leg"):
            chains += 1
        if entry["type"] == _RAISED:
            findings.append(_found(entry))
        if name in _DID and entry["data"].get("reason") != _ANSWERED:
            done[_DID[name]] += 1
            doings.append(_done(entry, name))
    owed, broken = _standing(handoffs)
    listed = (owed[:_LISTED_MAX], broken[:_LISTED_MAX], doings[-_LISTED_MAX:])
    return Debrief(
        since=since,
        until=until,
        entries=count,
        happened=dict(happened),
        by_agent={agent: dict(counts) for agent, counts in sorted(by_agent.items())},
        chains_completed=chains,
        owed=tuple(listed[0]),
        owed_count=len(owed),
        broken=tuple(listed[1]),
        broken_count=len(broken),
        done=dict(done),
        doings=tuple(listed[2]),
        findings=tuple(findings[-_LISTED_MAX:]),
        said=kinds["message"] + kinds["status"] + kinds["noted"],
        events=kinds["event"],
        usage={agent: dict(spent) for agent, spent in sorted(usage.items()) if spent},
        left_out=len(owed) + len(broken) + len(doings) - sum(map(len, listed)),
    )


def _standing(handoffs: Iterable[View]) -> tuple[list[Owed], list[Broken]]:
    owed: list[Owed] = []
    broken: list[Broken] = []
    for h in sorted(handoffs, key=lambda handoff: (handoff["due_at"] or "~", handoff["id"])):
        ended: View | None = h["outcome"]
        dead = h["state"] in {"failed", "rejected", "expired"}
        if dead and h["decision"] is None and h["next_leg"] is None and ended is not None:
            broken.append(
                Broken(
                    ref=h["ref"],
                    title=h["title"],
                    state=h["state"],
                    agent=h["to"],
                    code=ended.get("code"),
                    reason=ended.get("reason"),
                    at=ended["at"],
                    decide=f"nodrop dlq redrive {h['ref']}",
                )
            )
        elif h["holder"] is not None:
            owed.append(
                Owed(
                    ref=h["ref"],
                    title=h["title"],
                    state=h["state"],
                    holder=h["holder"],
                    due_at=h["due_at"],
                )
            )
    return owed, broken


def _done(entry: View, name: str) -> Done:
    data: View = entry["data"]
    whom = data.get("to") or data.get("notify") or data.get("recipient") or ""
    why = data.get("clock") or data.get("when") or data.get("reason") or ""
    told = " ".join(filter(None, (name.replace("_", " "), whom, f"({why})" if why else "")))
    return Done(
        seq=entry["seq"],
        at=entry["at"],
        what=told,
        handoff_id=entry["handoff_id"],
        by=entry["actor"],
    )


def _found(entry: View) -> Found:
    return Found(
        seq=entry["seq"],
        at=entry["at"],
        detector=entry["data"]["detector"],
        says=str(_member(entry["body"], "text") or entry["data"]["subject"]),
    )


def _add_usage(spent: dict[str, float], body: Any) -> None:
    """Add what a result says that it cost, if it says so."""
    found = _member(_member(body, "result"), "usage")
    named = cast("dict[str, Any]", found if isinstance(found, dict) else {})
    for name, number in named.items():
        if isinstance(number, int | float) and not isinstance(number, bool):
            spent[name] = spent.get(name, 0.0) + number


def _member(value: Any, name: str) -> Any:
    return cast("dict[str, Any]", value).get(name) if isinstance(value, dict) else None
