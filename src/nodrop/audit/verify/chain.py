"""The chain of hashes, the digests of bodies, and checkpoints that somebody kept elsewhere."""

from typing import Any

import msgspec

from nodrop.audit.verify.finding import DoesNotHoldError, Tally
from nodrop.protocol import canonical
from nodrop.protocol.entries import GENESIS, Entry, hash_of, salted_digest
from nodrop.protocol.identity.keys import PublicKey, decode
from nodrop.protocol.times import parse_time

_AS_SENT = frozenset({"agent.registered.v1"})
"""Entries whose bodies are kept byte for byte, and shown as values."""


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True):
    """Where a log ended once, signed by the relay."""

    team: str
    size: int
    head: str
    at: str
    public_key: str
    signature: str

    def genuine(self) -> bool:
        """Whether the key in it signed it."""
        stated = {
            "team": self.team,
            "size": self.size,
            "head": self.head,
            "at": parse_time(self.at),
        }
        try:
            key = PublicKey(self.public_key)
        except ValueError:
            return False
        return key.verify_bytes(self.signature, canonical.dumps(stated))


def read_entry(team: str, view: dict[str, Any]) -> Entry:
    """Return an entry from the way it is shown."""
    return Entry(
        team=team,
        seq=view["seq"],
        at=parse_time(view["at"]),
        type=view["type"],
        actor=view["actor"],
        handoff_id=view["handoff_id"],
        version=view["version"],
        correlation_id=view["correlation_id"],
        command_id=view["command_id"],
        data=msgspec.Raw(canonical.dumps(view["data"])),
        body_digest=view["body_digest"],
        prev_hash=view["prev_hash"],
        hash=view["hash"],
    )


class Chain:
    """Follows a log from entry to entry."""

    def __init__(self, tally: Tally) -> None:
        self.seq: int | None = None
        self.head = GENESIS
        self.pruned = False
        """Whether the log begins later than its team did."""
        self._tally = tally
        self._awaited: dict[int, str] = {0: GENESIS}
        self._began = 0

    def expect(self, checkpoint: Checkpoint) -> None:
        """Hold the log to a checkpoint."""
        if not checkpoint.genuine():
            raise DoesNotHoldError("it is not signed by the key in it")
        if self._awaited.setdefault(checkpoint.size, checkpoint.head) != checkpoint.head:
            raise DoesNotHoldError("another checkpoint says that another entry stood here")

    def read(self, entry: Entry, body: Any, salt: str | None) -> None:
        """Take the next entry."""
        if self.seq is None:
            self.seq, self.head, self.pruned = entry.seq - 1, entry.prev_hash, entry.seq > 1
            self._began = self.seq
            if self._awaited.pop(self.seq, self.head) != self.head and self.pruned:
                raise DoesNotHoldError("a checkpoint says that it follows something else")
            if not self.pruned and entry.prev_hash != GENESIS:
                raise DoesNotHoldError("it is the first, and follows something")
        if entry.seq != self.seq + 1:
            raise DoesNotHoldError(f"it follows {self.seq}: entries are missing or out of order")
        if entry.prev_hash != self.head:
            raise DoesNotHoldError("it does not follow the entry before it")
        if hash_of(entry) != entry.hash:
            raise DoesNotHoldError("its hash is not the hash of what it says")
        self.seq, self.head = entry.seq, entry.hash
        if self._awaited.pop(entry.seq, entry.hash) != entry.hash:
            raise DoesNotHoldError("a checkpoint says that another entry stood here")
        self._tally.checked["entries"] += 1
        self._check_body(entry, body, salt)

    def _check_body(self, entry: Entry, body: Any, salt: str | None) -> None:
        if entry.body_digest is None:
            if body is not None:
                raise DoesNotHoldError("it has a body that it does not know of")
        elif body is None:
            self._tally.unchecked["bodies that are erased, or not for you to see"] += 1
        elif entry.type in _AS_SENT:
            self._tally.unchecked["manifests, which are kept byte for byte"] += 1
        elif salt is None:
            raise DoesNotHoldError("its body is there without the salt of its digest")
        elif salted_digest(_bytes(salt), canonical.dumps(body)) != entry.body_digest:
            raise DoesNotHoldError("its body is not the one it was written with")
        else:
            self._tally.checked["bodies"] += 1

    def end(self) -> None:
        """Refuse a log that ends before a checkpoint that it was held to."""
        earlier = sum(0 < size < self._began for size in self._awaited)
        if earlier:
            self._tally.checked["checkpoints"] -= earlier
            self._tally.unchecked["checkpoints of what was pruned"] += earlier
        missing = [size for size in self._awaited if size > (self.seq or 0)]
        if missing:
            raise DoesNotHoldError(
                f"a checkpoint says that there were {max(missing)} entries: the end is missing",
                seq=(self.seq or 0) + 1,
            )


def _bytes(salt: str) -> bytes:
    try:
        return decode(salt)
    except ValueError as error:
        raise DoesNotHoldError(f"the salt of its body cannot be read: {error}") from error
