"""The checker: holds the clients' own records against the exported log.

It shares no code with the machine, the engine or a store. It knows the names of log entries, and
section 6 of the protocol:

- lost: something a client was told is done, and is not there; or stored, and neither open nor ended;
- duplicated: two handoffs for one ask, two outcomes for one handoff, or a result of an attempt that
  had been superseded;
- run again: the effect of a step that happened after the step was recorded, whichever attempt did it;
- wrong: whatever else does not add up, such as a broken chain or a caller without an outcome.

What a client asked for and was never answered is unknown, and counts as nothing. An effect that
repeats because its worker died before the step was recorded is no step run again, nor is one of a
process that stalled after it had begun the step: effects outside the relay cannot be exactly-once.
Both are told as figures.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Self, assert_never, cast

import msgspec

from nodrop.audit import ledger
from nodrop.audit.ledger import ENDINGS
from nodrop.protocol.entries import Head
from nodrop_proof.chaos.crew import HEARTBEAT_SECONDS
from nodrop_proof.chaos.plan import Plan
from nodrop_proof.chaos.record import AnyLine, Asked, Ran, Recorded, Refused, Stored, Told
from nodrop_proof.chaos.report import Report, Restarts

FINDINGS_MAX: Final = 20
"""How many findings of a kind are told in words."""

Entry = Mapping[str, Any]
"""A log entry, as the relay's API shows it."""
View = Mapping[str, Any]
"""A handoff, as the relay's API shows it."""


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What the checker found."""

    acknowledged: int
    lost: tuple[str, ...]
    duplicated: tuple[str, ...]
    steps_rerun: tuple[str, ...]
    wrong: tuple[str, ...]
    figures: dict[str, int]

    def report(
        self,
        plan: Plan,
        *,
        count: int,
        seconds: float,
        restarts_ms: Sequence[float] = (),
        extras: Mapping[str, Any] | None = None,
    ) -> Report:
        """Return what came of a run."""
        return Report(
            fault=plan.fault,
            seed=plan.seed,
            count=count,
            seconds=round(seconds, 1),
            acknowledged=self.acknowledged,
            lost=len(self.lost),
            duplicated=len(self.duplicated),
            steps_rerun=len(self.steps_rerun),
            wrong=len(self.wrong),
            restarts_ms=Restarts.of(restarts_ms),
            findings=self.findings,
            extras={**self.figures, **(extras or {})},
        )

    def __add__(self, other: Self) -> Self:
        """Return what was found at two relays of one run."""
        return type(self)(
            acknowledged=self.acknowledged + other.acknowledged,
            lost=self.lost + other.lost,
            duplicated=self.duplicated + other.duplicated,
            steps_rerun=self.steps_rerun + other.steps_rerun,
            wrong=self.wrong + other.wrong,
            figures=dict(Counter(self.figures) + Counter(other.figures)),
        )

    @property
    def findings(self) -> tuple[str, ...]:
        """The first findings of each kind."""
        kinds = (self.lost, self.duplicated, self.steps_rerun, self.wrong)
        return tuple(finding for kind in kinds for finding in kind[:FINDINGS_MAX])


class Checker:
    """Reads records, then the log, then what the relay shows; then judges."""

    def __init__(self, *, team: str = "default") -> None:
        self._team = team
        self._asked: dict[str, Asked] = {}
        self._stored: defaultdict[str, list[str]] = defaultdict(list)
        self._told: defaultdict[str, list[Told]] = defaultdict(list)
        self._refused: dict[str, str] = {}
        self._steps: defaultdict[tuple[str, str], list[Ran | Recorded]] = defaultdict(list)
        self._handoffs: dict[str, _Handoff] = {}
        self._head = Head()
        self._breaks: list[str] = []
        self._types: Counter[str] = Counter()
        self._shown: dict[str, _Shown] = {}

    # --- reading --------------------------------------------------------------------------------

    def read_records(self, lines: Iterable[AnyLine]) -> None:
        """Take what clients wrote down, in the order in which they did."""
        for line in lines:
            match line:
                case Asked():
                    self._asked[line.ask] = line
                case Stored():
                    self._stored[line.ask].append(line.handoff_id)
                case Told():
                    self._told[line.ask].append(line)
                case Refused():
                    self._refused[line.ask] = line.code
                case Ran() | Recorded():
                    self._steps[line.handoff_id, line.step].append(line)
                case _:
                    assert_never(line)

    def read_log(self, page: Sequence[Entry]) -> None:
        """Take the next page of the log, oldest entry first."""
        books = ledger.count(page, team=self._team, after=self._head)
        self._breaks += [f"at {found.seq}: {found.what}" for found in books.broken]
        self._head = books.head
        for entry in page:
            self._types[entry["type"]] += 1
            handoff_id = entry["handoff_id"]
            if handoff_id is not None:
                known = self._handoffs.get(handoff_id)
                if known is None:
                    known = self._handoffs[handoff_id] = _Handoff(id=handoff_id)
                known.read(entry)

    def read_shown(self, views: Iterable[View]) -> None:
        """Take handoffs as the relay shows them."""
        for view in views:
            owed = bool(view["holder"] and view["due_at"])
            self._shown[view["id"]] = _Shown(state=view["state"], owed=owed)

    # --- judging --------------------------------------------------------------------------------

    def verdict(self) -> Verdict:
        """Return what does not add up."""
        return Verdict(
            acknowledged=sum(len(set(ids)) for ids in self._stored.values()),
            lost=(*self._lost_handoffs(), *self._lost_outcomes(), *self._lost_steps()),
            duplicated=(*self._twice_offered(), *self._twice_ended(), *self._superseded()),
            steps_rerun=(*self._twice_recorded(), *self._run_again()),
            wrong=(*self._breaks, *self._unfinished(), *self._mixed_up(), *self._disagreeing()),
            figures=self._figures(),
        )

    def _lost_handoffs(self) -> Iterable[str]:
        for ask, ids in self._stored.items():
            for handoff_id in set(ids):
                known = self._handoffs.get(handoff_id)
                if known is None or not known.offered:
                    yield f"{ask}: answered as stored; the log has no offer of {handoff_id}"
        for handoff in self._handoffs.values():
            shown = self._shown.get(handoff.id)
            if not handoff.offered:
                yield f"{handoff.id}: its offer is gone"
            elif not handoff.endings and (shown is None or not shown.owed):
                yield f"{handoff.id}: neither open nor ended"
            elif handoff.owes_leg and handoff.next_leg is None:
                yield f"{handoff.id}: its next leg was never stored"
            elif handoff.next_leg is not None and handoff.next_leg not in self._handoffs:
                yield f"{handoff.id}: its next leg {handoff.next_leg} is gone"

    def _lost_outcomes(self) -> Iterable[str]:
        last = self._last_legs()
        for ask, told in self._told.items():
            handoff = last.get(ask)
            if handoff is None or not handoff.endings:
                yield f"{ask}: told as {told[0].state}; the log has no outcome"
            elif not handoff.settled:
                yield f"{ask}: settled by its caller; the log does not say so"

    def _lost_steps(self) -> Iterable[str]:
        for (handoff_id, step), lines in self._steps.items():
            known = self._handoffs.get(handoff_id)
            recorded = any(isinstance(line, Recorded) for line in lines)
            if recorded and (known is None or step not in known.steps):
                yield f"{handoff_id}: told that {step} is recorded; the log does not say so"

    def _twice_offered(self) -> Iterable[str]:
        for ask, ids in self._stored.items():
            if len(set(ids)) > 1:
                yield f"{ask}: stored as {' and as '.join(sorted(set(ids)))}"
        by_key: dict[tuple[str, ...], _Handoff] = {}
        for handoff in self._handoffs.values():
            for key in handoff.keys:
                first = by_key.setdefault(key, handoff)
                if first is not handoff and handoff.redrive_of != first.id:
                    yield f"{'/'.join(key)}: {handoff.id} is also {first.id}"
                    break
                by_key[key] = handoff

    def _twice_ended(self) -> Iterable[str]:
        last = self._last_legs()
        for handoff in self._handoffs.values():
            for again in handoff.endings[1:]:
                yield f"{handoff.id}: {again} after {handoff.endings[0]}"
        for ask, told in self._told.items():
            handoff = last.get(ask)
            states = {line.state for line in told} | set(handoff.endings[:1] if handoff else ())
            if len(states) > 1:
                yield f"{ask}: its outcome is {' and '.join(sorted(states))}"

    def _superseded(self) -> Iterable[str]:
        last = self._last_legs()
        for handoff in self._handoffs.values():
            if handoff.ended_by is not None and handoff.ended_by != handoff.delivered:
                now = handoff.delivered
                yield f"{handoff.id}: completed by attempt {handoff.ended_by} while {now} had it"
        for ask, told in self._told.items():
            handoff = last.get(ask)
            by = _result(told[0]).get("attempt")
            if handoff is not None and by is not None and by != handoff.delivered:
                yield f"{ask}: the result is attempt {by}'s, while {handoff.delivered} had it"

    def _twice_recorded(self) -> Iterable[str]:
        for handoff in self._handoffs.values():
            for step, attempts in handoff.steps.items():
                for attempt in attempts[1:]:
                    yield f"{handoff.id}: {step} recorded again by attempt {attempt}"

    def _run_again(self) -> Iterable[str]:
        for (handoff_id, step), lines in self._steps.items():
            known = self._handoffs.get(handoff_id)
            in_log = known.steps.get(step) if known else None
            told_by: int | None = None
            for line in lines:
                if isinstance(line, Recorded):
                    told_by = told_by or line.attempt
                elif (told_by is not None and not _excused(line, told_by)) or (
                    in_log and line.attempt > in_log[0]
                ):
                    yield f"{handoff_id}: {step} run again by attempt {line.attempt}"

    def _unfinished(self) -> Iterable[str]:
        for ask, asked in self._asked.items():
            if ask in self._refused:
                yield f"{ask}: refused as {self._refused[ask]}"
            elif asked.waits and ask not in self._told:
                how_far = "stored" if ask in self._stored else "asked for"
                yield f"{ask}: {how_far}, and its caller never had an outcome"

    def _mixed_up(self) -> Iterable[str]:
        for ask, told in self._told.items():
            for line in told:
                if line.state == "completed" and _result(line).get("ask") != ask:
                    yield f"{ask}: its result is {line.result}"

    def _disagreeing(self) -> Iterable[str]:
        for handoff in self._handoffs.values():
            shown = self._shown.get(handoff.id)
            says = handoff.endings[0] if handoff.endings else None
            if shown is None and not handoff.settled:
                yield f"{handoff.id}: the relay does not show it"
            elif shown and says != (shown.state if shown.state in _FINAL else None):
                yield f"{handoff.id}: the log says {says or 'open'}, the relay {shown.state}"
            elif shown and says and not (handoff.settled or shown.owed):
                yield f"{handoff.id}: {says}, and nobody owes its settlement"

    # --- what the log says ----------------------------------------------------------------------

    def _last_legs(self) -> dict[str, "_Handoff"]:
        """Return the last leg of what came of each ask; if it was duplicated, of the one stored."""
        told_of = {handoff_id for ids in self._stored.values() for handoff_id in ids}
        last: dict[str, _Handoff] = {}
        for handoff in self._handoffs.values():  # in the order of the log: what follows comes later
            if handoff.redrive_of in told_of:
                told_of.add(handoff.id)
            if handoff.id in told_of and handoff.next_leg is not None:
                told_of.add(handoff.next_leg)
            known = last.get(handoff.correlation_id)
            if known is None or (handoff.id in told_of, handoff.leg) >= (
                known.id in told_of,
                known.leg,
            ):
                last[handoff.correlation_id] = handoff
        return last

    def _figures(self) -> dict[str, int]:
        runs = [line for lines in self._steps.values() for line in lines if isinstance(line, Ran)]
        first_runs = {(line.handoff_id, line.step) for line in runs}
        return {
            "asked": len(self._asked),
            "outcomes": sum(map(len, self._told.values())),
            "handoffs": len(self._handoffs),
            "open": sum(1 for handoff in self._handoffs.values() if not handoff.endings),
            "entries": self._head.seq,
            "deliveries": self._types["handoff.delivered.v1"],
            "deliveries_lapsed": self._types["handoff.returned.v1"],
            "queued_acks": self._types["handoff.queued.v1"],
            "queued_acks_void": self._types["handoff.queue_lapsed.v1"],
            "steps_recorded": self._types["handoff.step_recorded.v1"],
            "effects": len(runs),
            "effects_repeated": len(runs) - len(first_runs),
            "effects_stalled": sum(1 for line in runs if line.after_seconds >= HEARTBEAT_SECONDS),
        }


_FINAL: Final = frozenset(ENDINGS.values())
_DEAD: Final = _FINAL - {"completed", "cancelled"}


class _Shown(msgspec.Struct, frozen=True, kw_only=True):
    state: str
    owed: bool
    """Whether somebody owes the next move by some time."""


class _Handoff(msgspec.Struct, kw_only=True):
    """What the log says about one handoff: little enough to hold a million of them."""

    id: str
    offered: bool = False
    correlation_id: str = ""
    keys: tuple[tuple[str, ...], ...] = ()
    """What no other handoff may be known by, unless it is its successor."""
    leg: int = 0
    fallbacks: tuple[bool, ...] = ()
    """The legs behind it: whether each is for the case that the one before it fails."""
    redrive_of: str | None = None
    delivered: int = 0
    """The attempt that was delivered last."""
    steps: dict[str, list[int]] = {}
    """Which attempts recorded a step."""
    endings: list[str] = []
    ended_by: int | None = None
    settled: bool = False
    next_leg: str | None = None

    @property
    def owes_leg(self) -> bool:
        """Whether a leg follows from how it ended: a fallback, or the next that is none."""
        if "completed" in self.endings:
            return not all(self.fallbacks)
        died = bool(_DEAD & set(self.endings))
        return died and bool(self.fallbacks) and self.fallbacks[0]

    def read(self, entry: Entry) -> None:
        """Take the next entry about it."""
        data = entry["data"]
        match entry["type"]:
            case "handoff.offered.v1":
                self._read_offer(entry["correlation_id"], data)
            case "handoff.delivered.v1":
                self.delivered = data["attempt"]
            case "handoff.step_recorded.v1":
                self.steps.setdefault(data["name"], []).append(data["attempt"])
            case "handoff.settled.v1":
                self.settled = True
                self.next_leg = data.get("next_leg")
            case name if name in ENDINGS:
                self.endings.append(ENDINGS[name])
                if name == "handoff.completed.v1":
                    self.ended_by = data["attempt"]
            case _:
                pass

    def _read_offer(self, correlation_id: str, data: Mapping[str, Any]) -> None:
        self.offered = True
        self.correlation_id = correlation_id
        self.leg = len(data.get("legs_done") or ())
        self.fallbacks = tuple(bool(leg.get("fallback")) for leg in data.get("legs") or ())
        self.redrive_of = data.get("redrive_of")
        self.steps = {step["name"]: [0] for step in data.get("steps") or ()}
        self.keys = ((correlation_id, f"leg {self.leg}"),)
        if data.get("key") is not None:
            self.keys += ((data["sender"], data["key"]),)


def _excused(ran: Ran, told_by: int) -> bool:
    """Whether an earlier attempt stalled in the middle of the step: too late to be held back.

    A step begins with a heartbeat of its lease left, so nothing shorter is an excuse.
    """
    return ran.attempt < told_by and ran.after_seconds >= HEARTBEAT_SECONDS


def _result(told: Told) -> Mapping[str, Any]:
    return cast("dict[str, Any]", told.result) if isinstance(told.result, dict) else {}
