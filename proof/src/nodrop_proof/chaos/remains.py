"""What a database holds after a fault, held against what everybody was told before.

Losses and duplicates are counted from the log by `proof.ledger`, which shares no code with the
relay, and by looking for each answer's entry. That the rows are the fold of the log is checked with
the machine itself: rows and log must agree with each other, whoever is right.
"""

from collections import defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any, Final, Protocol

import msgspec

from nodrop.audit import ledger
from nodrop.log.port import LogPage, Page, Store
from nodrop.model import machine
from nodrop.model.handoff import Handoff
from nodrop.protocol import events as wire_events
from nodrop.protocol.entries import Entry, salted_digest
from nodrop.protocol.times import format_time
from nodrop_proof.chaos.colleagues import TEAM
from nodrop_proof.chaos.memory import ENTRIES, Memory

PAGE_ITEMS: Final = 1_000

RUNGS: Final[Mapping[str, frozenset[str]]] = {
    "stored": frozenset({"handoff.offered.v1"}),
    "delivered": frozenset({"handoff.delivered.v1", "handoff.reclaimed.v1"}),
    "acknowledged": frozenset(
        {
            "handoff.queued.v1",
            "handoff.accepted.v1",
            "handoff.revived.v1",
            "handoff.resumed.v1",
        }
    ),
    "updated": frozenset({"handoff.updated.v1", "handoff.queued.v1"}),
    "finished": frozenset(ledger.ENDINGS),
    "outcome_delivered": frozenset({"handoff.outcome_delivered.v1"}),
    "settled": frozenset({"handoff.settled.v1"}),
}
"""The entries that put a handoff on a rung."""


class Connection(Protocol):
    """What is asked of SQLite itself."""

    def pragma(self, name: str, value: Any = None, /) -> Any:
        """Read a setting, or change it and return what it is then."""
        ...


class Remains(msgspec.Struct, frozen=True, kw_only=True):
    """What was found."""

    entries: int
    lost: tuple[str, ...]
    duplicated: tuple[str, ...]
    wrong: tuple[str, ...]


async def examine(store: Store, memory: Memory, connection: Connection) -> Remains:
    """Return what does not add up in a database that was just opened."""
    wrong: list[str] = []
    verdict = connection.pragma("integrity_check")
    if verdict != "ok":
        wrong.append(f"integrity_check: {verdict}")
    entries = await _entries(store)
    rows = await _rows(store)
    books = ledger.count(entries, team=TEAM, answered=sorted(memory.stored))
    head = await store.head(TEAM)
    if head != books.head:
        wrong.append(f"the log ends at {books.head.seq}, the team's head is {head.seq}")
    wrong += [f"entry {finding.seq}: {finding.what}" for finding in books.broken]
    wrong += _unlike_rows(entries, rows)
    wrong += await _bodies(store, entries, memory)
    return Remains(
        entries=len(entries),
        lost=(
            *(f"{finding.handoff_id}: {finding.what}" for finding in books.dropped),
            *_broken_promises(entries, memory, {finding.handoff_id for finding in books.dropped}),
        ),
        duplicated=tuple(f"{finding.handoff_id}: {finding.what}" for finding in books.duplicated),
        wrong=tuple(wrong),
    )


async def _entries(store: Store) -> list[Entry]:
    entries: list[Entry] = []
    while True:
        after = entries[-1].seq if entries else 0
        page = await store.log(LogPage(team=TEAM, after=after, limit=PAGE_ITEMS))
        entries += page
        if len(page) < PAGE_ITEMS:
            return entries


async def _rows(store: Store) -> dict[str, Handoff]:
    rows: dict[str, Handoff] = {}
    before: str | None = None
    while True:
        page = await store.list_handoffs(Page(team=TEAM, before=before, limit=PAGE_ITEMS))
        rows.update({handoff.id: handoff for handoff in page})
        if len(page) < PAGE_ITEMS:
            return rows
        before = page[-1].id


def _broken_promises(
    entries: Sequence[Entry], memory: Memory, dropped: Container[str | None]
) -> Iterable[str]:
    """Tell which answers are not in the log. A handoff that was dropped is told of once."""
    commands = {(e.actor, e.command_id, e.handoff_id, e.type) for e in entries}
    for promise in memory.promises:
        said = (promise.actor, promise.command_id, promise.handoff_id)
        kept = any((*said, type_) in commands for type_ in ENTRIES[promise.operation])
        if not kept and promise.handoff_id not in dropped:
            yield f"{promise.handoff_id}: {promise.operation} by {promise.actor} was answered"
    happened: defaultdict[tuple[str | None, str], set[str]] = defaultdict(set)
    for entry in entries:
        happened[entry.handoff_id, format_time(entry.at)].add(entry.type)
    for handoff_id, rung, at in sorted(memory.receipts):
        kept = not RUNGS[rung].isdisjoint(happened.get((handoff_id, at), ()))
        if not kept and handoff_id not in dropped:
            yield f"{handoff_id}: {rung} at {at} was shown"
    tokens = {
        msgspec.json.decode(e.data)["token_id"] for e in entries if e.type == "token.created.v1"
    }
    yield from (f"token {token_id} was handed out" for token_id in sorted(memory.tokens - tokens))


def _unlike_rows(entries: Sequence[Entry], rows: Mapping[str, Handoff]) -> Iterable[str]:
    told: defaultdict[str, list[Entry]] = defaultdict(list)
    for entry in entries:
        if entry.handoff_id is not None and entry.version is not None:
            told[entry.handoff_id].append(entry)
    for handoff_id in sorted({*told, *rows}):
        try:
            folded = _fold(told[handoff_id])
        except (AssertionError, LookupError) as error:
            yield f"{handoff_id}: the log cannot be folded: {error}"
        else:
            if folded != rows.get(handoff_id):
                yield f"{handoff_id}: the row is not what the log says"


def _fold(entries: Sequence[Entry]) -> Handoff | None:
    handoff: Handoff | None = None
    for e in entries:
        event = wire_events.decode(e.type, bytes(e.data))
        handoff = machine.evolve(
            handoff, event, team=e.team, handoff_id=e.handoff_id or "", by=e.actor, at=e.at
        )
    return handoff


async def _bodies(store: Store, entries: Sequence[Entry], memory: Memory) -> list[str]:
    expected = {e.seq: e for e in entries if e.body_digest is not None}
    bodies = await store.entry_bodies(TEAM, list(expected))
    wrong: list[str] = []
    for seq, entry in expected.items():
        found = bodies.get(seq)
        if entry.handoff_id in memory.erased:
            if found is not None:
                wrong.append(f"entry {seq}: its body was erased, and is back")
        elif found is None and entry.handoff_id in memory.erasing:
            continue
        elif found is None:
            wrong.append(f"entry {seq}: its body is gone")
        elif salted_digest(found.salt, found.body) != entry.body_digest:
            wrong.append(f"entry {seq}: its body is another")
    return wrong
