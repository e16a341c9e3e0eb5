"""Nodrop's own log, one entry per line, as `nodrop log --json` and `/v1/log` show it."""

from collections.abc import Callable
from hashlib import blake2b
from typing import Any, Final, cast

import msgspec

from nodrop.analysis import record as records
from nodrop.analysis.record import NONE, Market, Record
from nodrop.protocol.times import parse_time

COST_NAMES: Final = ("unit_cost", "cost", "reserve", "reserve_price")
"""Covariates that a parameter is compared with, the first that is there."""
_WORDS_MIN: Final = 3
_DIGEST_BYTES: Final = 7  # fits a signed 64-bit column


class Line(msgspec.Struct):
    """The parts of an entry that matter here."""

    seq: int
    at: str
    type: str
    actor: str
    data: msgspec.Raw
    handoff_id: str | None = None
    correlation_id: str | None = None
    body: msgspec.Raw = msgspec.Raw(b"null")


class _Leg(msgspec.Struct):
    to: str | None = None
    capability: str | None = None
    fallback: bool = False


class _Terms(msgspec.Struct):
    deadline_at: int = NONE
    outcome_within_ms: int = NONE


class _Offered(msgspec.Struct):
    sender: str
    recipient: str
    correlation_id: str
    terms: _Terms
    capability: str | None = None
    legs: tuple[_Leg, ...] = ()
    legs_done: tuple[Any, ...] = ()
    redrive_of: str | None = None


class _Facts(msgspec.Struct):
    """The parts of any other event that matter here."""

    attempt: int = 0
    kind: str = ""
    recipient: str = ""
    capability: str | None = None
    next_leg: str | None = None
    asked: str = ""


class _Body(msgspec.Struct):
    title: str | None = None
    trigger: str | None = None
    expected_outcome: str | None = None
    payload: msgspec.Raw = msgspec.Raw(b"null")
    result: msgspec.Raw = msgspec.Raw(b"null")
    parameters: dict[str, Any] = {}
    covariates: dict[str, Any] = {}
    question: Any = None
    answer: Any = None
    reason: Any = None
    status: Any = None
    text: Any = None


class _Talk(msgspec.Struct):
    to: tuple[str, ...] = ()
    topic: str | None = None


class _Capability(msgspec.Struct):
    name: str
    reliability_sla: float | None = None


class _Manifest(msgspec.Struct):
    agent_id: str = ""
    capabilities: tuple[_Capability, ...] = ()


_LINE: Final = msgspec.json.Decoder(Line)
_OFFERED: Final = msgspec.json.Decoder(_Offered)
_FACTS: Final = msgspec.json.Decoder(_Facts)
_BODY: Final = msgspec.json.Decoder(_Body)
_TALK: Final = msgspec.json.Decoder(_Talk)
_MANIFEST: Final = msgspec.json.Decoder(_Manifest)
_NO_BODY: Final = _Body()
_OUTCOMES: Final = {f"handoff.{name}.v1": n for n, name in enumerate(records.OUTCOMES)}
_DECISIONS: Final = frozenset(
    f"handoff.{name}.v1" for name in ("redriven", "accepted_late", "discarded", "joined")
)
_NO_PROGRESS: Final = frozenset(
    f"handoff.{name}.v1" for name in ("nudged", "rearmed", "dismissed", "noted", "erased", "ready")
)


