"""The chain can be checked by anybody with SHA-256 and RFC 8785; here somebody does."""

import hashlib
import json
from typing import Any

import msgspec
import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from nodrop.log import journal
from nodrop.protocol import canonical
from nodrop.protocol.entries import GENESIS, Draft, Entry, Head, hash_of, seal


def draft(**changed: Any) -> Draft:
    values: dict[str, Any] = {
        "team": "default",
        "at": 1_767_225_600_000,
        "type": "handoff.expired.v1",
        "actor": "relay",
        "handoff_id": "h1",
        "version": 2,
        "data": msgspec.Raw(b'{"a":1}'),
    }
    return Draft(**{**values, **changed})


def independently(entry: Entry) -> str:
    said = json.loads(msgspec.json.encode(entry))
    del said["hash"]
    return hashlib.sha256(rfc8785.dumps(said)).hexdigest()


def test_an_entry_is_hashed_with_the_one_before() -> None:
    first = seal(draft(), Head(), None)
    second = seal(draft(version=3), Head(seq=first.seq, hash=first.hash), "ab" * 32)
    assert (first.seq, first.prev_hash) == (1, GENESIS)
    assert (second.seq, second.prev_hash) == (2, first.hash)
    for entry in (first, second):
        assert entry.hash == independently(entry) == hash_of(entry)


@given(st.text(max_size=40).filter(lambda s: s.isprintable()), st.text(max_size=40))
def test_any_text_hashes_alike_everywhere(actor: str, agent: str) -> None:
    data = msgspec.Raw(canonical.dumps({"agent": agent}))
    entry = seal(draft(actor=actor, data=data), Head(), None)
    assert entry.hash == independently(entry)


_TEXTS = st.text(st.characters(codec="utf-8"), max_size=40)
_MAYBE = st.none() | _TEXTS


@given(
    actor=_TEXTS,
    team=_TEXTS,
    handoff_id=_MAYBE,
    correlation_id=_MAYBE,
    command_id=_MAYBE,
    version=st.none() | st.integers(1, 2**53 - 1),
    data=st.dictionaries(_TEXTS.filter(str.isascii), _TEXTS, max_size=3),
    body=st.none() | st.binary(max_size=40),
    seq=st.integers(0, 2**53 - 3),
)
def test_a_line_of_the_journal_is_what_the_hash_of_its_entry_is_taken_over(
    data: dict[str, str], team: str, body: bytes | None, seq: int, **fields: Any
) -> None:
    raw = msgspec.Raw(canonical.dumps(data))
    made = draft(team=team, data=raw, body=body, salt=b"salt", **fields)
    digest = None if body is None else hashlib.sha256(b"salt" + body).hexdigest()
    before = Head(seq=seq, hash="cd" * 32)
    first = seal(made, before, digest)
    second = seal(draft(team=team), Head(seq=first.seq, hash=first.hash), None)
    packed = journal.pack(team, [made, draft(team=team)], (), before)
    assert packed.batch.hashes.hex() == independently(first) + independently(second)
    assert packed.head == Head(seq=second.seq, hash=second.hash)
    for entry, written in zip((first, second), packed.batch.entries.split(b"\n"), strict=True):
        shown = json.loads(msgspec.json.encode(entry))
        del shown["hash"], shown["prev_hash"]
        assert written == rfc8785.dumps(shown)


def test_data_with_fields_of_the_names_around_the_hash_is_kept_whole() -> None:
    data = canonical.dumps(
        {"prev_hash": "cd" * 32, "seq": 7, "text": '"prev_hash":"', "u": '"seq":'}
    )
    made = draft(team='"seq":', type='"prev_hash":"', data=msgspec.Raw(data))
    entry = seal(made, Head(seq=0, hash="cd" * 32), None)
    batch = journal.pack('"seq":', [made], (), Head(seq=0, hash="cd" * 32)).batch
    assert batch.hashes.hex() == independently(entry) == entry.hash
    shown = json.loads(batch.entries)
    assert shown["data"] == json.loads(data)
    assert "prev_hash" not in shown
    assert (shown["seq"], shown["team"], shown["type"]) == (1, '"seq":', '"prev_hash":"')


@pytest.mark.parametrize("field", ["team", "seq", "at", "type", "actor", "version", "body_digest"])
def test_a_change_anywhere_shows(field: str) -> None:
    entry = seal(draft(), Head(), "ab" * 32)
    changed: Any = 7 if field in {"seq", "at", "version"} else "changed"
    assert hash_of(msgspec.structs.replace(entry, **{field: changed})) != entry.hash


def test_digests_of_equal_bodies_are_equal_only_within_a_team() -> None:
    same = canonical.keyed_digest(b"team a", b"body")
    assert same == canonical.keyed_digest(b"team a", b"body")
    assert same != canonical.keyed_digest(b"team b", b"body")
