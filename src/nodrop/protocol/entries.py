"""Entries of the log, and the chain that makes tampering evident.

The hash of an entry is SHA-256 over the canonical JSON of everything else in it, the hash of the
entry before included. A body is not in it, only its digest, taken with a random salt that is kept and
erased with the body: whoever sees a body can check it, and nobody can guess one from the log.
"""

from hashlib import sha256
from typing import Final

import msgspec

GENESIS: Final = "0" * 64
"""What the first entry of a team's log points back to."""


class Draft(msgspec.Struct, frozen=True, gc=False):
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
    request: bytes | None = None
    """The digest of the request that has `command_id`. Beside the log: not hashed, never shown."""
    salt: bytes = b""
    """Of the body's digest."""
    mail: tuple[tuple[str, str], ...] = ()
    """(reader, kind): the inboxes that this entry shows up in."""


class Unsealed(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An entry in its place: exactly what its hash is taken over."""

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


class Entry(Unsealed, frozen=True, kw_only=True):
    """An entry with its hash. Also the form in which it is exported."""

    hash: str


class Head(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a team's log."""

    seq: int = 0
    hash: str = GENESIS


_encode: Final = msgspec.json.Encoder(order="sorted").encode
_HASHED: Final = Unsealed.__struct_fields__


def seal(draft: Draft, head: Head, body_digest: str | None) -> Entry:
    """Return `draft` as the entry after `head`."""
    unsealed = Unsealed(
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
    return Entry(**{name: getattr(unsealed, name) for name in _HASHED}, hash=hash_of(unsealed))


def salted_digest(salt: bytes, body: bytes) -> str:
    """Return what the entry of a body says of it."""
    return sha256(salt + body).hexdigest()


def hash_of(entry: Unsealed) -> str:
    """Return the hash that an entry must carry."""
    if type(entry) is not Unsealed:
        entry = Unsealed(**{name: getattr(entry, name) for name in _HASHED})
    return sha256(_encode(entry)).hexdigest()
