"""Entries of the log, and the chain that makes tampering evident.

The hash of an entry is SHA-256 over the canonical JSON of everything else in it, the hash of the
entry before included. A body is not in it, only its keyed digest: bodies can be erased.
"""

from typing import Final

import msgspec

from nodrop.wire.canonical import sha256

GENESIS: Final = "0" * 64
"""What the first entry of a team's log points back to."""


class Draft(msgspec.Struct, frozen=True, kw_only=True):
    """An entry before the store gave it its place."""

    team: str
    at: int
    type: str
    actor: str
    handoff_id: str | None = None
    version: int | None = None
    correlation_id: str | None = None
    command_id: str | None = None
    data: msgspec.Raw = msgspec.Raw(b"{}")
    body: bytes | None = None
    mail: tuple[tuple[str, str], ...] = ()
    """(reader, kind): the inboxes that this entry shows up in."""


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """An entry in its place. Also the form in which it is exported."""

    team: str
    seq: int
    at: int
    type: str
    actor: str
    handoff_id: str | None
    version: int | None
    correlation_id: str | None
    command_id: str | None
    data: msgspec.Raw
    body_digest: str | None
    prev_hash: str
    hash: str = ""


class Head(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a team's log."""

    seq: int = 0
    hash: str = GENESIS


_ENCODER: Final = msgspec.json.Encoder(order="sorted")


def seal(draft: Draft, head: Head, body_digest: str | None) -> Entry:
    """Return `draft` as the entry after `head`."""
    entry = Entry(
        team=draft.team,
        seq=head.seq + 1,
        at=draft.at,
        type=draft.type,
        actor=draft.actor,
        handoff_id=draft.handoff_id,
        version=draft.version,
        correlation_id=draft.correlation_id,
        command_id=draft.command_id,
        data=draft.data,
        body_digest=body_digest,
        prev_hash=head.hash,
    )
    return msgspec.structs.replace(entry, hash=hash_of(entry))


def hash_of(entry: Entry) -> str:
    """Return the hash that `entry` must carry."""
    unsealed = entry if not entry.hash else msgspec.structs.replace(entry, hash="")
    return sha256(_ENCODER.encode(unsealed))
