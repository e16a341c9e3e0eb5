import hashlib
import json
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from nodrop.audit import ledger
from nodrop.audit.ledger import Ledger
from nodrop.model.limits import DAY
from nodrop.protocol.entries import Entry, Head

OFFER = {"sender": "a", "recipient": "b"}


def log(*entries: tuple[str | None, str, dict[str, Any]], start: int = 0) -> list[dict[str, Any]]:
    """Entries as the API shows them, chained with nothing but the standard library."""
    lines: list[dict[str, Any]] = []
    previous = "0" * 64
    for seq, (handoff_id, name, data) in enumerate(entries, start=1):
        line: dict[str, Any] = {
            "team": "default",
            "seq": seq,
            "at": start + seq * 1_000,
            "type": name,
            "actor": "a",
            "handoff_id": handoff_id,
            "version": None,
            "correlation_id": None,
            "command_id": None,
            "data": data,
            "body_digest": None,
            "prev_hash": previous,
        }
        written = json.dumps(line, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        line["hash"] = previous = hashlib.sha256(written.encode()).hexdigest()
        lines.append(line)
    return lines


def offered(handoff_id: str, **data: Any) -> tuple[str, str, dict[str, Any]]:
    return handoff_id, "handoff.offered.v1", OFFER | data


def happened(handoff_id: str, event: str, **data: Any) -> tuple[str, str, dict[str, Any]]:
    return handoff_id, f"handoff.{event}.v1", data


def findings(found: Sequence[ledger.Finding]) -> list[tuple[str | None, str]]:
    return [(finding.handoff_id, finding.what) for finding in found]


def view(handoff_id: str, state: str, **fields: Any) -> dict[str, Any]:
    due = "2026-11-15T12:00:00.000Z"
    return {"id": handoff_id, "state": state, "holder": "b", "due_at": due} | fields


def test_an_empty_log_holds() -> None:
    assert ledger.count([]).holds


def test_open_and_ended_handoffs_are_counted() -> None:
    books = ledger.count(
        log(
            offered("h1"),
            offered("h2"),
            (None, "team.noted.v1", {}),
            happened("h1", "completed", attempt=1),
        )
    )
    assert books.holds
    assert (books.entries, books.stored, books.open, books.ended) == (4, 2, 1, 1)
    assert books.head.seq == 4


def test_exported_entries_are_counted_like_shown_ones() -> None:
    lines = log(offered("h1", key="ü"), happened("h1", "completed", attempt=1))
    exported = msgspec.json.decode(msgspec.json.encode(lines), type=list[Entry])
    shown = [{k: v for k, v in e.items() if k != "team"} | {"body": {"x": 1}} for e in lines]
    shown = [e | {"at": f"1970-01-01T00:00:0{e['seq']}.000Z"} for e in shown]
    assert ledger.count(exported) == ledger.count(shown) == ledger.count(lines)
    assert ledger.count(exported).holds


# --- the log itself -----------------------------------------------------------------------------


def test_a_missing_entry_is_a_break() -> None:
    first, _, third = log(offered("h1"), offered("h2"), offered("h3"))
    books = ledger.count([first, third])
    assert [(finding.seq, finding.what) for finding in books.broken] == [(3, "entry 2 is missing")]


@pytest.mark.parametrize(
    "change", [{"actor": "eve"}, {"data": {}}, {"at": 1}, {"hash": "0" * 64}, {"version": 2**60}]
)
def test_a_changed_entry_is_a_break(change: dict[str, Any]) -> None:
    lines = log(offered("h1"), offered("h2"))
    lines[0] |= change
    books = ledger.count(lines)
    assert (1, "was changed after it was written") in [(f.seq, f.what) for f in books.broken]


def test_a_changed_entry_with_a_new_hash_no_longer_fits_the_next_one() -> None:
    lines = log(offered("h1"), offered("h2"))
    [forged] = log((None, "team.noted.v1", {}))
    books = ledger.count([forged, lines[1]])
    assert [(finding.seq, finding.what) for finding in books.broken] == [
        (2, "does not follow from the entry before")
    ]


def test_a_log_of_another_team_is_a_break() -> None:
    lines = [{k: v for k, v in entry.items() if k != "team"} for entry in log(offered("h1"))]
    assert ledger.count(lines).holds
    assert not ledger.count(lines, team="other").holds


def test_a_count_may_begin_where_another_ended() -> None:
    lines = log(offered("h1"), happened("h1", "completed", attempt=1))
    head = ledger.count(lines[:1]).head
    assert ledger.count(lines[1:], after=head).holds
    assert not ledger.count(lines[1:], after=Head(seq=1, hash="f" * 64)).holds


# --- dropped ------------------------------------------------------------------------------------


def dropped(books: Ledger) -> list[tuple[str | None, str]]:
    assert not books.broken
    assert not books.duplicated
    return findings(books.dropped)


def test_a_handoff_that_was_answered_and_is_not_in_the_log_is_dropped() -> None:
    books = ledger.count(log(offered("h1")), answered=["h1", "h2"])
    assert dropped(books) == [("h2", "answered as stored; the log has no offer")]


def test_a_handoff_without_its_offer_is_dropped() -> None:
    books = ledger.count(log(happened("h1", "delivered", attempt=1)))
    assert dropped(books) == [("h1", "its offer is gone")]


def test_a_completed_leg_without_the_next_one_is_dropped() -> None:
    legs = [{"to": "c"}]
    ended = [happened("h1", "completed", attempt=1), happened("h1", "settled", next_leg="h2")]
    kept = ledger.count(log(offered("h1", legs=legs), *ended, offered("h2")))
    assert dropped(kept) == []
    lost = ledger.count(log(offered("h1", legs=legs), *ended))
    assert dropped(lost) == [("h1", "what was to follow it was never stored")]
    cut = ledger.count(log(offered("h1", legs=legs), ended[0]))
    assert dropped(cut) == [("h1", "what was to follow it was never stored")]


@pytest.mark.parametrize("decision", ["redriven", "accepted_late"])
def test_a_decision_without_its_successor_is_dropped(decision: str) -> None:
    dead = [offered("h1"), happened("h1", "expired"), happened("h1", decision, successor="h2")]
    assert dropped(ledger.count(log(*dead, offered("h2", redrive_of="h1")))) == []
    assert dropped(ledger.count(log(*dead))) == [("h1", "what was to follow it was never stored")]


@pytest.mark.parametrize(
    ("shown", "what"),
    [
        ([], "the relay no longer knows it"),
        ([view("h1", "completed")], "the relay says completed, the log has no outcome"),
        ([view("h1", "offered", due_at=None)], "nobody owes the next move"),
        ([view("h1", "blocked", holder=None)], "nobody owes the next move"),
    ],
)
def test_an_open_handoff_is_dropped_when_nobody_owes_it(
    shown: list[dict[str, Any]], what: str
) -> None:
    lines = log(offered("h1"))
    assert dropped(ledger.count(lines, shown=[view("h1", "offered")])) == []
    assert dropped(ledger.count(lines, shown=shown)) == [("h1", what)]


def test_an_outcome_that_the_relay_forgot_is_dropped() -> None:
    lines = log(offered("h1"), happened("h1", "completed", attempt=1))
    assert dropped(ledger.count(lines, shown=[view("h1", "completed")])) == []
    assert dropped(ledger.count(lines, shown=[view("h1", "accepted")])) == [
        ("h1", "the log says completed, the relay says accepted")
    ]
    assert dropped(ledger.count(lines, shown=[])) == [("h1", "the relay no longer knows it")]


def test_a_settled_handoff_may_be_forgotten() -> None:
    lines = log(offered("h1"), happened("h1", "completed", attempt=1), happened("h1", "settled"))
    assert ledger.count(lines, shown=[]).holds


# --- duplicated ---------------------------------------------------------------------------------


def duplicated(books: Ledger) -> list[tuple[str | None, str]]:
    assert not books.broken
    assert not books.dropped
    return findings(books.duplicated)


def test_two_handoffs_for_one_key_are_a_duplicate() -> None:
    books = ledger.count(log(offered("h1", key="k"), offered("h2", key="k")))
    assert duplicated(books) == [("h2", "a/k is also h1")]


def test_a_key_belongs_to_its_sender() -> None:
    assert ledger.count(log(offered("h1", key="k"), offered("h2", key="k", sender="c"))).holds


def test_a_redrive_keeps_its_key() -> None:
    dead = [offered("h1", key="k"), happened("h1", "failed"), happened("h1", "redriven")]
    dead[2][2]["successor"] = "h2"
    assert ledger.count(log(*dead, offered("h2", key="k", redrive_of="h1"))).holds
    stranger = ledger.count(log(*dead, offered("h2", key="k", redrive_of="h9")))
    assert duplicated(stranger) == [("h2", "a/k is also h1")]


def test_a_key_is_free_again_a_week_after_settlement() -> None:
    lines = log(
        offered("h1", key="k"),
        happened("h1", "completed"),
        happened("h1", "settled"),
        offered("h2", key="k"),
    )
    later = [line | {"at": line["at"] + 7 * DAY} for line in lines[3:]]
    found = ledger.count(lines[:3] + later)
    assert not found.duplicated
    assert findings(ledger.count(lines).duplicated) == [("h2", "a/k is also h1")]


def test_two_outcomes_are_a_duplicate() -> None:
    books = ledger.count(log(offered("h1"), happened("h1", "failed"), happened("h1", "completed")))
    assert duplicated(books) == [("h1", "completed after failed")]


def test_a_step_recorded_again_is_a_duplicate() -> None:
    step = happened("h1", "step_recorded", attempt=1, name="open-ticket")
    other = happened("h1", "step_recorded", attempt=2, name="send-mail")
    assert ledger.count(log(offered("h1"), step, other)).holds
    assert duplicated(ledger.count(log(offered("h1"), step, step))) == [
        ("h1", "step 'open-ticket' was recorded again")
    ]


def test_an_inherited_step_recorded_again_is_a_duplicate() -> None:
    inherited = {"name": "open-ticket", "value": {"version": 3, "of": "h0"}}
    step = happened("h1", "step_recorded", attempt=1, name="open-ticket")
    assert duplicated(ledger.count(log(offered("h1", steps=[inherited]), step))) == [
        ("h1", "step 'open-ticket' was recorded again")
    ]
