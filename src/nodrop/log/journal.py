"""The journal: how the entries of one commit are packed into one row per team, and read back.

An entry is kept as the canonical JSON that its hash is taken over, without the hash before it: that
is the hash of the entry before, which is kept beside the entries. Bodies are packed apart from the
entries, so that erasing rewrites one column and reading the log reads no payloads. What an entry put
into inboxes is kept with it: later versions of Nodrop may decide otherwise about new entries, and
must not about old ones.
"""

from binascii import hexlify
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from hashlib import sha256
from itertools import islice
from typing import Final

import msgspec

from nodrop.log.port import LARGE_BODY_BYTES, LogPage, Mail
from nodrop.protocol import canonical
from nodrop.protocol.entries import GENESIS, Draft, Entry, Head, salted_digest

TAIL_BYTES_MAX: Final = 1024 * 1024
"""Of the entries and bodies that stay in memory, of all teams: about what a follower reads in one go."""
_HASH_BYTES: Final = 32
_ENTRY: Final = msgspec.json.Decoder(Entry)
_PACK: Final = msgspec.msgpack.Encoder()


class PackedBody(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What an entry brought, and the salt that its digest is taken with."""

    seq: int
    salt: bytes
    body: bytes


class Item(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An inbox that an entry shows up in."""

    seq: int
    reader: str
    kind: str


_BODIES: Final = msgspec.msgpack.Decoder(list[PackedBody])
_MAIL: Final = msgspec.msgpack.Decoder(list[Item])


class Batch(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The entries that one commit wrote to one team's log: a row of the journal."""

    team: str
    last_seq: int
    first_seq: int
    first_at: int
    last_at: int
    types: str
    """The types of its entries, each between two spaces."""
    prev_hash: bytes
    entries: bytes
    """A line of JSON each."""
    hashes: bytes
    bodies: bytes
    mail: bytes


class Packed(msgspec.Struct, frozen=True, kw_only=True):
    """A batch that is ready to be written."""

    batch: Batch
    large: Sequence[PackedBody]
    """The bodies that have rows of their own."""
    head: Head
    """The end of the log once it is written."""


class _Line(msgspec.Struct, frozen=True, gc=False):
    """An entry in its place, but for the hash before it. Its fields are in the order of canonical JSON."""

    actor: str
    at: int
    body_digest: str | None
    command_id: str | None
    correlation_id: str | None
    data: msgspec.Raw
    handoff_id: str | None
    seq: int
    team: str
    type: str
    version: int | None


_encode_line: Final = msgspec.json.Encoder().encode
_AFTER_PREV_HASH: Final = b'"seq":'
"""The field before which the hash of the entry before stands, in canonical JSON."""


def pack(
    team: str, drafts: Sequence[Draft], mail: Sequence[tuple[str, Mail]], head: Head
) -> Packed:
    """Chain `drafts` of one team to `head`; `mail` is (reader, item), in their order."""
    seq, prev_hash = head.seq, head.hash.encode()
    lines: list[bytes] = []
    hashes: list[bytes] = []
    small: list[PackedBody] = []
    large: list[PackedBody] = []
    for draft in drafts:
        seq += 1
        body, digest = draft.body, None
        if body is not None:
            digest = sha256(draft.salt + body).hexdigest()
            kept = PackedBody(seq, draft.salt, body)
            (large if len(body) > LARGE_BODY_BYTES else small).append(kept)
        line = _encode_line(
            _Line(
                draft.actor,
                draft.at,
                digest,
                draft.command_id,
                draft.correlation_id,
                draft.data,
                draft.handoff_id,
                seq,
                team,
                draft.type,
                draft.version,
            )
        )
        lines.append(line)
        # The last one: the data before it may have a field of that name, and quotes in texts are escaped.
        before, _, after = line.rpartition(_AFTER_PREV_HASH)
        own = sha256(b'%b"prev_hash":"%b","seq":%b' % (before, prev_hash, after)).digest()
        hashes.append(own)
        prev_hash = hexlify(own)
    first, last = drafts[0], drafts[-1]
    types = first.type if first is last else " ".join(sorted({draft.type for draft in drafts}))
    batch = Batch(
        team=team,
        last_seq=seq,
        first_seq=head.seq + 1,
        first_at=first.at,
        last_at=last.at,
        types=f" {types} ",
        prev_hash=bytes.fromhex(head.hash),
        entries=b"\n".join(lines),
        hashes=b"".join(hashes),
        bodies=_PACK.encode(small) if small else b"",
        mail=_PACK.encode([(item.seq, reader, item.kind) for reader, item in mail])
        if mail
        else b"",
    )
    return Packed(batch=batch, large=large, head=Head(seq=seq, hash=prev_hash.decode()))


def entries(batch: Batch, only: Collection[int] | None = None) -> list[Entry]:
    """Return the entries of a batch as they were written; or only those at these `seq`s."""
    found: list[Entry] = []
    prev = batch.prev_hash.hex()
    for index, line in enumerate(batch.entries.split(b"\n")):
        own = batch.hashes[index * _HASH_BYTES : (index + 1) * _HASH_BYTES].hex()
        if only is None or batch.first_seq + index in only:
            found.append(
                _ENTRY.decode(
                    b'%b,"prev_hash":"%b","hash":"%b"}' % (line[:-1], prev.encode(), own.encode())
                )
            )
        prev = own
    return found


def bodies(batch: Batch) -> list[PackedBody]:
    """Return the bodies that are packed into a batch; large ones are elsewhere."""
    return _BODIES.decode(batch.bodies) if batch.bodies else []


def mail(batch: Batch) -> list[Item]:
    """Return which inboxes the entries of a batch show up in."""
    return _MAIL.decode(batch.mail) if batch.mail else []


def without_bodies(batch: Batch, seqs: Iterable[int]) -> bytes:
    """Return the column `bodies` of a batch without those of `seqs`."""
    gone = set(seqs)
    left = [body for body in bodies(batch) if body.seq not in gone]
    return _PACK.encode(left) if left else b""


def cut(batch: Batch, seq: int) -> Batch:
    """Return what is left of a batch that has entries beyond `seq`, once those up to it went."""
    went = seq - batch.first_seq + 1
    left = entries(batch)[went:]
    kept = [body for body in bodies(batch) if body.seq > seq]
    items = [item for item in mail(batch) if item.seq > seq]
    return msgspec.structs.replace(
        batch,
        first_seq=seq + 1,
        first_at=left[0].at,
        types=f" {' '.join(sorted({entry.type for entry in left}))} ",
        prev_hash=batch.hashes[(went - 1) * _HASH_BYTES : went * _HASH_BYTES],
        entries=b"\n".join(batch.entries.split(b"\n")[went:]),
        hashes=batch.hashes[went * _HASH_BYTES :],
        bodies=_PACK.encode(kept) if kept else b"",
        mail=_PACK.encode(items) if items else b"",
    )


def head_of(batch: Batch | None, pruned_to: Head | None) -> Head:
    """Return the end of a log whose last batch is `batch`, and which was pruned up to there."""
    if batch is not None:
        return Head(seq=batch.last_seq, hash=batch.hashes[-_HASH_BYTES:].hex())
    return pruned_to or Head(seq=0, hash=GENESIS)


def may_hold(batch: Batch, page: LogPage) -> bool:
    """Whether a batch may have entries that a page wants: told without reading any."""
    if page.actor is not None and b'"actor":%b' % canonical.dumps(page.actor) not in batch.entries:
        return False
    wanted = page.type
    if wanted is None or wanted == "*":
        return True
    types = batch.types
    return f" {wanted[:-1]}" in types if wanted.endswith("*") else f" {wanted} " in types


# --- the end of it in memory ---------------------------------------------------------------------


class Tail:
    """The last batches of all teams, for followers that keep up: they need not be read and decoded.

    A follower that is further behind reads the journal; nothing rests on what is kept here.
    """

    def __init__(self) -> None:
        self._batches: deque[_Recent] = deque()
        self._bytes = 0

    def add(self, packed: Packed, drafts: Sequence[Draft]) -> None:
        """Take in what was committed."""
        size = len(packed.batch.entries) + len(packed.batch.bodies)
        for body in packed.large:
            size += len(body.body)
        self._batches.append(_Recent(packed.batch, drafts, size))
        self._bytes += size
        while self._bytes > TAIL_BYTES_MAX:
            self._bytes -= self._batches.popleft().size

    def clear(self) -> None:
        """Drop everything."""
        self._batches.clear()
        self._bytes = 0

    def after(
        self, team: str, seq: int, end: int, fits: Callable[[Entry], bool], limit: int
    ) -> list[Entry] | None:
        """Return the entries after `seq` that fit; None: it does not have all of them up to `end`."""
        found: list[Sequence[Entry]] = []
        known = False
        for recent in reversed(self._batches):
            if known and end <= seq:
                break
            if recent.batch.team == team:
                known = True
                if recent.batch.last_seq != end or end <= seq:
                    break
                found.append(recent.entries())
                end = recent.batch.first_seq - 1
        if end > seq or not known:
            return None
        fitting = (e for entries in reversed(found) for e in entries if e.seq > seq and fits(e))
        return list(islice(fitting, limit))


class _Recent(msgspec.Struct, gc=False):
    """A batch that was committed. Its drafts are made entries when the first follower asks."""

    batch: Batch
    drafts: Sequence[Draft]
    size: int
    made: Sequence[Entry] = ()

    def entries(self) -> Sequence[Entry]:
        """Return its entries."""
        if not self.made:
            self.made = self._sealed()
            self.drafts = ()  # with the bodies
        return self.made

    def _sealed(self) -> list[Entry]:
        prev, hashes = self.batch.prev_hash.hex(), self.batch.hashes.hex()
        sealed: list[Entry] = []
        for n, draft in enumerate(self.drafts):
            own = hashes[n * 2 * _HASH_BYTES : (n + 1) * 2 * _HASH_BYTES]
            body = draft.body
            sealed.append(
                Entry(
                    team=draft.team,
                    seq=self.batch.first_seq + n,
                    at=draft.at,
                    type=draft.type,
                    actor=draft.actor,
                    handoff_id=draft.handoff_id,
                    version=draft.version,
                    correlation_id=draft.correlation_id,
                    command_id=draft.command_id,
                    data=draft.data,
                    body_digest=None if body is None else salted_digest(draft.salt, body),
                    prev_hash=prev,
                    hash=own,
                )
            )
            prev = own
        return sealed
