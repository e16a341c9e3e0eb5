"""Rows: one JSON object per line and event, as `nodrop export` writes them, or any other program.

| field | meaning |
|---|---|
| `ts` | when: ISO 8601 with an offset |
| `type` | `offered`, `reassigned`, `delivered`, `accepted`, `blocked`, `returned`, `completed`, `failed`, `rejected`, `expired`, `cancelled`, `settled`, `redriven`, `discarded`, `escalated`, `said`; `handoff.….v1` is the same |
| `chain_id`, `handoff_id` | what belongs together; the piece of work |
| `from_agent`, `to_agent`, `actor` | who hands it to whom; who did this |
| `capability`, `attempt`, `deadline` | optional |
| `payload_sha256` | optional: equal payloads, or equal results of an outcome, have equal digests |
| `text`, `params`, `covariates` | optional: words; numbers that were decided on; their costs |
"""

from pathlib import Path
from typing import Any

import msgspec

from nodrop.analysis.record import NONE, OUTCOMES, Market, Record
from nodrop.analysis.sources.files import not_a_log, open_log
from nodrop.protocol.times import parse_time

_COSTS = ("unit_cost", "cost", "reserve", "reserve_price")
_DECISIONS = frozenset({"redriven", "accepted_late", "discarded", "joined"})


class _Row(msgspec.Struct):
    ts: str
    type: str
    seq: int | None = None
    chain_id: str | None = None
    handoff_id: str | None = None
    from_agent: str | None = None
    to_agent: str | None = None
    actor: str | None = None
    capability: str | None = None
    attempt: int | None = None
    deadline: str | None = None
    payload_sha256: str | None = None
    text: str | None = None
    params: dict[str, float] = {}
    covariates: dict[str, float] = {}


def read(path: Path, record: Record) -> None:
    """Read every row into `record`.

    Raises:
        InvalidRequestError: a line is no row.
    """
    decoder = msgspec.json.Decoder(_Row)
    with open_log(path) as file:
        for number, line in enumerate(file, 1):
            try:
                row = decoder.decode(line)
                _read(record, row, row.seq or number, parse_time(row.ts))
            except (msgspec.MsgspecError, ValueError) as error:
                raise not_a_log(path, number, "jsonl", error) from error


def _read(record: Record, row: _Row, seq: int, at: int) -> None:
    record.event(at)
    kind = row.type.removeprefix("handoff.").removesuffix(".v1")
    where: dict[str, Any] = {"seq": seq, "at": at}
    handoff = row.handoff_id
    if handoff is not None:
        if kind == "offered":
            _offered(record, row, handoff, where)
        elif kind in OUTCOMES:
            result = _digest(row.payload_sha256)
            record.end(handoff, **where, outcome=OUTCOMES.index(kind), result=result)
        elif kind == "reassigned" and row.to_agent:
            record.reassign(handoff, **where, recipient=row.to_agent, capability=row.capability)
        elif kind == "delivered":
            record.deliver(handoff, **where, attempt=row.attempt or 1)
        elif kind == "accepted":
            record.accept(handoff, **where)
        elif kind == "blocked":
            record.ask(handoff, **where, counter=False)
        elif kind == "returned":
            record.give_back(handoff, **where)
        elif kind == "settled":
            record.settle(handoff, **where)
        elif kind in _DECISIONS:
            record.decide(handoff, **where)
        elif kind == "escalated":
            record.escalate(handoff, **where)
    if row.text:
        author = row.actor or row.from_agent or "(nobody)"
        pair = sorted({row.from_agent or author, row.to_agent or author})
        record.say(" ↔ ".join(pair), **where, author=author, text=row.text)


def _offered(record: Record, row: _Row, handoff: str, where: dict[str, Any]) -> None:
    sender, recipient = row.from_agent or "(start)", row.to_agent or "(nobody)"
    record.offer(
        handoff,
        **where,
        chain=row.chain_id or handoff,
        sender=sender,
        recipient=recipient,
        capability=row.capability,
        digest=_digest(row.payload_sha256),
        deadline=NONE if row.deadline is None else parse_time(row.deadline),
    )
    cost = next((row.covariates[name] for name in _COSTS if name in row.covariates), None)
    for name, value in row.params.items():
        market = Market(row.capability or "", recipient, name)
        record.quote(market, **where, agent=sender, value=value, cost=cost)


def _digest(sha256: str | None) -> int:
    return NONE if sha256 is None else int(sha256[:14], 16)
