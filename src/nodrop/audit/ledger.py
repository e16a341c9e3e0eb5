"""The books of a log: what was dropped, what was duplicated, what does not add up.

Counts as section 6 of the protocol defines the words, from exported entries alone. It shares no
code with the machine, the engine or a store, so it can hold them to account: the chain is hashed
here with `hashlib` over RFC 8785, and states are read off the names of entries.

A log cannot show what never reached it. The clients' own records (`answered`) and what the relay
shows now (`shown`) close that gap.
"""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

import msgspec
import rfc8785

from nodrop.model.limits import DEFAULT
from nodrop.protocol.entries import GENESIS, Entry, Head
from nodrop.protocol.times import parse_time

ENDINGS: Final[Mapping[str, str]] = {
    "handoff.completed.v1": "completed",
    "handoff.failed.v1": "failed",
    "handoff.rejected.v1": "rejected",
    "handoff.expired.v1": "expired",
    "handoff.cancelled.v1": "cancelled",
}
"""Entries that are an outcome, and the state each leads to."""

_DEAD: Final = frozenset({"handoff.failed.v1", "handoff.rejected.v1", "handoff.expired.v1"})
_SUCCESSIONS: Final = ("handoff.redriven.v1", "handoff.accepted_late.v1")
_FINDINGS_MAX: Final = 1_000
"""Findings told of one kind. A log this broken needs no longer list."""