class Source:
    """Reads entries, oldest first, into a record."""

    def __init__(self, record: Record) -> None:
        self._record = record
        self._senders: dict[str, tuple[str, str]] = {}

    def read(self, line: Line) -> None:
        """Take in one entry."""
        at = parse_time(line.at)
        self._record.event(at)
        kind = line.type
        if kind == "handoff.offered.v1":
            self._offered(line, at)
        elif kind.startswith("handoff."):
            if line.handoff_id is not None:
                self._moved(line, line.handoff_id, kind, at)
        elif kind in {"message.said.v1", "status.told.v1"}:
            self._talk(line, at)
        elif kind == "agent.registered.v1":
            self._registered(line)

    def _offered(self, line: Line, at: int) -> None:
        event = _OFFERED.decode(line.data)
        body = _body(line)
        handoff = line.handoff_id or ""
        payload = bytes(body.payload)
        digest = NONE if payload == b"null" else _digest(payload)
        self._record.offer(
            handoff,
            seq=line.seq,
            at=at,
            chain=event.correlation_id,
            sender=event.sender,
            recipient=event.recipient,
            capability=event.capability,
            digest=digest,
            deadline=event.terms.deadline_at,
            legs=tuple((leg.to, leg.capability) for leg in event.legs if not leg.fallback),
            again=event.redrive_of is not None,
            declared=bool(event.legs_done),
            outcome_ms=event.terms.outcome_within_ms,
        )
        self._senders[handoff] = (event.sender, event.recipient)
        words = [text for text in (body.trigger, body.title, body.expected_outcome) if text]
        words += _texts(payload)
        self._say(line, at, (event.sender, event.recipient), words)
        for name, value in body.parameters.items():
            if (number := _number(value)) is not None:
                market = Market(event.capability or "", event.recipient, name)
                cost = _cost(body.covariates)
                self._record.quote(
                    market, seq=line.seq, at=at, agent=event.sender, value=number, cost=cost
                )

    def _moved(self, line: Line, handoff: str, kind: str, at: int) -> None:
        record, seq = self._record, line.seq
        if (outcome := _OUTCOMES.get(kind)) is not None:
            body = _body(line)
            result = bytes(body.result)
            digest = NONE if result == b"null" else _digest(result)
            record.end(handoff, seq=seq, at=at, outcome=outcome, result=digest)
            self._say(line, at, self._senders.pop(handoff, None), _spoken(body))
        elif kind == "handoff.delivered.v1":
            record.deliver(handoff, seq=seq, at=at, attempt=_FACTS.decode(line.data).attempt)
        elif kind == "handoff.accepted.v1":
            record.accept(handoff, seq=seq, at=at)
        elif kind == "handoff.settled.v1":
            record.settle(handoff, seq=seq, at=at)
        elif kind == "handoff.blocked.v1":
            counter = _FACTS.decode(line.data).kind == "terms"
            record.ask(handoff, seq=seq, at=at, counter=counter)
            self._say(line, at, self._senders.get(handoff), _spoken(_body(line)))
        elif kind == "handoff.answered.v1":
            record.touch(handoff, seq=seq, at=at)
            self._say(line, at, self._senders.get(handoff), _spoken(_body(line)))
        elif kind == "handoff.returned.v1":
            record.give_back(handoff, seq=seq, at=at)
        elif kind == "handoff.reassigned.v1":
            facts = _FACTS.decode(line.data)
            record.reassign(
                *(handoff,), seq=seq, at=at, recipient=facts.recipient, capability=facts.capability
            )
        elif kind == "handoff.escalated.v1":
            record.escalate(handoff, seq=seq, at=at)
        elif kind in _DECISIONS:
            record.decide(handoff, seq=seq, at=at)
        elif kind not in _NO_PROGRESS:
            record.touch(handoff, seq=seq, at=at)

    def _talk(self, line: Line, at: int) -> None:
        talk = _TALK.decode(line.data)
        words = _spoken(_body(line))
        if not words or not (talk.to or talk.topic):
            return
        pair = len(talk.to) == 1 and talk.topic is None
        named = channel(line.actor, talk.to[0]) if pair else f"#{talk.topic or line.correlation_id}"
        self._record.say(named, seq=line.seq, at=at, author=line.actor, text="\n".join(words))

    def _say(self, line: Line, at: int, between: tuple[str, str] | None, words: list[str]) -> None:
        if words and between is not None:
            self._record.say(
                channel(*between), seq=line.seq, at=at, author=line.actor, text="\n".join(words)
            )

    def _registered(self, line: Line) -> None:
        try:
            manifest = _MANIFEST.decode(line.body)
        except msgspec.MsgspecError:
            return  # withheld, or another shape than ours: nothing is claimed
        for each in manifest.capabilities:
            if each.reliability_sla is not None:
                self._record.claim(manifest.agent_id, each.name, each.reliability_sla)


def line(entry: dict[str, Any]) -> Line:
    """Return an entry as the API answered it."""
    return _LINE.decode(msgspec.json.encode(entry))


def channel(one: str, other: str) -> str:
    """Return the name of the channel between two agents."""
    return " ↔ ".join(sorted((one, other)))


def reader(record: Record) -> Callable[[bytes], None]:
    """Return what reads one line of a saved log into `record`.

    Raises (when called):
        msgspec.MsgspecError: the line is no entry.
    """
    source = Source(record)
    return lambda written: source.read(_LINE.decode(written))


def _body(line: Line) -> _Body:
    if bytes(line.body) == b"null":
        return _NO_BODY
    try:
        return _BODY.decode(line.body)
    except msgspec.ValidationError:
        return _NO_BODY  # a body of another shape has nothing that is looked at here


def _digest(data: bytes) -> int:
    return int.from_bytes(blake2b(data, digest_size=_DIGEST_BYTES).digest())


def _spoken(body: _Body) -> list[str]:
    said = (body.question, body.answer, body.reason, body.status, body.text)
    return [text for text in said if isinstance(text, str) and text]


def _texts(payload: bytes) -> list[str]:
    """Return the sentences in a payload."""
    if payload.count(b" ") < _WORDS_MIN:
        return []
    found: list[str] = []
    waiting: list[Any] = [msgspec.json.decode(payload)]
    while waiting:
        value = waiting.pop()
        if isinstance(value, str):
            if value.count(" ") >= _WORDS_MIN - 1:
                found.append(value)
        elif isinstance(value, dict):
            waiting += cast("dict[str, Any]", value).values()
        elif isinstance(value, list):
            waiting += cast("list[Any]", value)
    return found


def _number(value: Any) -> float | None:
    real = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if real else None


def _cost(covariates: dict[str, Any]) -> float | None:
    numbers = {name: n for name, value in covariates.items() if (n := _number(value)) is not None}
    for name in COST_NAMES:
        if name in numbers:
            return numbers[name]
    return next(iter(numbers.values())) if len(numbers) == 1 else None