class Finding(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing that does not add up."""

    what: str
    handoff_id: str | None = None
    seq: int | None = None


class Ledger(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a count."""

    entries: int
    stored: int
    open: int
    """Stored, and somebody still owes the next move."""
    ended: int
    """Stored, and an outcome is recorded."""
    dropped: tuple[Finding, ...]
    """Stored, and neither open nor ended."""
    duplicated: tuple[Finding, ...]
    """Handed off, finished or recorded twice."""
    broken: tuple[Finding, ...]
    """Where the log itself does not hold: a gap, or a hash that does not fit."""
    head: Head
    """The last entry that was counted; a later count may begin after it."""

    @property
    def holds(self) -> bool:
        """Whether nothing was dropped, duplicated or tampered with."""
        return not (self.dropped or self.duplicated or self.broken)


def count(
    entries: Iterable[Entry | Mapping[str, Any]],
    *,
    team: str = "default",
    after: Head | None = None,
    answered: Iterable[str] = (),
    shown: Iterable[Mapping[str, Any]] | None = None,
) -> Ledger:
    """Return the books of a whole log, oldest entry first.

    Args:
        entries: exported entries, or entries as the relay's API shows them.
        team: whose log it is; entries as shown do not say.
        after: what came before the first entry; the beginning of the log by default.
        answered: the ids of handoffs that a relay told its clients are `stored`.
        shown: the handoffs that the relay shows now, all of them.
    """
    lines = [_line(entry, team) for entry in entries]
    before = after or Head()
    handoffs = _handoffs(lines)
    dropped = (
        *_unknown(answered, handoffs),
        *(_headless(handoffs) if before.hash == GENESIS else ()),
        *_lost_successors(handoffs),
        *(_not_shown(handoffs, shown) if shown is not None else ()),
    )
    duplicated = (*_keys_twice(handoffs), *_outcomes_twice(handoffs), *_steps_twice(handoffs))
    stored = [handoff for handoff in handoffs.values() if handoff.offer is not None]
    ended = sum(1 for handoff in stored if handoff.endings)
    return Ledger(
        entries=len(lines),
        stored=len(stored),
        open=len(stored) - ended,
        ended=ended,
        dropped=dropped[:_FINDINGS_MAX],
        duplicated=duplicated[:_FINDINGS_MAX],
        broken=_breaks(lines, before)[:_FINDINGS_MAX],
        head=Head(seq=lines[-1]["seq"], hash=lines[-1]["hash"]) if lines else before,
    )


# --- entries ------------------------------------------------------------------------------------

_Line = dict[str, Any]
"""An entry as plain JSON values; all of it but its hash is what the hash is taken over."""

_FIELDS: Final = tuple(field for field in Entry.__struct_fields__ if field != "team")


def _line(entry: Entry | Mapping[str, Any], team: str) -> _Line:
    if isinstance(entry, Entry):
        fields = {name: getattr(entry, name) for name in _FIELDS}
        team = entry.team
    else:
        fields = {name: entry[name] for name in _FIELDS}
    at, data = fields["at"], fields["data"]
    return fields | {
        "team": team,
        "at": parse_time(at) if isinstance(at, str) else at,
        "data": msgspec.json.decode(data) if isinstance(data, msgspec.Raw | bytes) else data,
    }


def _breaks(lines: Sequence[_Line], before: Head) -> tuple[Finding, ...]:
    """Return where the sequence has a gap, or an entry is not what the next one says it was."""
    found: list[Finding] = []
    seq, previous = before.seq, before.hash
    for line in lines:
        if line["seq"] != seq + 1:
            found.append(Finding(what=f"entry {seq + 1} is missing", seq=line["seq"]))
        elif line["prev_hash"] != previous:
            found.append(Finding(what="does not follow from the entry before", seq=line["seq"]))
        if line["hash"] != _hash(line):
            found.append(Finding(what="was changed after it was written", seq=line["seq"]))
        seq, previous = line["seq"], line["hash"]
    return tuple(found)


def _hash(line: _Line) -> str | None:
    hashed = {name: value for name, value in line.items() if name != "hash"}
    try:
        return hashlib.sha256(rfc8785.dumps(hashed)).hexdigest()
    except rfc8785.CanonicalizationError:
        return None  # nothing a relay writes is outside RFC 8785, so this is no entry of one


# --- handoffs -----------------------------------------------------------------------------------


class _Handoff(msgspec.Struct, kw_only=True):
    """What the log says about one handoff."""

    id: str
    offer: _Line | None = None
    endings: list[_Line] = []
    lines: list[_Line] = []

    def said(self, name: str) -> Any:
        """Return a field of the offer."""
        return self.offer["data"].get(name) if self.offer else None

    @property
    def settled_at(self) -> int | None:
        return next((e["at"] for e in self.lines if e["type"] == "handoff.settled.v1"), None)


def _handoffs(lines: Iterable[_Line]) -> dict[str, _Handoff]:
    handoffs: dict[str, _Handoff] = {}
    for line in lines:
        if line["handoff_id"] is None:
            continue
        handoff = handoffs.setdefault(line["handoff_id"], _Handoff(id=line["handoff_id"]))
        handoff.lines.append(line)
        if line["type"] == "handoff.offered.v1":
            handoff.offer = line
        elif line["type"] in ENDINGS:
            handoff.endings.append(line)
    return handoffs


# --- dropped ------------------------------------------------------------------------------------


def _unknown(answered: Iterable[str], handoffs: Mapping[str, _Handoff]) -> Iterable[Finding]:
    for handoff_id in answered:
        known = handoffs.get(handoff_id)
        if known is None or known.offer is None:
            yield Finding(what="answered as stored; the log has no offer", handoff_id=handoff_id)


def _headless(handoffs: Mapping[str, _Handoff]) -> Iterable[Finding]:
    for handoff in handoffs.values():
        if handoff.offer is None:
            seq = handoff.lines[0]["seq"]
            yield Finding(what="its offer is gone", handoff_id=handoff.id, seq=seq)


def _lost_successors(handoffs: Mapping[str, _Handoff]) -> Iterable[Finding]:
    """An outcome owes the leg that follows from it, and a redrive its successor, in the same commit."""
    for handoff in handoffs.values():
        for line in handoff.lines:
            successor = None
            if line["type"] in _SUCCESSIONS:
                successor = line["data"]["successor"]
            elif _owes_leg(line["type"], handoff.said("legs") or ()):
                successor = _next_leg(handoff)
            else:
                continue
            after = handoffs.get(successor) if successor else None
            if after is None or after.offer is None:
                what = "what was to follow it was never stored"
                yield Finding(what=what, handoff_id=handoff.id, seq=line["seq"])


def _owes_leg(ending: str, legs: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a leg follows: after a result one that is no fallback, else a fallback that is next."""
    if ending == "handoff.completed.v1":
        return any(not leg.get("fallback") for leg in legs)
    return ending in _DEAD and bool(legs) and bool(legs[0].get("fallback"))


def _next_leg(handoff: _Handoff) -> str | None:
    named = (e["data"].get("next_leg") for e in handoff.lines if e["type"] == "handoff.settled.v1")
    return next(named, None)


def _not_shown(
    handoffs: Mapping[str, _Handoff], shown: Iterable[Mapping[str, Any]]
) -> Iterable[Finding]:
    """Compare with the relay's own rows: what is open has a holder who owes it by some time."""
    views = {view["id"]: view for view in shown}
    for handoff in handoffs.values():
        view = views.get(handoff.id)
        ended = ENDINGS[handoff.endings[0]["type"]] if handoff.endings else None
        if handoff.offer is None or (view is None and handoff.settled_at is not None):
            continue
        if view is None:
            what = "the relay no longer knows it"
        elif ended is not None and view["state"] != ended:
            what = f"the log says {ended}, the relay says {view['state']}"
        elif ended is None and view["state"] in ENDINGS.values():
            what = f"the relay says {view['state']}, the log has no outcome"
        elif handoff.settled_at is None and not (view["holder"] and view["due_at"]):
            what = "nobody owes the next move"
        else:
            continue
        yield Finding(what=what, handoff_id=handoff.id)


# --- duplicated ---------------------------------------------------------------------------------


def _keys_twice(handoffs: Mapping[str, _Handoff]) -> Iterable[Finding]:
    used: defaultdict[tuple[str, str], list[_Handoff]] = defaultdict(list)
    for handoff in handoffs.values():
        if handoff.said("key") is not None:
            used[handoff.said("sender"), handoff.said("key")].append(handoff)
    for (sender, key), several in used.items():
        ids = {handoff.id for handoff in several}
        for earlier, later in pairwise(several):
            if later.said("redrive_of") not in ids and not _forgotten(earlier, later):
                what = f"{sender}/{key} is also {earlier.id}"
                yield Finding(what=what, handoff_id=later.id)


def _forgotten(earlier: _Handoff, later: _Handoff) -> bool:
    """Whether the key was free again: it is kept for a while past settlement, not for ever."""
    assert later.offer is not None, "a handoff with a key has an offer"
    settled = earlier.settled_at
    return settled is not None and later.offer["at"] >= settled + DEFAULT.remember_ms


def _outcomes_twice(handoffs: Mapping[str, _Handoff]) -> Iterable[Finding]:
    for handoff in handoffs.values():
        for again in handoff.endings[1:]:
            what = f"{ENDINGS[again['type']]} after {ENDINGS[handoff.endings[0]['type']]}"
            yield Finding(what=what, handoff_id=handoff.id, seq=again["seq"])


def _steps_twice(handoffs: Mapping[str, _Handoff]) -> Iterable[Finding]:
    for handoff in handoffs.values():
        times = Counter(step["name"] for step in handoff.said("steps") or ())
        for line in handoff.lines:
            if line["type"] != "handoff.step_recorded.v1":
                continue
            name = line["data"]["name"]
            times[name] += 1
            if times[name] > 1:
                what = f"step {name!r} was recorded again"
                yield Finding(what=what, handoff_id=handoff.id, seq=line["seq"])
